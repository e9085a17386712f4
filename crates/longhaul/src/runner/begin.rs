//! Begins a run: loads the task, opens its worktree and its tools.

use std::sync::Arc;

use super::deferred_entries::DeferredEntries;
use super::ledger::Ledger;
use super::load_task::{ClaimedRun, continued_tasks, load_task};
use super::startup::{RunStart, TaskStartup};
use super::worktime::{Stopwatch, max_unwritten};
use super::{Halt, OpenTools, RunContext, RunLease, Seat, TaskRun, Worktree, system_prompt};
use crate::agent::{Agent, Policy, Team};
use crate::conversation::Conversation;
use crate::entry::{EntryKind, Failure, FailureKind, Isolation, Order, Submission};
use crate::id::{AgentName, Seq, TaskId};
use crate::journal;
use crate::permission::{Permissions, Rights};
use crate::store::{EntryKinds, Store, StoreError};
use crate::task::TaskState;

impl TaskRun {
    /// Starts the run of a claimed task.
    pub(crate) async fn begin(
        context: Arc<RunContext>,
        team: Arc<Team>,
        task: ClaimedRun,
        seat: Seat,
        lease: RunLease,
        start: RunStart,
    ) -> Result<Box<TaskRun>, Halt> {
        let (claimed, fresh_journal) = task.into_parts();
        let attempt = claimed.attempt;
        let foreign = EntryKinds::from_kinds([
            EntryKind::Letter,
            EntryKind::StopRequested,
            EntryKind::Answered,
            EntryKind::Backgrounded,
            EntryKind::BudgetSet,
            // Another worker owns, or owned, the task.
            EntryKind::Released,
            EntryKind::Finished,
        ]);
        let subscription = Arc::new(context.subscriptions.for_tasks(&[claimed.id], foreign));
        // Read after subscribing, so that nothing is missed in between.
        let now = journal::state(&*context.store, claimed.id).await?;
        let journal = match fresh_journal {
            Some(journal) if now.seq == claimed.seq => journal,
            _ => journal::read_all(&*context.store, claimed.id, Seq(0)).await?,
        };
        let (state, conversation, submitted) =
            load_task(&*context.store, &team, claimed.id, &journal).await?;
        if state.attempt != attempt || state.worker != claimed.worker {
            return Err(Halt::Lost);
        }
        let last_kind = journal.last().map_or(EntryKind::Claimed, |record| record.entry.kind());
        let agent = find_agent(&team, &conversation)?;
        let policy = policy_for(&agent, &submitted.order);
        // From here on there are effects outside of the journal: worktrees are created, servers started.
        ensure_claim_held(&*context.store, &claimed, &lease).await?;
        // The time until now, from the claim on, is still to be counted, also if some of it is in the journal already.
        let stopwatch = Stopwatch::new(claimed.worked, policy.timeout, start.since);
        let mut starting = TaskStartup::new(&context, &subscription, &state, stopwatch.deadline(), &lease);
        starting.ticket = start.ticket;
        let worktree = match policy.isolation {
            Isolation::None => None,
            Isolation::Worktree => match starting.wait(open_worktree(&context, &submitted)).await? {
                Some(worktree) => Some(Box::new(worktree?)),
                None => None,
            },
        };
        let handed_over = submitted.order.agent.as_ref().is_some_and(|first| *first != agent.name);
        // An agent that can hand its conversation over may have got it back from one that launched tasks.
        let may_launch = handed_over || !(agent.sub_agents.is_empty() && agent.handoffs.is_empty());
        let kept = may_launch.then(|| context.submissions.remember(state.id, submitted.clone()));
        let (mut order, above) = (submitted.order, submitted.above);
        let rights = rights_for(&team, &above, Some(&agent), &order);
        if let Some(worktree) = &worktree {
            order.working_dir = Some(worktree.dir.clone());
        }
        let prepared = starting
            .wait(open_agent_tools(&context, &team, &agent, &order, state.root))
            .await?
            .transpose()?;
        // A task with a stop request takes no step, and needs no tools.
        let (open_tools, system, notices) =
            prepared.unwrap_or_else(|| (Arc::new(OpenTools::none(&agent)), Arc::from(""), Vec::new()));
        let (recheck_at, start_ticket) = (starting.recheck_at(), starting.ticket.take());
        let ledger = Ledger::open(&context, &state, &order, policy.budget).await?;
        let limit = policy.timeout.into_iter().chain(ledger.time_limit_for(state.id)).min();
        let unwritten = limit.map(max_unwritten);
        Ok(Box::new(TaskRun {
            context,
            team,
            seat,
            start_ticket,
            subscription,
            lease,
            attempt,
            state,
            order,
            worktree,
            git_answers: true,
            conversation,
            agent,
            previous_agents: Vec::new(),
            policy,
            tools: open_tools,
            previous_tools: None,
            system,
            readable_outputs: 0,
            rights,
            above,
            stopwatch,
            unwritten,
            people_subscription: None,
            recheck_at,
            last_kind,
            ledger,
            memo: Arc::default(),
            deferred: DeferredEntries::default(),
            may_launch,
            _submitted: kept,
            end_hook_input: None,
            background_hooks: None,
            tool_notices: notices,
            open_agent: None,
        }))
    }
}

/// Opens an agent's tools and builds its system prompt. If this is dropped, everything it has started ends.
pub(super) async fn open_agent_tools(
    context: &RunContext,
    team: &Team,
    agent: &Agent,
    order: &Order,
    root: TaskId,
) -> Result<(Arc<OpenTools>, Arc<str>, Vec<String>), StoreError> {
    let open_tools = context.tool_cache.get_or_open(team, agent).await;
    let (mut open_tools, mut notices) = open_tools.for_tree(&*context.store, root).await?;
    notices.extend(open_tools.missing.iter().cloned());
    if let Some(names) = &order.tools {
        open_tools = Arc::new(open_tools.restricted_to(names));
    }
    let system = system_prompt::build_system_prompt(
        &open_tools,
        agent,
        context.store.now(),
        order.working_dir.clone(),
    )
    .await;
    Ok((open_tools, system, notices))
}

pub(super) fn policy_for(agent: &Agent, order: &Order) -> Policy {
    let mut policy = agent.policy.clone();
    if let Some(turns) = order.max_turns {
        policy.max_turns = turns;
    }
    policy.isolation = order.isolation.unwrap_or(policy.isolation);
    policy.timeout = order.timeout.or(policy.timeout);
    policy.on_finish = order.on_finish.unwrap_or(policy.on_finish);
    policy
}

/// The rights of an agent below others; without an agent, those of the others alone.
pub(super) fn rights_for(
    team: &Team,
    above: &[AgentName],
    agent: Option<&Agent>,
    order: &Order,
) -> Option<Arc<Rights>> {
    let mut levels: Vec<Arc<Permissions>> = Vec::new();
    for level in
        above.iter().chain(agent.map(|agent| &agent.name)).filter_map(|name| team.permissions_for(name))
    {
        if !levels.iter().any(|had| Arc::ptr_eq(had, &level)) {
            levels.push(level);
        }
    }
    (!levels.is_empty()).then(|| Arc::new(Rights { levels, approved: order.approved }))
}

pub(super) fn find_agent(team: &Team, conversation: &Conversation) -> Result<Arc<Agent>, Halt> {
    let name = conversation.agent();
    team.agent(name).cloned().ok_or_else(|| {
        let message = format!("{} has no agent '{name}' any more", team.reference());
        Halt::Fail(Failure::new(FailureKind::Team, message))
    })
}

/// Returns once the attempt that claimed a task certainly owns it.
pub(super) async fn ensure_claim_held(
    store: &dyn Store,
    claimed: &TaskState,
    lease: &RunLease,
) -> Result<(), Halt> {
    while !lease.is_held() {
        lease.wait_for_renewal().await;
        let term = lease.current_term();
        let now = journal::state(store, claimed.id).await?;
        if now.attempt != claimed.attempt || now.worker != claimed.worker {
            return Err(Halt::Lost);
        }
        lease.confirm_term(term);
    }
    Ok(())
}

/// The name of the worktree that a task has, if it has one: that of the first task that it continues.
async fn worktree_name(store: &dyn Store, submitted: &Submission) -> Result<String, StoreError> {
    let mut key = submitted.key.clone();
    if let Some(first) = continued_tasks(store, submitted.continues).await?.last() {
        key = journal::read_submission(store, *first).await?.key;
    }
    // The longest id: no task of another store shares it either.
    Ok(key.candidate_ids().last().map(|id| id.to_string()).unwrap_or_default())
}

/// The directory and the name with which the worktree of a task is found.
#[cfg(feature = "toolsets")]
pub(crate) async fn worktree_of(
    store: &dyn Store,
    submitted: &Submission,
) -> Result<Option<(std::path::PathBuf, String)>, StoreError> {
    let Some(origin) = submitted.order.working_dir.clone() else { return Ok(None) };
    Ok(Some((origin, worktree_name(store, submitted).await?)))
}

/// The worktree of a task, or of the first task that it continues.
pub(super) async fn open_worktree(context: &RunContext, submitted: &Submission) -> Result<Worktree, Halt> {
    let failed = |why: String| Halt::Fail(Failure::new(FailureKind::Place, why));
    let Some(dir) = &submitted.order.working_dir else {
        return Err(failed(
            "isolation: worktree needs a working directory, and the order has none".to_owned(),
        ));
    };
    let name = worktree_name(&*context.store, submitted).await?;
    Worktree::open_or_create(dir, &name, &context.worktrees).await.map_err(|error| failed(error.to_string()))
}
