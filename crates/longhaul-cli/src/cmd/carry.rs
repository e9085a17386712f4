//! `longhaul carry`, which nobody types: a process in the background that carries a tree on.

use std::collections::HashSet;

use longhaul::TaskId;
use longhaul::store::{Filter, Store};

use super::Desk;
use super::resume::{Hands, People, unknown};
use crate::args::{CarryArgs, Unattended};
use crate::carrier::{self, Begun, Signed};
use crate::carry::{Carry, Manner};
use crate::demo;
use crate::exit::{Code, Trouble};
use crate::holder;
use crate::place::Place;
use crate::signals::Signals;
use crate::team::{self, Kept};
use crate::view::clean;

pub(super) async fn run(desk: &Desk, args: &CarryArgs) -> Result<Code, Trouble> {
    // A session of its own: neither Ctrl-C nor the end of the terminal reaches it.
    #[cfg(unix)]
    let _ = nix::unistd::setsid();
    // From the beginning: whoever knows of us may ask us to drain.
    let signals = Signals::listen()?;
    let place = desk.place()?;
    let begun = begin(desk, args, &place).await;
    match &begun {
        Ok(_) => Begun::Carrying.say(),
        Err(trouble) => Begun::not(trouble).say(),
    }
    let (hands, signed) = begun?;
    let needs_nobody = args.unattended == Unattended::Stop;
    let carry = Carry {
        manner: Manner::Silent,
        needs_nobody,
        timeout: args.timeout,
        ..Carry::new(desk, &place, hands.longhaul, vec![args.root])
    };
    let done = carry.heeding(signals).await;
    team::close(&hands.outfit).await;
    drop(signed);
    let log = carrier::log(&place, args.root);
    // Nothing went wrong: nothing is left.
    if done.is_ok() && log.metadata().is_ok_and(|log| log.len() == 0) {
        let _ = std::fs::remove_file(log);
    }
    done
}

async fn begin(desk: &Desk, args: &CarryArgs, place: &Place) -> Result<(Hands, Option<Signed>), Trouble> {
    let store = place.open()?;
    let root = args.root;
    let tree = store.list(Filter::tree(root).live()).await?;
    let Some(task) = tree.first() else { return Err(nothing(place, &*store, root).await?) };
    let signed = carrier::sign(place, root);
    let was_owned = holder::owned(&*store).await?.contains(&root);
    let owned = match was_owned {
        // Nobody is there to be told what is waited for.
        true => {
            holder::wait_until_free(&*store, place, &HashSet::from([root]), |_| {}).await?.contains(&root)
        }
        false => signed.is_none() && carrier::of(place, root).is_some(),
    };
    if owned {
        return Err(Trouble::new(Code::Failed, format!("{root} is run by another process already"))
            .hint(format!("watch it: {}", place.attach(root))));
    }
    let demo = demo::team(args.pace).map_err(super::demo::broken)?;
    if let Some(damage) = store.check(Filter::tree(root), true).await?.into_iter().next() {
        let what = format!("{} cannot be loaded: {}", damage.task, damage.why);
        return Err(Trouble::new(Code::Store, what).hint("`longhaul doctor` checks the whole database"));
    }
    let loader = Kept::new(args.pace, team::outfit(desk, &args.outside, place)?);
    if let Some(why) = unknown(&*store, &task.team, demo.reference(), &loader).await? {
        let what = format!("{root} {}", clean(&why));
        return Err(Trouble::new(Code::Failed, what).hint("the program that has made the team can run it"));
    }
    let people =
        People { nobody: Some(args.unattended.into()), ask_timeout: args.ask_timeout, attended: false };
    let hands = Hands::start(desk, place, store, &[root], &args.outside, demo, args.pace, people).await?;
    Ok((hands, signed))
}

async fn nothing(place: &Place, store: &dyn Store, root: TaskId) -> Result<Trouble, Trouble> {
    Ok(match store.head(root).await? {
        Some(head) => Trouble::new(
            Code::Failed,
            format!("{root} has ended ({}): there is nothing to carry on", head.status),
        )
        .hint(format!("to continue it, write to it: {}", place.send(root))),
        None => Trouble::new(Code::NotFound, format!("there is no task {root}"))
            .hint("`longhaul tasks` lists them"),
    })
}
