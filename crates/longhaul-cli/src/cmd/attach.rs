//! `longhaul attach`.

use jiff::Timestamp;
use longhaul::store::Filter;

use super::Desk;
use crate::args::AttachArgs;
use crate::carrier;
use crate::carry::{Carry, Manner};
use crate::exit::{Code, Trouble};
use crate::heard;
use crate::holder;
use crate::view::{Ink, many};

pub(super) async fn run(desk: &Desk, args: &AttachArgs) -> Result<Code, Trouble> {
    // A program that joins wants to know all that was; a person sees it in the block.
    let since = if args.json { Timestamp::UNIX_EPOCH } else { Timestamp::now() };
    let place = desk.place()?;
    let longhaul = desk.client().await?;
    let id = longhaul.find(&args.id).await?;
    let root = longhaul.head(id).await?.root;
    let open = longhaul.snapshots(Filter::tree(root).live()).await?;
    let subjects = heard::subjects(&longhaul.snapshots(Filter::tree(root)).await?, root, &[id]);
    if !open.is_empty()
        && !holder::owned(&**longhaul.store()).await?.contains(&root)
        && carrier::of(&place, root).is_none()
    {
        return Err(Trouble::new(Code::Failed, format!("nobody runs {root} now: there is nothing to watch"))
            .hint(format!("carry it on: {}", place.resume(root))));
    }
    let which = desk.term.paint(Ink::Id, &root.to_string());
    let intro = match open.len() {
        0 => Vec::new(),
        open => vec![
            format!("Watching {} of {which}; Ctrl-C leaves, and they go on", many(open, "task")),
            String::new(),
        ],
    };
    let manner = if args.json { Manner::Json } else { Manner::Told };
    let carry = Carry::new(desk, &place, longhaul, vec![root]);
    Carry { since, manner, ours: false, intro, subjects, ..carry }.on().await
}
