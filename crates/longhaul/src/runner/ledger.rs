//! The budget ledger: what a task, and the trees it is part of, may use. Checked before each model call.

use std::sync::Arc;
use std::time::Duration;

use super::spending::{Spent, TreeTotal};
use super::worktime::max_unwritten;
use super::{Halt, RunContext};
use crate::entry::{Budget, Entry, Failure, FailureKind, Order, Record, Submission};
use crate::id::TaskId;
use crate::journal;
use crate::model::Model;
use crate::store::{Store, StoreError};
use crate::task::TaskState;

/// The budgets that limit a task: its own, and those of the trees that it is in.
pub(super) struct Ledger {
    own: Budget,
    trees: Vec<TreeBudget>,
    /// The submissions of the tasks above, kept alive because other tasks below them need them too.
    _above: Vec<Arc<Submission>>,
}

/// The budget of a tree.
struct TreeBudget {
    top: TaskId,
    budget: Budget,
    total: Arc<TreeTotal>,
}

impl Ledger {
    /// Finds, once, the budgets that apply. A tree's budget is in the order of the tree's top task, and in
    /// its journal if a person has changed it since.
    pub(super) async fn open(
        context: &RunContext,
        state: &TaskState,
        order: &Order,
        policy: Budget,
    ) -> Result<Ledger, StoreError> {
        let store = &*context.store;
        let mut ledger = Ledger { own: order.budget.and(policy), trees: Vec::new(), _above: Vec::new() };
        ledger.add(context, state.id, state.budget_set.or(order.tree_budget));
        let mut above = state.parent;
        while let Some(id) = above {
            let submitted = context.submissions.get(store, id).await?;
            let set = store.task_state(id).await?.map(|state| state.budget_set).unwrap_or_default();
            ledger.add(context, id, set.or(submitted.order.tree_budget));
            above = submitted.parent;
            ledger._above.push(submitted);
        }
        Ok(ledger)
    }

    /// Rejects a model without known prices if the cost is limited.
    pub(super) fn check_price(&self, model: &dyn Model) -> Result<(), Halt> {
        match model.unpriced_model().filter(|_| self.limits_cost()) {
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

    /// Whether any budget limits the cost.
    pub(super) fn limits_cost(&self) -> bool {
        self.own.cost.is_some() || self.trees.iter().any(|tree| tree.budget.cost.is_some())
    }

    /// The shortest time limit in the budgets of the task itself and of the tree below it.
    pub(super) fn time_limit_for(&self, task: TaskId) -> Option<Duration> {
        let trees = self.trees.iter().filter(|tree| tree.top == task).map(|tree| &tree.budget);
        trees.chain([&self.own]).filter_map(|budget| budget.time).min()
    }

    fn add(&mut self, context: &RunContext, top: TaskId, budget: Budget) {
        if !budget.is_open() {
            self.trees.push(TreeBudget { top, budget, total: context.spending.total(top) });
        }
    }

    /// Like [`report`](Self::report), for a task that has ended with these entries.
    pub(super) fn report_with(&self, state: &TaskState, entries: &[Entry]) {
        if self.trees.is_empty() {
            return;
        }
        let mut state = state.clone();
        for entry in entries {
            let record = Record { seq: state.seq, at: state.active, entry: entry.clone() };
            // The store has accepted it.
            let _ = state.apply(&record);
        }
        self.report(&state);
    }

    /// Reports what the task has used in all to the trees that it is in.
    pub(super) fn report(&self, state: &TaskState) {
        self.trees.iter().for_each(|tree| tree.total.report(state));
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
        let own = Spent { tokens: state.usage.total(), cost: state.cost, unpriced: state.unpriced };
        let spent = BudgetUsage { spent: own, time: worked, more };
        check_budget(&spent, &self.own, "this task has")?;
        for tree in &self.trees {
            let top = journal::state(store, tree.top).await?;
            let budget = top.budget_set.or(tree.budget);
            let time = match top.id == state.id {
                true => worked,
                // Another run counts that time, and writes it at least this often.
                false => top.worked_at(store.now(), budget.time.map(max_unwritten).unwrap_or_default()),
            };
            // Time is the top's own.
            let spent = match budget.tokens.is_some() || budget.cost.is_some() {
                true => tree.total.spent(store, &top).await?,
                false => Spent::default(),
            };
            check_budget(
                &BudgetUsage { spent, time, more },
                &budget,
                &format!("task {} and those below it have", top.id),
            )?;
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
    spent: Spent,
    time: Duration,
    /// Tokens that are about to be used.
    more: u64,
}

impl BudgetUsage {
    /// The limit that is reached, as text.
    fn exceeds(&self, budget: &Budget) -> Option<String> {
        let dollars = |micro: u64| micro as f64 / 1e6;
        if let Some(most) = budget.tokens.filter(|most| self.spent.tokens >= *most) {
            return Some(format!("{} tokens of {most}", self.spent.tokens));
        }
        if let Some(most) = budget.tokens.filter(|most| self.spent.tokens.saturating_add(self.more) > *most) {
            return Some(format!(
                "{} tokens of {most}, and what is asked would use about {} more",
                self.spent.tokens, self.more
            ));
        }
        if let Some(most) = budget.cost.filter(|most| self.spent.cost >= *most) {
            return Some(format!("${:.4} of ${:.4}", dollars(self.spent.cost), dollars(most)));
        }
        // A cost limit cannot be checked if costs are unknown.
        if let Some(most) = budget.cost.filter(|_| self.spent.unpriced > 0) {
            let replies = if self.spent.unpriced == 1 {
                "1 reply".to_owned()
            } else {
                format!("{} replies", self.spent.unpriced)
            };
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
            spent: Spent { tokens: 100, cost: 5, unpriced: 0 },
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
        let unknown = BudgetUsage { spent: Spent { unpriced: 1, ..spent.spent }, ..spent };
        assert!(
            unknown.exceeds(&Budget { cost: Some(6), ..open }).unwrap().contains("1 reply of unknown cost")
        );
        assert!(
            unknown.exceeds(&open).is_none() && spent.exceeds(&Budget { cost: Some(6), ..open }).is_none()
        );
        assert!(spent.exceeds(&Budget { time: Some(Duration::from_secs(10)), ..open }).is_none());
    }
}
