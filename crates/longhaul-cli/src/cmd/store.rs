//! `longhaul store`: tables of PostgreSQL, and copies from one store into another.

use longhaul::store::{CopiedStore, StoreError, copy_store};

use super::CliContext;
use crate::args::{StoreArgs, StoreCommand};
use crate::data_dir::{self, DataDir};
use crate::exit::{CliError, CliExitCode};
use crate::tree_owner;
use crate::view::{format_count, pluralize};

pub(super) async fn run(context: &CliContext, args: &StoreArgs) -> Result<CliExitCode, CliError> {
    match &args.command {
        StoreCommand::Migrate => migrate(context).await,
        StoreCommand::Copy { from, to } => copy(context, from, to).await,
    }
}

async fn migrate(context: &CliContext) -> Result<CliExitCode, CliError> {
    let data_dir = context.data_dir()?;
    let done = match data_dir.postgres() {
        Some(url) => {
            data_dir::migrate_postgres(url).await?;
            format!("The tables of {} are up to date.", url.shown())
        }
        // A database file is brought up to date whenever it is opened.
        None => {
            drop(data_dir.open_store().await?);
            format!("{} is up to date.", data_dir.database.display())
        }
    };
    context.term.print_line(&context.term.wrap(&done))?;
    Ok(CliExitCode::Success)
}

async fn copy(context: &CliContext, from: &str, to: &str) -> Result<CliExitCode, CliError> {
    let (from, to) = (named(context, from)?, named(context, to)?);
    let (from_name, to_name) = (from.store_name(), to.store_name());
    if from_name == to_name {
        return Err(CliError::new(CliExitCode::Usage, format!("{from_name} cannot be copied into itself")));
    }
    if from.postgres().is_none() && !from.database.is_file() {
        return Err(CliError::new(CliExitCode::Store, format!("there is no database {from_name}")));
    }
    let (source, target) = (from.open_store().await?, to.open_store().await?);
    for (store, name) in [(&source, &from_name), (&target, &to_name)] {
        if let Some(root) = tree_owner::owned_trees(&**store).await?.into_iter().min() {
            let what = format!("a process runs tasks of {name} now, for example {root}");
            return Err(CliError::new(CliExitCode::Failed, what).with_hint(
                "stop `longhaul serve` and running teams first; interrupted tasks go on in the copy",
            ));
        }
    }
    let mut told = std::time::Instant::now();
    let progress = |copied: &CopiedStore| {
        if told.elapsed() >= std::time::Duration::from_secs(2) {
            told = std::time::Instant::now();
            context.note(&format!(
                "{} tasks, {} entries …",
                format_count(copied.tasks),
                format_count(copied.entries)
            ));
        }
    };
    let copied = copy_store(&*source, &*target, progress).await.map_err(|error| match error {
        StoreError::Database { what, .. } if what.contains("not empty") => CliError::new(
            CliExitCode::Failed,
            format!("{to_name} has tasks or lists already, and stays as it is"),
        )
        .with_hint("name an empty store to copy into"),
        error => {
            let failed: CliError = error.into();
            CliError::new(failed.code, format!("the copy is not complete: {}", failed.message()))
                .with_hint(format!("empty {to_name} before you try again; {from_name} was not changed"))
        }
    })?;
    let tasks = pluralize(usize::try_from(copied.tasks).unwrap_or(usize::MAX), "task");
    let released = match copied.released {
        0 => String::new(),
        released => format!("; {} interrupted, and wait to be resumed", format_count(released)),
    };
    let text = format!(
        "{tasks} with {} entries copied from {from_name} to {to_name}{released}.",
        format_count(copied.entries)
    );
    context.term.print_line(&context.term.wrap(&text))?;
    Ok(CliExitCode::Success)
}

/// The store that an argument names; `-` is the one of the other flags.
fn named(context: &CliContext, typed: &str) -> Result<DataDir, CliError> {
    match typed {
        "-" => context.data_dir(),
        typed => DataDir::with_store(context.data.as_deref(), Some(typed), None),
    }
}
