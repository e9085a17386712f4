//! The `longhaul` command: run, watch and steer background agents from a terminal.

mod args;
mod presenter;
mod background;
mod run_session;
mod cmd;
mod demo;
mod exit;
mod seen_events;
mod serve_lock;
mod tree_owner;
mod keyboard;
mod notify;
mod open_files;
mod provider_setup;
mod data_dir;
mod project;
mod signals;
mod store_address;
mod team;
mod trust;
mod tui;
mod run_exit_code;
mod view;

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = helper() {
        return code;
    }
    if let Some(code) = cmd::complete() {
        return code;
    }
    // Before anything else is read or opened.
    if std::env::args_os().skip(1).eq(["mcp", "--task"]) {
        return cmd::forward_task_tools();
    }
    let cli =
        args::parse(args::with_default_command(std::env::args_os())).unwrap_or_else(|error| error.exit());
    let out = cli.command.progress_stream();
    let context = cmd::CliContext {
        data: cli.data,
        store: cli.store,
        term: view::TerminalOutput::for_stream(out),
        screen: view::LiveRegion::on_stream(out),
    };
    // The TUI owns the whole screen, and log lines would garble it.
    if !matches!(cli.command, args::CliCommand::Tui(_)) {
        log(&context.screen);
    }
    // Before threads are started: one arena for two cores is as fast as eight for each, and keeps less memory that nobody uses.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    longhaul_malloc::limit_arenas(cores / 2);
    let ended = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // As much as the main thread has: a team file may be nested deeply.
        .thread_stack_size(8 << 20)
        .build()
        .map_err(|error| {
            exit::CliError::new(exit::CliExitCode::Failed, format!("cannot start threads: {error}"))
        })
        .and_then(|runtime| {
            // As a task: a future that the main thread polls itself costs a thread switch each time it is woken.
            let command = runtime.spawn(async move { cmd::run(&context, cli.command).await });
            let ended = runtime.block_on(command).unwrap_or_else(|error| match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(exit::CliError::new(exit::CliExitCode::Failed, error.to_string())),
            });
            // Do not wait for a write that is blocked because the reader has stopped reading.
            runtime.shutdown_timeout(std::time::Duration::from_millis(200));
            ended
        });
    match ended {
        Ok(code) => code.into(),
        Err(error) => {
            use std::io::Write as _;
            // If stderr cannot be written either, there is nothing left to do.
            let text = view::TerminalOutput::for_stream(view::OutputStream::Stderr)
                .wrap(error.to_string().trim_end());
            let _ = if text.is_empty() { Ok(()) } else { writeln!(std::io::stderr(), "{text}") };
            error.code.into()
        }
    }
}

/// Runs the hidden helper modes: `sandbox_exec` confines this process and executes a command, the supervisor
/// watches over one. Must run before a second thread starts.
#[cfg(target_os = "linux")]
fn helper() -> Option<ExitCode> {
    use std::io::Write as _;
    let mut args = std::env::args_os().skip(1);
    let word = args.next()?;
    let why = if word == longhaul::toolset::SANDBOX_EXEC {
        longhaul::toolset::sandbox_exec(args)
    } else if word == longhaul::process::SUPERVISE_COMMAND {
        longhaul::process::run_supervisor(args)
    } else {
        return None;
    };
    let _ = writeln!(std::io::stderr(), "longhaul: {why}");
    // The exit code that a shell uses for a command that cannot be executed.
    Some(ExitCode::from(126))
}

/// Sends logs to stderr. `RUST_LOG` selects them; the default is errors only.
fn log(screen: &view::LiveRegion) {
    use tracing_subscriber::filter::{EnvFilter, LevelFilter};
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::ERROR.into());
    let filter = match std::env::var_os("RUST_LOG") {
        Some(_) => filter.from_env_lossy(),
        // We report server failures ourselves; set `RUST_LOG` to see the protocol's own errors.
        None => filter.parse_lossy("error,rmcp=off"),
    };
    let color = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let screen = screen.clone();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(color)
        .with_writer(move || screen.clone())
        .init();
}
