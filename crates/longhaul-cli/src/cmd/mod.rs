//! The commands, one file each.

mod answer;
mod attach;
mod carry;
mod check;
mod demo;
mod doctor;
mod export;
mod init;
mod logs;
mod prune;
mod resume;
mod retry;
mod run;
mod send;
mod shell;
mod show;
mod stop;
mod tasks;
mod wait;

pub(crate) use shell::complete;

use std::path::PathBuf;

use longhaul::task::Head;
use longhaul::{Longhaul, TaskId};

use crate::args::{AttachArgs, Command, Outside, ResumeArgs};
use crate::carrier::{self, CarryOptions};
use crate::exit::{Code, Trouble};
use crate::holder;
use crate::place::Place;
use crate::view::{Screen, Term};

/// What every command has before it.
pub(crate) struct Desk {
    /// Where the database is, if that was said.
    pub(crate) data: Option<PathBuf>,
    /// Standard output.
    pub(crate) term: Term,
    /// The live block on it.
    pub(crate) screen: Screen,
}

impl Desk {
    /// Where the database is.
    pub(crate) fn place(&self) -> Result<Place, Trouble> {
        Place::of(self.data.as_deref())
    }

    /// One who watches and steers, but runs nothing.
    async fn client(&self) -> Result<Longhaul, Trouble> {
        Ok(Longhaul::client(self.place()?.open()?).await?)
    }

    /// Says something that is not the output.
    pub(crate) fn note(&self, text: &str) {
        use std::io::Write as _;
        // If standard error is closed, nobody wants to know.
        let _ = writeln!(std::io::stderr(), "{}", crate::view::clean(text));
    }
}

/// A Longhaul of this program. How long a process that says nothing keeps its tasks can be said in the environment.
fn builder(team: longhaul::Team) -> longhaul::supervisor::LonghaulBuilder {
    let builder = Longhaul::builder(team);
    let lease = std::env::var("LONGHAUL_LEASE").ok().and_then(|seconds| seconds.trim().parse::<f64>().ok());
    match lease.and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok()) {
        Some(lease) if !lease.is_zero() => builder.lease(lease),
        _ => builder,
    }
}

/// Notes that somebody has looked at a task that has ended, so that `longhaul prune` need not keep it. Where that cannot be
/// noted, looking was still fine.
async fn looked_at(longhaul: &Longhaul, id: longhaul::TaskId) {
    let _ = longhaul.look_at(id).await;
}

/// Has a process in the background carry on the tree of a task, unless somebody runs it. Whether one was started.
async fn hand_over(
    longhaul: &Longhaul,
    place: &Place,
    head: &Head,
    outside: &Outside,
) -> Result<bool, Trouble> {
    let owned = holder::owned(&**longhaul.store()).await?.contains(&head.root);
    if owned || carrier::of(place, head.root).is_some() {
        return Ok(false);
    }
    carrier::start(place, head.root, CarryOptions::new(outside)).await?;
    Ok(true)
}

/// Says who carries on what was written down. That it is written down holds, though nobody could be started.
fn told_who_runs(
    desk: &Desk,
    place: &Place,
    head: &Head,
    background: Result<bool, Trouble>,
) -> Result<(), Trouble> {
    match background {
        Ok(true) => {
            let watch = place.attach(head.root);
            desk.note(&format!("it goes on in the background; watch it with:  {watch}"));
        }
        Ok(false) => {}
        Err(trouble) => {
            desk.note(&format!("nobody runs it now: {}", trouble.what()));
            desk.term.line(&format!("run it with:  {}", place.resume(head.id)))?;
        }
    }
    Ok(())
}

/// Stays with these tasks until they have ended: carries their trees on, or watches whoever does.
async fn stay(
    desk: &Desk,
    longhaul: &Longhaul,
    tasks: Vec<TaskId>,
    outside: &Outside,
    json: bool,
) -> Result<Code, Trouble> {
    let place = desk.place()?;
    let (mut free, mut code) = (Vec::new(), Code::Fine);
    for task in tasks {
        let root = longhaul.head(task).await?.root;
        let owned = holder::owned(&**longhaul.store()).await?.contains(&root);
        if owned || carrier::of(&place, root).is_some() {
            let watched = attach::run(desk, &AttachArgs { id: task.to_string(), json }).await?;
            code = if code == Code::Fine { watched } else { code };
        } else {
            free.push(task.to_string());
        }
    }
    if !free.is_empty() {
        let carried = resume::run(desk, &ResumeArgs::of(free, outside.clone(), json)).await?;
        code = if code == Code::Fine { carried } else { code };
    }
    Ok(code)
}

/// Does what was typed.
pub(crate) async fn run(desk: &Desk, command: Command) -> Result<Code, Trouble> {
    match command {
        Command::Run(args) => run::run(desk, &args).await,
        Command::Demo(args) => demo::run(desk, &args).await,
        Command::Tui(args) => crate::tui::run(desk, args).await,
        Command::Tasks(args) => tasks::run(desk, &args).await,
        Command::Show(args) => show::run(desk, &args).await,
        Command::Logs(args) => logs::run(desk, &args).await,
        Command::Send(args) => send::run(desk, &args).await,
        Command::Answer(args) => answer::run(desk, &args).await,
        Command::Retry(args) => retry::run(desk, &args).await,
        Command::Export(args) => export::run(desk, &args).await,
        Command::Prune(args) => prune::run(desk, &args).await,
        Command::Wait(args) => wait::run(desk, &args).await,
        Command::Stop(args) => stop::run(desk, &args).await,
        Command::Resume(args) => resume::run(desk, &args).await,
        Command::Attach(args) => attach::run(desk, &args).await,
        Command::Carry(args) => carry::run(desk, &args).await,
        Command::Check(args) => check::run(desk, &args).await,
        Command::Doctor(args) => doctor::run(desk, &args).await,
        Command::Completions(args) => shell::completions(desk, &args),
        Command::Man(args) => shell::man(desk, &args),
        Command::Schema(args) => check::schema(desk, args.of),
        Command::Init(args) => init::run(desk, &args),
    }
}
