//! The budget ledger: what a task, and the trees it is part of, may use. Checked before each model call.

use std::sync::Arc;
use std::time::Duration;

use super::Halt;
use super::worktime::max_unwritten;
use crate::entry::{Budget, Failure, FailureKind, Order, Submission};
use crate::id::TaskId;
use crate::journal::{self, SubmissionCache};
use crate::message::Usage;
use crate::model::Model;
use crate::store::{Store, StoreError};
use crate::task::TaskState;

/// The budgets that limit a task: its own, and those of the trees that it is in.
pub(super) struct Ledger {
    own: Budget,
    trees: Vec<(TaskId, Budget)>,
    /// The submissions of the tasks above, kept alive because other tasks below them need them too.
    _above: Vec<Arc<Submission>>,
}

impl Ledger {
    /// Finds, once, the budgets that apply. A tree's budget is in the order of the tree's top task, and in
    /// its journal if a person has changed it since.
    pub(super) async fn open(
        store: &dyn Store,
        orders: &SubmissionCache,
        state: &TaskState,
        order: &Order,
        policy: Budget,
    ) -> Result<Ledger, StoreError> {
        let mut ledger = Ledger { own: order.budget.and(policy), trees: Vec::new(), _above: Vec::new() };
        ledger.add(state.id, state.budget_set.or(order.tree_budget));
        let mut above = state.parent;
        while let Some(id) = above {
            let submitted = orders.get(store, id).await?;
            let set = store.task_state(id).await?.map(|state| state.budget_set).unwrap_or_default();
            ledger.add(id, set.or(submitted.order.tree_budget));
            above = submitted.parent;
            ledger._above.push(submitted);
        }
        Ok(ledger)
    }

    /// Rejects a model without known prices if the cost is limited.
    pub(super) fn check_price(&self, model: &dyn Model) -> Result<(), Halt> {
        let limited = self.own.cost.is_some() || self.trees.iter().any(|(_, budget)| budget.cost.is_some());
        match model.unpriced_model().filter(|_| limited) {
            None => Ok(()),
            Some(name) => Err(Halt::Fail(Failure::new(
                FailureKind::Budget,
                format!(
                    "the price of {name} is not known, so the cost limit cannot be enforced: give the model a \
                     price, or remove max_cost"
                ),
            ))),
        }
    }

    /// The shortest time limit in the budgets of the task itself and of the tree below it.
    pub(super) fn time_limit_for(&self, task: TaskId) -> Option<Duration> {
        let trees = self.trees.iter().filter(|(top, _)| *top == task).map(|(_, budget)| budget);
        trees.chain([&self.own]).filter_map(|budget| budget.time).min()
    }

    fn add(&mut self, top: TaskId, budget: Budget) {
        if !budget.is_open() {
            self.trees.push((top, budget));
        }
    }

    /// Rejects the next model call if any budget is used up.
    pub(super) async fn check(
        &self,
        state: &TaskState,
        worked: Duration,
        store: &dyn Store,
    ) -> Result<(), Halt> {
        self.check_for(state, worked, store, 0).await
    }

    /// Like [`check`](Self::check), for a call with about this many input tokens: the rest of the budget must
    /// be enough for them.
    pub(super) async fn check_for(
        &self,
        state: &TaskState,
        worked: Duration,
        store: &dyn Store,
        more: u64,
    ) -> Result<(), Halt> {
        let (usage, cost, unpriced) = (state.usage, state.cost, state.unpriced);
        let spent = BudgetUsage { usage, cost, unpriced, time: worked, more };
        check_budget(&spent, &self.own, "this task has")?;
        if self.trees.is_empty() {
            return Ok(());
        }
        for (top, budget) in &self.trees {
            let top = journal::state(store, *top).await?;
            let budget = top.budget_set.or(*budget);
            let time = match top.id == state.id {
                true => worked,
                // Another run counts that time, and writes it at least this often.
                false => top.worked_at(store.now(), budget.time.map(max_unwritten).unwrap_or_default()),
            };
            let mut spent = BudgetUsage { time, more, ..BudgetUsage::default() };
            // Time is the top's own.
            let below = match budget.tokens.is_some() || budget.cost.is_some() {
                true => journal::tasks_below(store, &top).await?,
                false => Vec::new(),
            };
            for task in below.iter().chain([&top]) {
                spent.usage += task.usage;
                spent.cost = spent.cost.saturating_add(task.cost);
                spent.unpriced = spent.unpriced.saturating_add(task.unpriced);
            }
            check_budget(&spent, &budget, &format!("task {} and those below it have", top.id))?;
        }
        Ok(())
    }
}

fn check_budget(spent: &BudgetUsage, budget: &Budget, who: &str) -> Result<(), Halt> {
    match spent.exceeds(budget) {
        Some(what) => Err(Halt::Fail(Failure::new(FailureKind::Budget, format!("{who} used {what}")))),
        None => Ok(()),
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct BudgetUsage {
    usage: Usage,
    cost: u64,
    /// Replies whose cost is unknown.
    unpriced: u32,
    time: Duration,
    /// Tokens that are about to be used.
    more: u64,
}

impl BudgetUsage {
    /// The limit that is reached, as text.
    fn exceeds(&self, budget: &Budget) -> Option<String> {
        let dollars = |micro: u64| micro as f64 / 1e6;
        if let Some(most) = budget.tokens.filter(|most| self.usage.total() >= *most) {
            return Some(format!("{} tokens of {most}", self.usage.total()));
        }
        if let Some(most) = budget.tokens.filter(|most| self.usage.total().saturating_add(self.more) > *most)
        {
            return Some(format!(
                "{} tokens of {most}, and what is asked would use about {} more",
                self.usage.total(),
                self.more
            ));
        }
        if let Some(most) = budget.cost.filter(|most| self.cost >= *most) {
            return Some(format!("${:.4} of ${:.4}", dollars(self.cost), dollars(most)));
        }
        // A cost limit cannot be checked if costs are unknown.
        if let Some(most) = budget.cost.filter(|_| self.unpriced > 0) {
            let replies =
                if self.unpriced == 1 { "1 reply".to_owned() } else { format!("{} replies", self.unpriced) };
            return Some(format!(
                "{replies} of unknown cost, so the limit of ${:.4} cannot be kept to",
                dollars(most)
            ));
        }
        let most = budget.time.filter(|most| self.time >= *most)?;
        Some(format!("{:?} of {most:?}", self.time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_used_up_when_it_is_reached() {
        let spent = BudgetUsage {
            usage: Usage { input: 60, output: 40, ..Usage::default() },
            cost: 5,
            unpriced: 0,
            time: Duration::from_secs(9),
            more: 0,
        };
        let open = Budget::default();
        assert_eq!(spent.exceeds(&open), None);
        assert!(spent.exceeds(&Budget { tokens: Some(100), ..open }).is_some());
        assert!(spent.exceeds(&Budget { tokens: Some(101), ..open }).is_none());
        let big = BudgetUsage { more: 50, ..spent };
        assert!(big.exceeds(&Budget { tokens: Some(150), ..open }).is_none());
        assert!(big.exceeds(&Budget { tokens: Some(149), ..open }).unwrap().contains("about 50 more"));
        assert!(spent.exceeds(&Budget { cost: Some(5), ..open }).is_some());
        let unknown = BudgetUsage { unpriced: 1, ..spent };
        assert!(
            unknown.exceeds(&Budget { cost: Some(6), ..open }).unwrap().contains("1 reply of unknown cost")
        );
        assert!(
            unknown.exceeds(&open).is_none() && spent.exceeds(&Budget { cost: Some(6), ..open }).is_none()
        );
        assert!(spent.exceeds(&Budget { time: Some(Duration::from_secs(10)), ..open }).is_none());
    }
}
