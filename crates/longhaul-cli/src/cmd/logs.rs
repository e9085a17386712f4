//! `longhaul logs`.

use futures::StreamExt as _;
use longhaul::id::Seq;
use longhaul::journal::pages;
use longhaul::snapshot::{Event, EventKind, EventProjector};

use super::CliContext;
use crate::args::LogsArgs;
use crate::exit::{CliError, CliExitCode};
use crate::view::{EventDetail, EventFormatter, TerminalOutput};

/// How many events to write at once.
const PAGE: usize = 1000;

pub(super) async fn run(context: &CliContext, args: &LogsArgs) -> Result<CliExitCode, CliError> {
    let longhaul = context.client().await?;
    let id = longhaul.find(&args.id).await?;
    let mut formatter =
        EventFormatter::new(context.term, EventDetail::Full).with_data_dir(&context.data_dir()?);
    let mut tell = |events: Vec<Event>| -> Result<(), CliError> {
        let lines: Result<Vec<String>, CliError> = match args.json {
            true => events.iter().map(TerminalOutput::to_json_line).collect(),
            false => Ok(events.iter().flat_map(|event| formatter.format_event(event)).collect()),
        };
        context.term.print_lines(&lines?)
    };
    let (mut printer, mut after, mut ended) = (EventProjector::new(id), Seq(0), false);
    let mut pages = std::pin::pin!(pages(&**longhaul.store(), id, after));
    while let Some(page) = pages.next().await {
        let page = page?;
        after = page.last().map_or(after, |record| record.seq);
        let events: Vec<Event> = page.iter().flat_map(|record| printer.project(record)).collect();
        ended |= events.iter().any(|event| matches!(event.kind, EventKind::Finished { .. }));
        tell(events)?;
    }
    if args.follow && !ended {
        let mut events = longhaul.events_from(printer, after).ready_chunks(PAGE);
        while let Some(events) = events.next().await {
            tell(events.into_iter().collect::<Result<_, _>>()?)?;
        }
    }
    super::mark_read(&longhaul, id).await;
    Ok(CliExitCode::Success)
}
