//! `longhaul resume`.

use std::collections::HashSet;
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use jiff::Timestamp;
use longhaul::agent::Nobody;
use longhaul::entry::TeamRef;
use longhaul::store::{Filter, Health, Store, StoreError};
use longhaul::supervisor::LonghaulBuilder;
use longhaul::task::Head;
use longhaul::teamfile::Outfit;
use longhaul::worker::TeamLoader as _;
use longhaul::{Budget, Longhaul, TaskId, Team};

use super::Desk;
use super::run::{bounds, priced};
use crate::args::{Outside, ResumeArgs, Unattended};
use crate::carrier::{self, CarryOptions};
use crate::carry::{Carry, Manner};
use crate::demo::{self, Pace};
use crate::exit::{Code, Trouble};
use crate::heard;
use crate::holder;
use crate::place::Place;
use crate::project::{project_of, project_of_run};
use crate::team::{self, Kept};
use crate::trust::agreed;
use crate::verdict::verdict;
use crate::view::{Ink, clean, many, one_line};

pub(super) async fn run(desk: &Desk, args: &ResumeArgs) -> Result<Code, Trouble> {
    let since =
        Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap_or(Timestamp::UNIX_EPOCH);
    let place = desk.place()?;
    let more = bounds(args.max_tokens, args.max_cost)?;
    let store = place.open()?;
    let team = demo::team(args.pace).map_err(super::demo::broken)?;
    let known = team.reference().clone();

    let mut damaged = store.check(Filter::default().live(), true).await?;
    damaged.extend(store.check(Filter::newest(Health::NEWEST), true).await?);
    let loader = Kept::new(args.pace, team::outfit(desk, &args.outside, &place)?);
    let (named, asked) = asked(&*store, &args.ids).await?;
    let others = match args.ids.is_empty() && !args.all {
        true => match of_other_projects(desk, args, &place, &*store).await? {
            Some(others) => others,
            // Somebody was asked, and wants none of them.
            None => return Ok(Code::Fine),
        },
        false => HashSet::new(),
    };
    let is_asked =
        |root: &TaskId| asked.as_ref().is_none_or(|asked| asked.contains(root)) && !others.contains(root);
    let owned = taken(desk, &place, &*store, is_asked).await?;
    let mut roots: Vec<TaskId> = Vec::new();
    let mut open = 0;
    let mut left: IndexMap<TaskId, String> = IndexMap::new();
    for damage in damaged.into_iter().filter(|damage| is_asked(&damage.root)) {
        let told = format!("{} cannot be loaded: {}. Its tree is left as it is", damage.task, damage.why);
        left.entry(damage.root).or_insert(told);
    }
    let mut unloadable = !left.is_empty();
    for Head { id, root, team, .. } in store.list(Filter::default().live()).await? {
        if !is_asked(&root) || left.contains_key(&root) {
            continue;
        }
        if owned.contains(&root) {
            // Whoever runs some of a tree sees to all of it.
            left.insert(
                root,
                format!("{root} is run by another process; watch it with:  {}", place.attach(root)),
            );
        } else if let Some(why) = unknown(&*store, &team, &known, &loader).await? {
            unloadable |= team != known && matches!(team, TeamRef::File(_));
            roots.retain(|other| *other != root);
            left.insert(root, format!("{id} {}", clean(&why)));
        } else {
            open += 1;
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
    }
    for line in left.values() {
        desk.note(line);
    }
    if roots.is_empty() {
        if !args.json {
            desk.term.line(&nothing(&place, &*store, asked.as_ref(), !left.is_empty(), more).await?)?;
        }
        // Not as if it had been done.
        return match asked {
            _ if unloadable => Ok(Code::Store),
            _ if !left.is_empty() => Ok(Code::Failed),
            Some(asked) => ended_as(store, asked).await,
            None => Ok(Code::Fine),
        };
    }
    let undone = asked.is_some() && !left.is_empty();
    if !more.is_open() {
        let client = Longhaul::client(store.clone()).await?;
        for root in &roots {
            if more.cost.is_some() {
                priced_tree(&*store, *root, &loader).await?;
            }
            client.add_budget(*root, more).await?;
        }
        client.shutdown().await;
    }

    let mut subjects = Vec::new();
    for root in &roots {
        subjects.extend(heard::subjects(&store.list(Filter::tree(*root)).await?, *root, &named));
    }
    if args.detach {
        let done = detached(desk, args, &place, &roots).await;
        return match done? {
            Code::Fine if unloadable => Ok(Code::Store),
            Code::Fine if undone => Ok(Code::Failed),
            code => Ok(code),
        };
    }
    let attended = std::io::stdin().is_terminal() && desk.term.live && !args.json;
    let people = People { nobody: args.unattended.map(Into::into), ask_timeout: args.ask_timeout, attended };
    let hands = Hands::start(desk, &place, store, &roots, &args.outside, team, args.pace, people).await?;
    let which: Vec<String> = roots.iter().map(|root| desk.term.paint(Ink::Id, &root.to_string())).collect();
    let intro = vec![format!("Carrying on {} of {}", many(open, "task"), which.join(", ")), String::new()];
    let manner = if args.json { Manner::Json } else { Manner::Told };
    let needs_nobody = args.unattended == Some(Unattended::Stop) && !attended;
    let (timeout, fail_on_denied) = (args.timeout, args.fail_on_denied);
    let carry = Carry::new(desk, &place, hands.longhaul, roots);
    let carry = Carry { since, manner, intro, subjects, needs_nobody, timeout, fail_on_denied, ..carry };
    let done = carry.on().await;
    team::close(&hands.outfit).await;
    // Not as if all had been done that was asked for.
    match done {
        Ok(Code::Fine) if unloadable => Ok(Code::Store),
        Ok(Code::Fine) if undone => Ok(Code::Failed),
        done => done,
    }
}

/// The trees that other processes run. What may be free in a moment is waited for.
async fn taken(
    desk: &Desk,
    place: &Place,
    store: &dyn Store,
    is_asked: impl Fn(&TaskId) -> bool,
) -> Result<HashSet<TaskId>, Trouble> {
    let owned = holder::owned(store).await?;
    let wanted: HashSet<TaskId> = owned.iter().copied().filter(is_asked).collect();
    if wanted.is_empty() {
        return Ok(owned);
    }
    let still = holder::wait_until_free(store, place, &wanted, |text| desk.note(text)).await?;
    Ok(owned.into_iter().filter(|root| !wanted.contains(root) || still.contains(root)).collect())
}

/// What trees that have ended say of themselves: they need not be carried on.
async fn ended_as(store: Arc<dyn Store>, roots: HashSet<TaskId>) -> Result<Code, Trouble> {
    let longhaul = Longhaul::client(store).await?;
    let roots: Vec<TaskId> = roots.into_iter().collect();
    let mut heads = Vec::new();
    for root in &roots {
        heads.extend(longhaul.snapshots(Filter::tree(*root)).await?);
    }
    let verdict = verdict(&longhaul, &heads, &roots).await;
    longhaul.shutdown().await;
    Ok(verdict?.0)
}

/// The runs of other projects, which are left alone. Where there are none of this one, whoever is at the terminal is asked
/// about the others (`None` if that was all), and elsewhere it is an error that names them.
async fn of_other_projects(
    desk: &Desk,
    args: &ResumeArgs,
    place: &Place,
    store: &dyn Store,
) -> Result<Option<HashSet<TaskId>>, Trouble> {
    let here = project_of(Path::new("."));
    let mut roots: IndexMap<TaskId, Head> = IndexMap::new();
    for head in store.list(Filter::default().live()).await? {
        roots.entry(head.root).or_insert(head);
    }
    let mut others: IndexMap<TaskId, String> = IndexMap::new();
    for (root, head) in &roots {
        let project = project_of_run(store, *root).await;
        if let Some(project) = project.filter(|project| *project != here) {
            let told = format!("{root}  {}  in {}", one_line(&head.headline), project.display());
            others.insert(*root, clean(&told));
        }
    }
    let which: HashSet<TaskId> = others.keys().copied().collect();
    let runs = many(others.len(), "run");
    if others.is_empty() {
        return Ok(Some(which));
    }
    let all = place.command("resume --all");
    if others.len() < roots.len() {
        desk.note(&format!("{runs} of other projects left as they are; carry on all with:  {all}"));
        return Ok(Some(which));
    }
    desk.note(&format!("nothing to resume in {}; of other projects there are:", here.display()));
    others.values().for_each(|line| desk.note(&format!("  {line}")));
    let on_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && !args.json;
    if on_terminal && agreed(&format!("Carry on {runs}? [y/N] "))? {
        return Ok(Some(HashSet::new()));
    }
    if !on_terminal {
        let what =
            format!("nothing was resumed: no run of this project is open, and {runs} of other projects are");
        let one = place.command("resume ID");
        return Err(
            Trouble::new(Code::Usage, what).hint(format!("carry one on with `{one}`, or all with `{all}`"))
        );
    }
    desk.note(&format!("carry one on with:  {}", place.command("resume ID")));
    desk.note(&format!("or all of them with:  {all}"));
    Ok(None)
}

/// Hands each run to a process in the background.
async fn detached(desk: &Desk, args: &ResumeArgs, place: &Place, roots: &[TaskId]) -> Result<Code, Trouble> {
    for root in roots {
        let options = CarryOptions {
            unattended: args.unattended.unwrap_or(Unattended::Wait),
            ask_timeout: args.ask_timeout,
            timeout: args.timeout,
            ..CarryOptions::new(&args.outside)
        };
        carrier::start(place, *root, options).await?;
        if args.json {
            desk.term.json(&serde_json::json!({ "task": root }))?;
            continue;
        }
        desk.term.line(&root.to_string())?;
        desk.note(&format!("it goes on in the background; watch it with:  {}", place.attach(*root)));
    }
    Ok(Code::Fine)
}

/// Who answers what tasks ask, and for how long that is waited for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct People {
    /// What becomes of it when nobody is there, where that is not left to the agents.
    pub(super) nobody: Option<Nobody>,
    pub(super) ask_timeout: Option<Duration>,
    /// Whether somebody is at the terminal.
    pub(super) attended: bool,
}

impl People {
    pub(super) fn tell(self, mut builder: LonghaulBuilder) -> LonghaulBuilder {
        builder = builder.attended(self.attended);
        if let Some(nobody) = self.nobody {
            builder = builder.when_nobody(nobody);
        }
        match self.ask_timeout {
            Some(time) => builder.ask_timeout(time),
            None => builder,
        }
    }
}

/// What carries on trees that others left: any team whose file is in the store, and the demo's.
pub(super) struct Hands {
    pub(super) longhaul: Longhaul,
    pub(super) outfit: Outfit,
}

impl Hands {
    #[expect(clippy::too_many_arguments, reason = "what a process is made of, said once")]
    pub(super) async fn start(
        desk: &Desk,
        place: &Place,
        store: Arc<dyn Store>,
        roots: &[TaskId],
        outside: &Outside,
        demo: Team,
        pace: Pace,
        people: People,
    ) -> Result<Hands, Trouble> {
        let outfit = team::outfit(desk, outside, place)?;
        let mut builder = super::builder(demo).loader(Kept::new(pace, outfit.clone()));
        for root in roots {
            builder = builder.tree(*root);
        }
        // Bounds are a process's, not a tree's: several trees have the usual ones.
        if let [root] = roots
            && let Some(head) = store.head(*root).await?
            && let Some(limits) = team::limits(&*store, &head.team, &outfit).await?
        {
            builder = builder.limits(limits);
        }
        builder = people.tell(builder);
        let longhaul = builder.store_arc(store).start().await?;
        Ok(Hands { longhaul, outfit })
    }
}

/// That a limit of cost can be kept to by the team of a tree.
pub(super) async fn priced_tree(store: &dyn Store, root: TaskId, loader: &Kept) -> Result<(), Trouble> {
    let Some(Head { team: TeamRef::File(digest), .. }) = store.head(root).await? else { return Ok(()) };
    let Some(file) = store.kept(digest).await? else { return Ok(()) };
    // What does not load is told by whoever runs it.
    loader.load(&file).map_or(Ok(()), |team| priced(&team))
}

/// Why this program cannot run tasks of a team, if that is so: it runs the demo's, and those whose file or script is kept
/// in the store.
pub(super) async fn unknown(
    store: &dyn Store,
    team: &TeamRef,
    demo: &TeamRef,
    loader: &Kept,
) -> Result<Option<String>, Trouble> {
    let TeamRef::File(digest) = team else {
        return Ok((team != demo).then(|| format!("is of {team}, which this program does not know")));
    };
    let name = team::name(store, team).await;
    Ok(match store.kept(digest.clone()).await {
        Ok(Some(file)) if !Kept::knows(&file) => {
            Some(format!("is of {name}, which this program does not know"))
        }
        Ok(Some(file)) => loader
            .load(&file)
            .err()
            .map(|error| format!("cannot be run here: its {name} does not load: {error}")),
        Ok(None) => Some(format!("cannot be loaded: its team ({team}) is not in the database")),
        Err(error @ StoreError::Damaged { .. }) => Some(format!("cannot be loaded: {error}")),
        Err(error) => return Err(error.into()),
    })
}

/// The tasks that were asked for, and their trees; all, if `None`.
async fn asked(store: &dyn Store, ids: &[String]) -> Result<(Vec<TaskId>, Option<HashSet<TaskId>>), Trouble> {
    if ids.is_empty() {
        return Ok((Vec::new(), None));
    }
    let (mut named, mut roots) = (Vec::new(), HashSet::new());
    for typed in ids {
        let id = store.find(typed).await?;
        named.push(id);
        roots.extend(store.head(id).await?.map(|head| head.root));
    }
    Ok((named, Some(roots)))
}

/// Why there is nothing to do.
async fn nothing(
    place: &Place,
    store: &dyn Store,
    asked: Option<&HashSet<TaskId>>,
    some: bool,
    more: Budget,
) -> Result<String, Trouble> {
    if some {
        return Ok("There is nothing that this process could carry on.".to_owned());
    }
    let Some(asked) = asked else {
        return Ok("There is nothing to resume: every task has ended.".to_owned());
    };
    let mut told = Vec::new();
    for root in asked {
        if let Some(Head { id, status, headline, .. }) = store.head(*root).await? {
            told.push(format!("{id} has ended ({status}): {}", one_line(&headline)));
            told.push(match more.is_open() {
                true => format!("To continue it, write to it: {}", place.send(id)),
                false => {
                    let command =
                        place.command(&format!("run --session {id} PROMPT --max-tokens N --max-cost N"));
                    format!("To continue it with another limit: {command}")
                }
            });
        }
    }
    Ok(told.join("\n"))
}
