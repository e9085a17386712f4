//! The servers, as they are named to the pool.

use longhaul::toolset::McpServer;

use crate::mcp::npm::installed;

/// The file that Node runs.
pub(crate) fn script(server: &str) -> String {
    let file = installed().join(format!("node_modules/@modelcontextprotocol/server-{server}/dist/index.js"));
    file.to_str().unwrap().to_owned()
}

pub(crate) fn server<'a>(name: &str, args: impl IntoIterator<Item = &'a str>) -> McpServer {
    let args = std::iter::once(script(name)).chain(args.into_iter().map(str::to_owned));
    McpServer::command("node", args).named(name)
}
