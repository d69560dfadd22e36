//! How many GPUs sub-clusters should have, by kind, and what these cost.

use symphony_protocol::view::{AdviceView, View};

use crate::inspect::subclusters;

/// Sub-clusters with a budget that a terminal has lines for; `--once` and JSON have all.
pub(super) const BUDGETS_SHOWN: usize = 3;

/// The advice of a sub-cluster with a budget.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Budget {
    pub(super) subcluster: String,
    /// As in `symphony get subclusters`: kinds with what is there, prices, the budget, and why.
    words: String,
}

impl Budget {
    /// The line above the tables.
    pub(super) fn line(&self) -> String {
        format!("{} wants {}", self.subcluster, self.words)
    }
}

/// The advice in a cell: `0 h100, 9 t4: fleet`.
pub(super) fn in_short(advice: Option<&AdviceView>) -> String {
    let Some(advice) = advice else { return "-".to_owned() };
    let kinds: Vec<_> = advice.kinds.iter().map(|kind| format!("{} {}", kind.target, kind.kind)).collect();
    format!("{}: {}", kinds.join(", "), advice.reason)
}

/// Of each sub-cluster with a budget, in the order of their ids.
pub(super) fn budgets(view: &View) -> Vec<Budget> {
    let with_budget = view.subclusters.iter().filter(|(_, subcluster)| {
        let advice = subcluster.advice.as_ref();
        advice.is_some_and(|advice| advice.fleet.is_some())
    });
    with_budget
        .map(|(id, subcluster)| Budget {
            subcluster: subcluster.name.clone(),
            words: subclusters::advice(view, *id, subcluster),
        })
        .collect()
}

/// The lines of a terminal: of the one sub-cluster that is shown, or of the first few.
pub(super) fn lines(budgets: &[Budget], only: Option<&str>) -> Vec<String> {
    let shown: Vec<_> =
        budgets.iter().filter(|budget| only.is_none_or(|only| budget.subcluster == only)).map(Budget::line).collect();
    let Some(more) = shown.len().checked_sub(BUDGETS_SHOWN).filter(|&more| more > 0) else { return shown };
    let rest = format!("{more} more sub-clusters have a budget: mark one and press Enter, or `symphony top --once`");
    shown.into_iter().take(BUDGETS_SHOWN).chain([rest]).collect()
}

#[cfg(test)]
mod tests {
    use symphony_types::SubclusterId;

    use super::*;
    use crate::inspect::scene;

    #[test]
    fn a_budget_is_told_with_its_kinds_and_prices() {
        let mut view = scene::view();
        assert!(budgets(&view).is_empty(), "nobody was advised");
        for (id, subcluster) in &mut view.subclusters {
            subcluster.advice = Some(scene::advice(if id.get() == 1 { Some(12.0) } else { None }));
        }
        let pool = &view.subclusters[&SubclusterId::new(1)];
        assert_eq!(in_short(pool.advice.as_ref()), "2 a100, 9 t4: fleet");
        assert_eq!(in_short(None), "-");
        let all = budgets(&view);
        let lines: Vec<_> = all.iter().map(Budget::line).collect();
        assert_eq!(
            lines,
            [
                "pool wants 2 of kind a100 at 2.5 (1 there, 1 on order), 9 of kind t4 at 0.35 (0 there, 9 on order): fleet; \
              8.15 of 12.00 per hour for 410 r/s at most, enough for 340 r/s by the need of 400"
            ]
        );
    }

    #[test]
    fn a_terminal_has_lines_for_a_few_and_says_how_many_more_there_are() {
        let budgets: Vec<_> = (0..BUDGETS_SHOWN + 2)
            .map(|number| Budget { subcluster: format!("s{number}"), words: "enough".to_owned() })
            .collect();
        let shown = lines(&budgets, None);
        assert_eq!((shown.len(), shown[0].as_str()), (BUDGETS_SHOWN + 1, "s0 wants enough"));
        assert!(shown[BUDGETS_SHOWN].starts_with("2 more sub-clusters"), "{shown:?}");
        assert_eq!(lines(&budgets[..BUDGETS_SHOWN], None).len(), BUDGETS_SHOWN);
        assert_eq!(lines(&budgets, Some("s4")), ["s4 wants enough"]);
    }
}
