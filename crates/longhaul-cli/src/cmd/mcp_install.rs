//! `longhaul mcp install`: adds a team to the configuration of an MCP client.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use indexmap::IndexMap;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::CliContext;
use super::stdio_server::{require_trust, served_dir, team_file};
use crate::args::{McpClient, McpInstallArgs};
use crate::exit::{CliError, CliExitCode};
use crate::store_address::{STORE_VARIABLE, StoreAddress};
use crate::team;
use crate::view::{OutputStream, TerminalOutput};

pub(super) fn run(context: &CliContext, args: &McpInstallArgs) -> Result<CliExitCode, CliError> {
    let data_dir = context.data_dir()?;
    let file = team_file(&args.served)?;
    // Where the tasks of a client work is only fixed if it was asked for.
    let dir = args.served.dir.as_ref().map(|_| served_dir(&args.served)).transpose()?;
    let here = team::resolve_working_dir(dir.as_deref())?;
    let environment = team::build_environment(context, &args.providers, &data_dir)?;
    let made = team::assemble_served_team(context, &environment, &args.served.model, &file, &here)?;
    if !args.print {
        require_trust(context, &data_dir, &args.served, &file, &made)?;
    }
    let program = std::env::current_exe().map_err(|error| {
        CliError::new(CliExitCode::Failed, format!("the path of this program is not known: {error}"))
    })?;
    let mut command = vec![text(&program)?];
    if let Some(data) = &context.data {
        let data = std::path::absolute(data).unwrap_or_else(|_| data.clone());
        command.extend(["--data".to_owned(), text(&data)?]);
    }
    // The client starts it without the variables of this shell.
    let store = context.store.clone().or_else(|| std::env::var(STORE_VARIABLE).ok());
    if let Some(store) = store {
        command.extend(["--store".to_owned(), StoreAddress::as_argument(&store)?]);
    }
    command.extend(["mcp".to_owned(), "--team".to_owned(), text(&file)?]);
    if let Some(dir) = &dir {
        command.extend(["--dir".to_owned(), text(dir)?]);
    }
    for model in &args.served.model {
        command.extend(["--model".to_owned(), model.clone()]);
    }
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for flag in args.providers.to_flags(absolute) {
        command.push(text(Path::new(&flag))?);
    }
    let entry = ClientEntry { client: args.client, name: &args.name, command: &command };
    if args.print {
        let out = TerminalOutput::for_stream(OutputStream::Stdout);
        out.print_line(entry.add_to("").map_err(|why| wrong_file(Path::new("-"), &why))?.trim_end())?;
        return Ok(CliExitCode::Success);
    }
    let path = config_path(args.client, args.project.as_deref())?;
    // A link to the file stays a link.
    let path = path.canonicalize().unwrap_or(path);
    let old = match std::fs::read_to_string(&path) {
        Ok(old) => Some(old),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(wrong_file(&path, &error.to_string())),
    };
    let new = entry.add_to(old.as_deref().unwrap_or_default()).map_err(|why| wrong_file(&path, &why))?;
    if old.as_deref() == Some(new.as_str()) {
        context.note(&format!("{} has it already", path.display()));
        return Ok(CliExitCode::Success);
    }
    replace_file(&path, old.is_some(), &new).map_err(|error| wrong_file(&path, &error.to_string()))?;
    context.note(&format!("'{}' is now in {}", args.name, path.display()));
    context.note(next_step(args.client));
    Ok(CliExitCode::Success)
}

fn text(path: &Path) -> Result<String, CliError> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        let what = format!("{} cannot be written to a configuration: it is not UTF-8", path.display());
        CliError::new(CliExitCode::Usage, what).with_hint("rename it")
    })
}

fn wrong_file(path: &Path, why: &str) -> CliError {
    CliError::new(CliExitCode::Failed, format!("{}: {why}", path.display()))
        .with_hint("correct the file, or add by hand what `--print` prints")
}

fn next_step(client: McpClient) -> &'static str {
    match client {
        McpClient::Claude => "start `claude` and ask it to use the agents; `/mcp` shows the server",
        McpClient::Codex => "start `codex`; `/mcp` shows the server",
        McpClient::Cursor => "restart Cursor; Settings, MCP shows the server",
        McpClient::Opencode => "start `opencode`; `opencode mcp list` shows the server",
        McpClient::Vscode => "restart VS Code; `MCP: List Servers` shows the server",
    }
}

/// Returns the configuration file of a client: of a project, or of the user.
fn config_path(client: McpClient, project: Option<&Path>) -> Result<PathBuf, CliError> {
    if let Some(project) = project {
        return Ok(project.join(match client {
            McpClient::Claude => ".mcp.json",
            McpClient::Codex => ".codex/config.toml",
            McpClient::Cursor => ".cursor/mcp.json",
            McpClient::Opencode => "opencode.json",
            McpClient::Vscode => ".vscode/mcp.json",
        }));
    }
    let base = etcetera::choose_base_strategy().map_err(|error| {
        CliError::new(CliExitCode::Failed, format!("there is no home directory: {error}"))
            .with_hint("`--print` prints the configuration; `--project DIR` writes to a project")
    })?;
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    Ok(match client {
        McpClient::Claude => match variable("CLAUDE_CONFIG_DIR") {
            Some(dir) => dir.join(".claude.json"),
            None => base.home_dir().join(".claude.json"),
        },
        McpClient::Codex => {
            variable("CODEX_HOME").unwrap_or_else(|| base.home_dir().join(".codex")).join("config.toml")
        }
        McpClient::Cursor => base.home_dir().join(".cursor/mcp.json"),
        McpClient::Opencode => base.config_dir().join("opencode/opencode.json"),
        McpClient::Vscode if cfg!(target_os = "macos") => {
            base.home_dir().join("Library/Application Support/Code/User/mcp.json")
        }
        McpClient::Vscode => base.config_dir().join("Code/User/mcp.json"),
    })
}

/// A server in the configuration of a client.
struct ClientEntry<'a> {
    client: McpClient,
    name: &'a str,
    /// The program and its arguments.
    command: &'a [String],
}

impl ClientEntry<'_> {
    /// Returns the text of a configuration with the server in it. Everything else stays as it is. Fails if the
    /// text is not a valid configuration.
    fn add_to(&self, old: &str) -> Result<String, String> {
        let (program, args) = self.command.split_first().ok_or("there is no command")?;
        let stdio = || json!({"type": "stdio", "command": program, "args": args});
        match self.client {
            McpClient::Codex => self.add_to_toml(old, program, args),
            McpClient::Claude => self.add_to_json(old, "mcpServers", &stdio()),
            McpClient::Cursor => {
                self.add_to_json(old, "mcpServers", &json!({"command": program, "args": args}))
            }
            McpClient::Vscode => self.add_to_json(old, "servers", &stdio()),
            McpClient::Opencode => {
                let local = json!({"type": "local", "command": self.command, "enabled": true});
                self.add_to_json(old, "mcp", &local)
            }
        }
    }

    fn add_to_json(&self, old: &str, key: &str, server: &Value) -> Result<String, String> {
        // Raw values: what is not ours is written back byte by byte.
        type Object = IndexMap<String, Box<RawValue>>;
        let object = |text: &str, what: &str| -> Result<Object, String> {
            match text.trim() {
                "" => Ok(Object::new()),
                text => serde_json::from_str(text)
                    .map_err(|error| format!("{what} is not a JSON object: {error}")),
            }
        };
        let raw = |text: String| RawValue::from_string(text).map_err(|error| error.to_string());
        let mut file = object(old, "the file")?;
        let mut servers = match file.get(key) {
            Some(servers) => object(servers.get(), &format!("`{key}`"))?,
            None => Object::new(),
        };
        servers.insert(self.name.to_owned(), raw(server.to_string())?);
        let listed: Vec<String> = servers
            .iter()
            .map(|(name, server)| Ok(format!("    {}: {}", json!(name), self.laid_out(name, server)?)))
            .collect::<Result<_, String>>()?;
        file.insert(key.to_owned(), raw(format!("{{\n{}\n  }}", listed.join(",\n")))?);
        let lines: Vec<String> =
            file.iter().map(|(name, value)| format!("  {}: {}", json!(name), value.get())).collect();
        Ok(format!("{{\n{}\n}}\n", lines.join(",\n")))
    }

    /// Our own server indented for reading; those of others as they are.
    fn laid_out(&self, name: &str, server: &RawValue) -> Result<String, String> {
        if name != self.name {
            return Ok(server.get().to_owned());
        }
        let value: Value = serde_json::from_str(server.get()).map_err(|error| error.to_string())?;
        let pretty = serde_json::to_string_pretty(&value).map_err(|error| error.to_string())?;
        Ok(pretty.replace('\n', "\n    "))
    }

    fn add_to_toml(&self, old: &str, program: &str, args: &[String]) -> Result<String, String> {
        use toml_edit::{Array, DocumentMut, Item, Table, value};
        let mut file: DocumentMut =
            old.parse().map_err(|error: toml_edit::TomlError| format!("it is not valid TOML: {error}"))?;
        let servers = file.entry("mcp_servers").or_insert_with(|| {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        });
        let servers = servers.as_table_like_mut().ok_or("`mcp_servers` is not a table")?;
        let server = servers.entry(self.name).or_insert_with(|| Item::Table(Table::new()));
        let server = server
            .as_table_like_mut()
            .ok_or_else(|| format!("`mcp_servers.{}` is not a table", self.name))?;
        // Other keys of the server, such as time limits, are the user's.
        server.insert("command", value(program));
        server.insert("args", value(args.iter().collect::<Array>()));
        Ok(file.to_string())
    }
}

/// Replaces a file, or creates it, so that it is either the old or the new one at any time. Keeps the old one as
/// `FILE.bak`.
fn replace_file(path: &Path, exists: bool, new: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let beside = |end: &str| {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(end);
        path.with_file_name(name)
    };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    if exists {
        std::fs::copy(path, beside(".bak"))?;
    }
    let part = beside(&format!(".{}.part", std::process::id()));
    let written = (|| {
        // Configurations may contain keys.
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&part)?;
        file.write_all(new.as_bytes())?;
        if exists {
            file.set_permissions(path.metadata()?.permissions())?;
        }
        file.sync_all()?;
        std::fs::rename(&part, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(client: McpClient) -> ClientEntry<'static> {
        static COMMAND: std::sync::LazyLock<Vec<String>> = std::sync::LazyLock::new(|| {
            ["/bin/longhaul", "mcp", "--team", "/my teams/a.yaml"].map(str::to_owned).to_vec()
        });
        ClientEntry { client, name: "longhaul", command: &COMMAND }
    }

    #[test]
    fn a_json_configuration_keeps_everything_else_byte_by_byte() {
        let old = "{\"z\": 1.50,\n \"mcpServers\": {\"other\":   {\"command\":\"x\"}}, \"a\": [1,  2]}";
        let new = entry(McpClient::Claude).add_to(old).unwrap();
        assert!(new.contains("\"z\": 1.50,") && new.contains("\"a\": [1,  2]"), "{new}");
        assert!(new.contains("\"other\": {\"command\":\"x\"}"), "{new}");
        assert!(
            new.find("\"z\"") < new.find("\"mcpServers\"") && new.find("\"mcpServers\"") < new.find("\"a\"")
        );
        let read: Value = serde_json::from_str(&new).unwrap();
        assert_eq!(read["mcpServers"]["longhaul"]["args"], json!(["mcp", "--team", "/my teams/a.yaml"]));
        assert_eq!(entry(McpClient::Claude).add_to(&new).unwrap(), new, "a second time changes nothing");
    }

    #[test]
    fn each_client_finds_the_server_where_it_looks() {
        for (client, pointer) in [
            (McpClient::Claude, "/mcpServers/longhaul/command"),
            (McpClient::Cursor, "/mcpServers/longhaul/command"),
            (McpClient::Vscode, "/servers/longhaul/command"),
            (McpClient::Opencode, "/mcp/longhaul/command/0"),
        ] {
            let new: Value = serde_json::from_str(&entry(client).add_to("").unwrap()).unwrap();
            assert_eq!(new.pointer(pointer), Some(&json!("/bin/longhaul")), "{client:?}");
        }
    }

    #[test]
    fn a_toml_configuration_keeps_comments_and_other_keys() {
        let old = "# mine\nmodel = \"x\" # the best\n\n[mcp_servers.longhaul]\ncommand = \"old\"\ntool_timeout_sec = 9\n";
        let new = entry(McpClient::Codex).add_to(old).unwrap();
        assert!(new.starts_with("# mine\nmodel = \"x\" # the best\n"), "{new}");
        assert!(new.contains("command = \"/bin/longhaul\"") && new.contains("tool_timeout_sec = 9"), "{new}");
        assert_eq!(entry(McpClient::Codex).add_to(&new).unwrap(), new);
        assert!(entry(McpClient::Codex).add_to("").unwrap().starts_with("[mcp_servers.longhaul]\n"));
    }

    #[test]
    fn a_broken_configuration_is_refused_and_says_where() {
        for (client, old, word) in [
            (McpClient::Claude, "{\"a\": 1,", "line 1"),
            (McpClient::Claude, "[]", "JSON object"),
            (McpClient::Claude, "{\"mcpServers\": 3}", "mcpServers"),
            (McpClient::Opencode, "{ // a comment\n}", "line 1"),
            (McpClient::Codex, "[a\n", "line 1"),
            (McpClient::Codex, "mcp_servers = 3", "mcp_servers"),
        ] {
            let error = entry(client).add_to(old).unwrap_err();
            assert!(error.contains(word), "{old}: {error}");
        }
    }

    #[test]
    fn the_old_file_is_kept_beside_the_new_one_with_its_permissions() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/c.json");
        replace_file(&path, false, "one").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        replace_file(&path, true, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::read_to_string(path.with_file_name("c.json.bak")).unwrap(), "one");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 2, "nothing is left lying");
    }
}
