//! Which models a lead may serve: GPUs of a sub-cluster hold the same models (docs/adr/0006).

use std::collections::BTreeSet;

use symphony_types::ModelId;

/// What this choice needs to know about a linked backend.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackendHoldings {
    /// Its GPUs run batches of this lead.
    pub(crate) in_use: bool,
    /// It accepts new work: it is neither cordoned nor drained.
    pub(crate) takes_work: bool,
    /// The models that it has loaded.
    pub(crate) holds: BTreeSet<ModelId>,
}

/// The `waiting` models that can be served besides `served`.
///
/// Two rules. (1) Every backend in use holds the model. (2) At least one backend holds it together with all served
/// models. After a take-over no backend is in use yet, and rule 1 is empty; without rule 2 a lead would then serve
/// models that no backend has, and no backend would ever hold all served models.
///
/// Backends that take no work count only if no other backend takes work: a model that only they hold could not be
/// served, and would keep the backends without it out of use.
pub(crate) fn servable(
    served: &BTreeSet<ModelId>,
    waiting: impl IntoIterator<Item = ModelId>,
    backends: &[BackendHoldings],
) -> Vec<ModelId> {
    let nobody_takes_work = !backends.iter().any(|backend| backend.takes_work);
    let considered = || backends.iter().filter(|backend| backend.takes_work || nobody_takes_work);
    let mut able: Vec<_> = considered().filter(|backend| served.is_subset(&backend.holds)).collect();
    let mut chosen = Vec::new();
    for model in waiting {
        let in_use_hold = considered().all(|backend| !backend.in_use || backend.holds.contains(&model));
        let left: Vec<_> = able.iter().filter(|backend| backend.holds.contains(&model)).copied().collect();
        if in_use_hold && !left.is_empty() {
            chosen.push(model);
            able = left;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models(ids: &[u32]) -> BTreeSet<ModelId> {
        ids.iter().map(|&id| ModelId::new(id)).collect()
    }

    fn holdings(in_use: bool, holds: &[u32]) -> BackendHoldings {
        BackendHoldings { in_use, takes_work: true, holds: models(holds) }
    }

    fn drained(in_use: bool, holds: &[u32]) -> BackendHoldings {
        BackendHoldings { takes_work: false, ..holdings(in_use, holds) }
    }

    fn chosen(served: &[u32], waiting: &[u32], backends: &[BackendHoldings]) -> Vec<u32> {
        let chosen = servable(&models(served), models(waiting), backends);
        chosen.into_iter().map(ModelId::get).collect()
    }

    #[test]
    fn a_model_waits_for_every_backend_in_use_and_for_no_other() {
        let loading = [holdings(true, &[1, 2]), holdings(true, &[1])];
        assert_eq!(chosen(&[1], &[2], &loading), Vec::<u32>::new());
        let joining = [holdings(true, &[1, 2]), holdings(false, &[])];
        assert_eq!(chosen(&[1], &[2], &joining), [2]);
    }

    #[test]
    fn after_a_take_over_a_model_that_nobody_has_does_not_keep_the_others_from_being_served() {
        assert_eq!(chosen(&[], &[1, 2, 3], &[holdings(false, &[1, 3])]), [1, 3]);
    }

    #[test]
    fn while_the_only_backend_restarts_nothing_more_is_served() {
        assert_eq!(chosen(&[1], &[2], &[holdings(false, &[])]), Vec::<u32>::new());
        assert_eq!(chosen(&[1], &[2], &[]), Vec::<u32>::new());
    }

    #[test]
    fn a_backend_that_holds_everything_chosen_always_remains() {
        let apart = [holdings(false, &[1]), holdings(false, &[2])];
        assert_eq!(chosen(&[], &[1, 2], &apart), [1]);
    }

    #[test]
    fn a_backend_that_is_drained_keeps_no_other_out_of_use() {
        // A take-over while the second backend loads model 2, which only the drained one has.
        assert_eq!(chosen(&[], &[1, 2], &[drained(false, &[1, 2]), holdings(false, &[1])]), [1]);
        // A model does not wait for a drained backend either.
        assert_eq!(chosen(&[1], &[2], &[drained(true, &[1]), holdings(true, &[1, 2])]), [2]);
    }

    #[test]
    fn while_all_are_drained_what_they_have_stays_served() {
        let drained = [drained(false, &[1, 2]), drained(false, &[1])];
        assert_eq!(chosen(&[], &[1, 2], &drained), [1, 2]);
        assert_eq!(chosen(&[1], &[2], &[self::drained(true, &[1])]), Vec::<u32>::new());
    }
}
