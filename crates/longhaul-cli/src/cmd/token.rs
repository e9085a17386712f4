//! `longhaul token` and `longhaul open`: who may use the server.

use longhaul_server::access::{AccessDir, AccessError};

use super::CliContext;
use crate::args::{OpenArgs, TokenArgs, TokenCommand};
use crate::exit::{CliError, CliExitCode};
use crate::serve_lock;
use crate::view::{OutputStream, TerminalOutput};

pub(super) fn run(context: &CliContext, args: &TokenArgs) -> Result<CliExitCode, CliError> {
    let data_dir = context.data_dir()?;
    let access = AccessDir::in_data_dir(data_dir.path());
    match &args.command {
        TokenCommand::Create { name, scope } => {
            let new = access.create(name, (*scope).into()).map_err(|error| access_failure(&error))?;
            // Only the token, so that scripts can use it.
            TerminalOutput::for_stream(OutputStream::Stdout).print_line(&new.secret)?;
            let revoke = data_dir.shell_command(&format!("token revoke {name}"));
            context.note(&format!(
                "token '{name}' with scope {}; it is not shown again. Revoke it with:  {revoke}",
                new.record.scope
            ));
        }
        TokenCommand::List { json } => {
            let tokens = access.list().map_err(|error| access_failure(&error))?;
            if tokens.is_empty() && !json {
                let create = data_dir.shell_command("token create NAME");
                context.note(&format!("there are no tokens; `longhaul serve` creates one, or: {create}"));
            }
            let width = tokens.iter().map(|token| token.name.len()).max().unwrap_or_default();
            for token in tokens {
                match json {
                    true => context.term.print_json(&token)?,
                    false => context.term.print_line(&format!(
                        "{:<width$}  {:<5}  created {}",
                        token.name,
                        token.scope.as_str(),
                        token.created
                    ))?,
                }
            }
        }
        TokenCommand::Revoke { name } => {
            access.revoke(name).map_err(|error| access_failure(&error))?;
            context.note(&format!("token '{name}' is revoked"));
        }
    }
    Ok(CliExitCode::Success)
}

/// Prints a link with a one-time code for a browser.
pub(super) fn open(context: &CliContext, args: &OpenArgs) -> Result<CliExitCode, CliError> {
    let data_dir = context.data_dir()?;
    let Some(url) = serve_lock::running_server(&data_dir).and_then(|server| server.url) else {
        let serve = data_dir.shell_command("serve --team FILE");
        return Err(CliError::new(CliExitCode::Failed, "no server runs with this database")
            .with_hint(format!("start one: {serve}")));
    };
    let access = AccessDir::in_data_dir(data_dir.path());
    let code = access.create_code(&args.token).map_err(|error| access_failure(&error))?;
    context.term.print_line(&format!("{url}/#code={code}"))?;
    context.note("the link works once, within 60 s");
    Ok(CliExitCode::Success)
}

pub(super) fn access_failure(error: &AccessError) -> CliError {
    let (code, hint) = match error {
        AccessError::NotPrivate { path, .. } => {
            (CliExitCode::Failed, format!("chmod go= {}", path.display()))
        }
        AccessError::NameTaken(name) => {
            (CliExitCode::Failed, format!("revoke it first: `longhaul token revoke {name}`"))
        }
        AccessError::Unknown { .. } => (CliExitCode::NotFound, "`longhaul token list` lists them".to_owned()),
        AccessError::BadName(_) => (CliExitCode::Usage, "such as: laptop, ci, phone-2".to_owned()),
        AccessError::Damaged { path, .. } => (
            CliExitCode::Failed,
            format!("remove {} and create the tokens again: `longhaul token create NAME`", path.display()),
        ),
        _ => return CliError::new(CliExitCode::Failed, error.to_string()),
    };
    CliError::new(code, error.to_string()).with_hint(hint)
}
