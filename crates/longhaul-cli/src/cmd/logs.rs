//! `longhaul logs`.

use futures::StreamExt as _;
use longhaul::id::Seq;
use longhaul::snapshot::{Event, Narrator};

use super::Desk;
use crate::args::LogsArgs;
use crate::exit::{Code, Trouble};
use crate::view::{Detail, Teller, Term};

/// How many entries are read, and how many events are written, at once.
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
    if args.follow {
        // What is there already comes in large pieces, what happens then as it happens.
        let mut events = longhaul.events(id, Seq(0)).ready_chunks(PAGE);
        while let Some(events) = events.next().await {
            tell(events.into_iter().collect::<Result<_, _>>()?)?;
        }
    } else {
        let mut narrator = Narrator::new(id);
        let mut after = Seq(0);
        loop {
            let page = longhaul.store().read(id, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            tell(page.iter().flat_map(|record| narrator.tell(record)).collect())?;
        }
    }
    super::looked_at(&longhaul, id).await;
    Ok(Code::Fine)
}
