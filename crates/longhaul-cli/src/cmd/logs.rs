//! `longhaul logs`.

use futures::StreamExt as _;
use longhaul::id::Seq;
use longhaul::snapshot::{Event, Happening, Narrator};
use longhaul::store::pages;

use super::Desk;
use crate::args::LogsArgs;
use crate::exit::{Code, Trouble};
use crate::view::{Detail, Teller, Term};

/// How many events are written at once.
const PAGE: usize = 1000;

pub(super) async fn run(desk: &Desk, args: &LogsArgs) -> Result<Code, Trouble> {
    let longhaul = desk.client().await?;
    let id = longhaul.find(&args.id).await?;
    let mut teller = Teller::new(desk.term, Detail::All).at(&desk.place()?);
    let mut tell = |events: Vec<Event>| -> Result<(), Trouble> {
        let lines: Result<Vec<String>, Trouble> = match args.json {
            true => events.iter().map(Term::as_json).collect(),
            false => Ok(events.iter().flat_map(|event| teller.tell(event)).collect()),
        };
        desk.term.lines(&lines?)
    };
    let (mut narrator, mut after, mut ended) = (Narrator::new(id), Seq(0), false);
    let mut pages = std::pin::pin!(pages(&**longhaul.store(), id, after));
    while let Some(page) = pages.next().await {
        let page = page?;
        after = page.last().map_or(after, |record| record.seq);
        let events: Vec<Event> = page.iter().flat_map(|record| narrator.tell(record)).collect();
        ended |= events.iter().any(|event| matches!(event.what, Happening::Finished { .. }));
        tell(events)?;
    }
    if args.follow && !ended {
        let mut events = longhaul.events_with(narrator, after).ready_chunks(PAGE);
        while let Some(events) = events.next().await {
            tell(events.into_iter().collect::<Result<_, _>>()?)?;
        }
    }
    super::looked_at(&longhaul, id).await;
    Ok(Code::Fine)
}
