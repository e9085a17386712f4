//! `longhaul demo`.

use std::path::Path;

use jiff::Timestamp;
use longhaul::Order;
use longhaul::entry::TeamRef;
use longhaul::model::scripted::Script;

use super::Desk;
use crate::args::DemoArgs;
use crate::carry::{Carry, Manner};
use crate::demo;
use crate::exit::{Code, Trouble};
use crate::view::{Ink, clean};

pub(super) async fn run(desk: &Desk, args: &DemoArgs) -> Result<Code, Trouble> {
    let here = std::env::current_dir().map_err(|error| {
        Trouble::new(Code::Failed, format!("the current directory cannot be used: {error}"))
            .hint("change to a directory that exists")
    })?;
    let since =
        Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap_or(Timestamp::UNIX_EPOCH);
    let place = desk.place()?;
    let own = args.script.as_deref().map(read).transpose()?;
    let store = place.open()?;
    let team = match own {
        None => demo::team(args.pace).map_err(broken)?,
        Some((script, text)) => {
            let digest = store.keep(demo::kept(&text)).await?;
            demo::play(script, args.pace).map_err(|why| broken(why.into()))?.kept_as(TeamRef::File(digest))
        }
    };
    let longhaul = super::builder(team).store_arc(store).own_trees_only().start().await?;
    let root = longhaul.submit(Order::new("lead", demo::TASK).working_dir(&here)).await?;
    let term = desk.term;
    let what = format!(
        "A scripted lead and four agents with real tools take stock of {}",
        clean(&here.display().to_string())
    );
    let intro = vec![
        term.wrapped(&what),
        format!("task    {}", term.paint(Ink::Id, &root.to_string())),
        format!("resume  {}", term.paint(Ink::Strong, &clean(&place.resume(root)))),
        term.paint(Ink::Faint, &term.wrapped("Kill it at any time: nothing is lost.")),
        String::new(),
    ];
    let manner = if args.json { Manner::Json } else { Manner::Told };
    let code = Carry { since, manner, intro, ..Carry::new(desk, &place, longhaul, vec![root]) }.on().await?;
    if code == Code::Fine && !args.json {
        term.line("")?;
        term.line("What next?")?;
        let next = [
            (place.show(root), "this run in full"),
            (place.command("tui"), "all tasks on one screen"),
            (place.command("init team.yaml"), "a team of your own, with a real model"),
        ];
        let width = next.iter().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
        for (command, what) in next {
            let command = format!("{:<width$}", clean(&command));
            term.line(&format!("  {}  {}", term.paint(Ink::Strong, &command), term.paint(Ink::Faint, what)))?;
        }
    }
    Ok(code)
}

/// A script that somebody else wrote.
fn read(path: &Path) -> Result<(Script, String), Trouble> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Trouble::new(Code::Usage, format!("the script {name} cannot be read: {error}"))
            .hint("without `--script` the demo plays its own")
    })?;
    let script = Script::parse(&name, &text).map_err(|error| {
        Trouble::new(Code::Usage, error.to_string()).hint("docs/scripted.md tells what can be in a script")
    })?;
    Ok((script, text))
}

/// The demo's own script is wrong: ours to mend, not the user's.
pub(super) fn broken(why: demo::NoDemo) -> Trouble {
    Trouble::new(Code::Failed, format!("the demo's team is broken, which is a fault in Longhaul: {why}"))
        .hint("please report it")
}
