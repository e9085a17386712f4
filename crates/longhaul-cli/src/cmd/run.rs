//! `longhaul run`.

use std::collections::{HashSet, VecDeque};
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use longhaul::dispatch::Limits;
use longhaul::entry::TeamRef;
use longhaul::store::{Store, StoreError};
use longhaul::supervisor::LonghaulBuilder;
use longhaul::teamfile::Outfit;
use longhaul::{Budget, Longhaul, Order, TaskId, Team};

use super::Desk;
use super::resume::{People, priced_tree, unknown};
use crate::args::{OnFinish, RunArgs, Unattended};
use crate::carrier::{self, CarryOptions, Turn};
use crate::carry::{Carry, Manner};
use crate::demo::{self, Pace};
use crate::exit::{Code, Trouble};
use crate::holder;
use crate::notify::Bell;
use crate::place::Place;
use crate::team::{self, Kept};
use crate::trust::Trust;
use crate::view::{Ink, Out, Term, clean};

pub(super) async fn run(desk: &Desk, args: &RunArgs) -> Result<Code, Trouble> {
    let dir = team::working_dir(args.working_dir.as_deref())?;
    let place = desk.place()?;
    let outfit = team::outfit(desk, &args.outside, &place)?;
    let Typed { team: file, prompt } = Typed::of(args);
    let Some(file) = file else { return go_on(desk, args, &place, &outfit, prompt).await };
    let made = team::make(desk, &outfit, args, file, &dir)?;
    // Before anything of the file is started or asked.
    Trust::of(&place, file, &made.bundle).ask(desk, args.trust)?;
    let mut prompts = prompts(args, prompt, &made.commands)?;
    let agent = match &args.agent {
        None => made.team.root().clone(),
        Some(name) => {
            team::known(&made.team, name, "--agent", file)?;
            name.as_str().into()
        }
    };
    let budget = budget(args, made.budget)?;
    team::somebody_to_ask(&made.team, &outfit).await?;
    if budget.cost.is_some() {
        priced(&made.team)?;
    }
    let store = place.open()?;
    let team = made.kept(&*store).await?;
    let run = Run { desk, args, place: &place, outfit: &outfit };
    if let Some(session) = &args.session {
        let done = run.session(team, made.limits, store, session, prompts).await;
        team::close(&outfit).await;
        return done;
    }
    let first = prompts.pop_front().unwrap_or_default();
    let mut order = Order::new(agent, first).working_dir(&dir).tree_budget(budget);
    if let Some(timeout) = args.timeout {
        order = order.timeout(timeout);
    }
    if let Some(policy) = args.on_finish {
        order = order.on_finish(policy.into());
    }
    if args.yolo {
        order = order.approve_all();
    }
    if args.detach {
        return run.detached(Longhaul::client(store).await?, team.reference().clone(), order, &prompts).await;
    }
    let since = now();
    let longhaul = run.builder(team, made.limits).store_arc(store).start().await?;
    let next = Some(prompts).filter(|more| !more.is_empty());
    if next.is_some() {
        order = order.interactive();
    }
    let root = longhaul.submit(order).await?;
    let done = run.carry(longhaul, root, since, next).await;
    team::close(&outfit).await;
    done
}

/// What the two words of the command line are: a session has a team of its own, so that the first may be its prompt.
struct Typed<'a> {
    team: Option<&'a Path>,
    prompt: Option<&'a str>,
}

impl Typed<'_> {
    fn of(args: &RunArgs) -> Typed<'_> {
        let (team, prompt) = (args.team.as_deref(), args.prompt.as_deref());
        let alone = team.filter(|team| args.session.is_some() && prompt.is_none() && !team.is_file());
        match alone.and_then(Path::to_str) {
            Some(prompt) => Typed { team: None, prompt: Some(prompt) },
            None => Typed { team, prompt },
        }
    }
}

/// Goes on with an earlier run without its file: its team is in the store.
async fn go_on(
    desk: &Desk,
    args: &RunArgs,
    place: &Place,
    outfit: &Outfit,
    prompt: Option<&str>,
) -> Result<Code, Trouble> {
    let session = args.session.as_deref().unwrap_or_default();
    if !args.model.is_empty() {
        return Err(Trouble::new(Code::Usage, "--model: another model needs the team file")
            .hint("longhaul run TEAM --session ID --model MODEL PROMPT"));
    }
    let demo = demo::team(Pace::default()).map_err(super::demo::broken)?;
    let store = place.open()?;
    let id = store.find(session).await?;
    let head = store.head(id).await?.ok_or(StoreError::NoTask(id))?;
    let loader = Kept::new(Pace::default(), outfit.clone());
    if let Some(why) = unknown(&*store, &head.team, demo.reference(), &loader).await? {
        return Err(Trouble::new(Code::Failed, format!("--session: {id} {}", clean(&why)))
            .hint("name the team file: longhaul run TEAM --session ID PROMPT"));
    }
    if args.max_cost.is_some() {
        priced_tree(&*store, head.root, &loader).await?;
    }
    let prompts = prompts(args, prompt, &team::kept_commands(&*store, &head.team).await?)?;
    let limits = team::limits(&*store, &head.team, outfit).await?.unwrap_or_default();
    let run = Run { desk, args, place, outfit };
    let done = run.session(demo, limits, store, session, prompts).await;
    team::close(outfit).await;
    done
}

/// The time, as precise as journals are.
fn now() -> Timestamp {
    Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A run on its way.
struct Run<'a> {
    desk: &'a Desk,
    args: &'a RunArgs,
    place: &'a Place,
    outfit: &'a Outfit,
}

impl Run<'_> {
    fn builder(&self, team: Team, limits: Limits) -> LonghaulBuilder {
        let people = People {
            nobody: Some(self.args.unattended.unwrap_or(Unattended::Deny).into()),
            ask_timeout: self.args.ask_timeout,
            attended: self.attended(),
        };
        people.tell(super::builder(team).limits(limits).own_trees_only())
    }

    /// Somebody at a terminal can answer what tasks ask; in a pipe nobody can, unless from another terminal.
    fn attended(&self) -> bool {
        std::io::stdin().is_terminal() && self.desk.term.live && !self.args.quiet && !self.args.json
    }

    fn manner(&self) -> Manner {
        match (self.args.json, self.args.quiet) {
            (true, _) => Manner::Json,
            (false, true) => Manner::Quiet,
            (false, false) => Manner::Told,
        }
    }

    async fn carry(
        &self,
        longhaul: Longhaul,
        root: TaskId,
        since: Timestamp,
        next: Option<VecDeque<String>>,
    ) -> Result<Code, Trouble> {
        let (term, args) = (self.desk.term, self.args);
        let intro = vec![
            format!("task    {}", term.paint(Ink::Id, &root.to_string())),
            format!("resume  {}", term.paint(Ink::Strong, &clean(&self.place.resume(root)))),
            String::new(),
        ];
        let leaves = (args.on_finish == Some(OnFinish::Detach)).then_some(&args.outside);
        let bell = Bell::new(args.notify, args.notify_after);
        let manner = self.manner();
        let carry = Carry::new(self.desk, self.place, longhaul, vec![root]);
        let needs_nobody = args.unattended == Some(Unattended::Stop) && !self.attended();
        let (timeout, fail_on_denied) = (args.timeout, args.fail_on_denied);
        let carry = Carry { since, manner, intro, next, leaves, bell, needs_nobody, ..carry };
        Carry { timeout, fail_on_denied, ..carry }.on().await
    }

    /// Goes on with an earlier run: each prompt is a letter to it, or to what has continued it.
    async fn session(
        &self,
        team: Team,
        limits: Limits,
        store: Arc<dyn Store>,
        session: &str,
        mut prompts: VecDeque<String>,
    ) -> Result<Code, Trouble> {
        let mut at = store.find(session).await?;
        // Until the end: whoever comes meanwhile is refused, and not answered with what another has asked.
        let _turn = match carrier::take_turn(self.place, beginning(&*store, at).await?) {
            Turn::Others { process } => {
                let who = process.map(|pid| format!("process {pid}")).unwrap_or("another process".to_owned());
                let what = format!("--session: {who} goes on with {session} now; your prompt was not sent");
                return Err(Trouble::new(Code::Usage, what).hint(format!(
                    "run it again when that has ended, or write to what runs: {}",
                    self.place.send(at)
                )));
            }
            ours => ours,
        };
        let mut code = Code::Fine;
        let budget = budget(self.args, Budget::default())?;
        while let Some(prompt) = prompts.pop_front() {
            let root = end(&*store, at).await?;
            let tell = |text: &str| self.desk.note(text);
            if holder::owned(&*store).await?.contains(&root)
                && !holder::wait_until_free(&*store, self.place, &HashSet::from([root]), tell)
                    .await?
                    .is_empty()
            {
                let what = format!("--session: {root} is run by another process");
                return Err(Trouble::new(Code::Usage, what).hint(format!(
                    "write to it: {}; watch it: {}",
                    self.place.send(root),
                    self.place.attach(root)
                )));
            }
            let since = now();
            let loader = Kept::new(Pace::default(), self.outfit.clone());
            let builder = self.builder(team.clone(), limits.clone()).tree(root).loader(loader);
            let longhaul = builder.store_arc(store.clone()).start().await?;
            let sent = longhaul.send_within(root, prompt, budget).await?;
            let head = longhaul.head(sent.to).await?;
            at = head.root;
            // A session that stays takes all of them; others are continued one by one.
            let next = head.interactive.then(|| std::mem::take(&mut prompts));
            code = self.carry(longhaul, at, since, next).await?;
            if code != Code::Fine {
                break;
            }
        }
        Ok(code)
    }

    /// Hands the order to a process in the background, and tells its id.
    async fn detached(
        &self,
        client: Longhaul,
        team: TeamRef,
        order: Order,
        more: &VecDeque<String>,
    ) -> Result<Code, Trouble> {
        let Run { desk, args, place, .. } = self;
        if !more.is_empty() {
            return Err(Trouble::new(Code::Usage, "--detach takes one prompt").hint(
                "the next ones can be sent when it has answered: longhaul run TEAM --session ID PROMPT",
            ));
        }
        let root = client.submit_to(team, order).await?;
        let options = CarryOptions {
            unattended: args.unattended.unwrap_or(Unattended::Wait),
            ask_timeout: args.ask_timeout,
            timeout: args.timeout,
            ..CarryOptions::new(&args.outside)
        };
        carrier::start(place, root, options).await?;
        if args.json {
            desk.term.json(&serde_json::json!({ "task": root }))?;
            return Ok(Code::Fine);
        }
        // The id, and nothing else: a script takes it from there.
        Term::of(Out::Stdout).line(&root.to_string())?;
        let watch = format!("it goes on in the background; watch it with:  {}", place.attach(root));
        desk.note(&watch);
        Ok(Code::Fine)
    }
}

/// The task with which the conversation of a task's root began.
async fn beginning(store: &dyn Store, task: TaskId) -> Result<TaskId, Trouble> {
    let mut at = store.head(task).await?.map_or(task, |head| head.root);
    while let Some(old) = store.head(at).await?.and_then(|head| head.continues) {
        at = store.head(old).await?.map_or(old, |head| head.root);
    }
    Ok(at)
}

/// The root that has the conversation of a task's root now.
async fn end(store: &dyn Store, task: TaskId) -> Result<TaskId, Trouble> {
    let mut at = store.head(task).await?.map_or(task, |head| head.root);
    while let Some(next) = store.head(at).await?.and_then(|head| head.continued_by) {
        at = store.head(next).await?.map_or(next, |head| head.root);
    }
    Ok(at)
}

/// All prompts, in turn.
fn prompts(
    args: &RunArgs,
    first: Option<&str>,
    commands: &[(String, String)],
) -> Result<VecDeque<String>, Trouble> {
    let first = (first.is_some() || args.prompts.is_empty()).then(|| prompt(first));
    let more = args.prompts.iter().map(|typed| prompt(Some(typed)));
    first.into_iter().chain(more).map(|prompt| expanded(&prompt?, commands)).collect()
}

/// What is to be done, wherever it is written.
fn prompt(typed: Option<&str>) -> Result<String, Trouble> {
    let nothing = || {
        Trouble::new(Code::Usage, "there is nothing to do: no prompt was given")
            .hint("longhaul run TEAM 'what to do'; `-` reads it from standard input, @FILE from a file")
    };
    let text = match typed {
        None if std::io::stdin().is_terminal() => return Err(nothing()),
        None | Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| {
                Trouble::new(Code::Usage, format!("the prompt cannot be read from standard input: {error}"))
            })?;
            text
        }
        Some(typed) => match typed.strip_prefix('@') {
            Some(path) => std::fs::read_to_string(path).map_err(|error| {
                Trouble::new(Code::Usage, format!("the prompt cannot be read from {path}: {error}"))
                    .hint("a prompt that begins with @ names a file; begin it with a space if it does not")
            })?,
            None => typed.to_owned(),
        },
    };
    if text.trim().is_empty() { Err(nothing()) } else { Ok(text) }
}

/// A prompt `/name more` is the instruction of the team's command of that name, and more.
fn expanded(prompt: &str, commands: &[(String, String)]) -> Result<String, Trouble> {
    let Some(typed) = prompt.strip_prefix('/') else { return Ok(prompt.to_owned()) };
    let (name, more) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    let command = commands.iter().find(|(known, _)| known == name);
    match command {
        Some((_, instruction)) if more.trim().is_empty() => Ok(instruction.clone()),
        Some((_, instruction)) => Ok(format!("{}\n\n{}", instruction.trim_end(), more.trim())),
        // A path, or any other text that begins like that, in a team without commands.
        None if commands.is_empty() || name.contains('/') => Ok(prompt.to_owned()),
        None => {
            let names: Vec<String> = commands.iter().map(|(name, _)| format!("/{name}")).collect();
            Err(Trouble::new(Code::Usage, format!("the team has no command '/{name}'")).hint(format!(
                "it has: {}; begin the prompt with a space if it is no command",
                names.join(", ")
            )))
        }
    }
}

/// The bounds of the command line, and where it has none, those of the file.
fn budget(args: &RunArgs, file: Budget) -> Result<Budget, Trouble> {
    if args.timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(nothing_within("--timeout"));
    }
    Ok(Budget { time: file.time, ..bounds(args.max_tokens, args.max_cost)?.or(file) })
}

fn nothing_within(flag: &str) -> Trouble {
    Trouble::new(Code::Usage, format!("{flag} is 0: nothing could be done within that"))
        .hint(format!("leave {flag} out for no bound"))
}

/// The bounds of the command line.
pub(super) fn bounds(max_tokens: Option<u64>, max_cost: Option<f64>) -> Result<Budget, Trouble> {
    if max_tokens == Some(0) {
        return Err(nothing_within("--max-tokens"));
    }
    let cost = match max_cost {
        Some(dollars) if !(dollars > 0.0 && dollars < 1e9) => {
            let what = format!("--max-cost is in dollars and above 0, not {dollars}");
            return Err(Trouble::new(Code::Usage, what).hint("leave --max-cost out for no bound"));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
        dollars => dollars.map(|dollars| (dollars * 1e6).ceil() as u64),
    };
    Ok(Budget { tokens: max_tokens, cost, time: None })
}

/// A limit of cost holds only where the cost of every model is known, or its provider tells it.
pub(super) fn priced(team: &Team) -> Result<(), Trouble> {
    let Some(name) = team.agents().find_map(|agent| agent.model.unpriced()) else { return Ok(()) };
    let what =
        format!("--max-cost (or max_cost of the team) cannot be kept to: the price of {name} is not known");
    Err(Trouble::new(Code::Usage, what).hint(format!(
        "give it with --prices FILE, in millionths of a dollar for a million tokens: {{\"{name}\": {{\"input\": …, \
         \"output\": …}}}} (0 and 0 for a model of your own), or leave the limit out"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_the_team_is_expanded() {
        let commands = [("fix".to_owned(), "Fix the tests.\n".to_owned())];
        let told = |prompt: &str| expanded(prompt, &commands).map_err(|error| error.to_string());
        assert_eq!(told("/fix"), Ok("Fix the tests.\n".to_owned()));
        assert_eq!(told("/fix only the slow ones"), Ok("Fix the tests.\n\nonly the slow ones".to_owned()));
        assert_eq!(told("fix"), Ok("fix".to_owned()));
        assert_eq!(told("/etc/passwd is what?"), Ok("/etc/passwd is what?".to_owned()));
        assert!(told("/fxi").is_err_and(|error| error.contains("it has: /fix")));
    }
}
