//! `longhaul logs`.

use futures::StreamExt as _;
use longhaul::id::Seq;
use longhaul::snapshot::Narrator;

use super::Desk;
use crate::args::LogsArgs;
use crate::exit::{Code, Trouble};
use crate::view::{Detail, Teller};

/// How many entries are read at once.
const PAGE: usize = 500;

pub(super) async fn run(desk: &Desk, args: &LogsArgs) -> Result<Code, Trouble> {
    let longhaul = desk.client().await?;
    let id = longhaul.find(&args.id).await?;
    let mut teller = Teller::new(desk.term, Detail::All).at(&desk.place()?);
    let mut tell = |event| -> Result<(), Trouble> {
        if args.json {
            return desk.term.json(&event);
        }
        teller.tell(&event).iter().try_for_each(|line| desk.term.line(line))
    };
    if args.follow {
        let mut events = longhaul.events(id, Seq(0));
        while let Some(event) = events.next().await {
            tell(event?)?;
        }
        return Ok(Code::Fine);
    }
    let mut narrator = Narrator::new(id);
    let mut after = Seq(0);
    loop {
        let page = longhaul.store().read(id, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(Code::Fine) };
        after = last.seq;
        for event in page.iter().flat_map(|record| narrator.tell(record)) {
            tell(event)?;
        }
    }
}
