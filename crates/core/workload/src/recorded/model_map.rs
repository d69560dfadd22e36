//! Which model a source of a trace maps to, under another name.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::RecordedArrivals;

/// Names that a message lists.
const LISTED_MAX: usize = 5;

/// What becomes of sources that no name is given for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// They keep their names.
    #[default]
    Keep,
    /// They are left out.
    LeaveOut,
    /// They are ranked by their arrivals, most first, and go to these models in turn: the first to the first, and
    /// behind the last model to the first again. So papers turn traces of functions into loads of models.
    Ranked(Vec<String>),
}

/// Which model each source is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelMap {
    /// By the source's name.
    pub named: BTreeMap<String, String>,
    /// All others.
    pub rest: Rest,
}

impl RecordedArrivals {
    /// Gives sources the names of models; sources of one model become one.
    ///
    /// # Errors
    /// If the map names a source that is not there, or nothing is left.
    pub fn map(&mut self, map: &ModelMap) -> Result<(), String> {
        let known: HashMap<&str, u32> = self.sources.iter().map(String::as_str).zip(0..).collect();
        if let Some(unknown) = map.named.keys().find(|name| !known.contains_key(name.as_str())) {
            let listed: Vec<_> = self.sources.iter().take(LISTED_MAX).map(String::as_str).collect();
            let more = self.sources.len() - listed.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            return Err(format!("the trace has no `{unknown}`; it has {}{more}", listed.join(", ")));
        }
        let mut models = super::Sources::default();
        let mut model_of: Vec<Option<u32>> = vec![None; self.sources.len()];
        for (source, name) in self.sources.iter().enumerate() {
            model_of[source] = match (map.named.get(name), &map.rest) {
                (Some(model), _) => Some(models.position(model)?),
                (None, Rest::Keep) => Some(models.position(name)?),
                (None, Rest::LeaveOut | Rest::Ranked(_)) => None,
            };
        }
        if let Rest::Ranked(ranked) = &map.rest {
            for (source, model) in self.by_popularity(&model_of).into_iter().zip(ranked.iter().cycle()) {
                model_of[source] = Some(models.position(model)?);
            }
        }
        self.rows.retain(|row| model_of[row.source as usize].is_some());
        if self.rows.is_empty() {
            return Err("no arrivals are left; expected some of what is mapped to models".to_owned());
        }
        for row in &mut self.rows {
            row.source = model_of[row.source as usize].unwrap_or(0);
        }
        self.sources = models.into_names();
        Ok(())
    }

    /// Sources without a model that have arrivals, most first; of equals the one that the trace names first.
    fn by_popularity(&self, model_of: &[Option<u32>]) -> Vec<usize> {
        let mut counts = vec![0_u64; self.sources.len()];
        for row in &self.rows {
            counts[row.source as usize] += 1;
        }
        let open = |&source: &usize| model_of[source].is_none() && counts[source] > 0;
        let mut sources: Vec<usize> = (0..counts.len()).filter(open).collect();
        sources.sort_by_key(|&source| Reverse(counts[source]));
        sources
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read() -> RecordedArrivals {
        RecordedArrivals::from_csv("time_s,model\n1,a\n2,b\n3,b\n4,c\n5,c\n6,c\n").unwrap()
    }

    fn mapped(named: &[(&str, &str)], rest: Rest) -> Result<Vec<String>, String> {
        let mut read = read();
        let named = named.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
        read.map(&ModelMap { named, rest })?;
        Ok(read.rows.iter().map(|row| read.sources[row.source as usize].clone()).collect())
    }

    #[test]
    fn names_are_given_one_by_one_or_by_rank() {
        assert_eq!(mapped(&[("b", "x")], Rest::Keep).unwrap(), ["a", "x", "x", "c", "c", "c"]);
        assert_eq!(mapped(&[("b", "a")], Rest::LeaveOut).unwrap(), ["a", "a"]);
        let models = || Rest::Ranked(vec!["m1".to_owned(), "m2".to_owned()]);
        assert_eq!(mapped(&[], models()).unwrap(), ["m1", "m2", "m2", "m1", "m1", "m1"]);
        assert_eq!(mapped(&[("c", "x")], models()).unwrap(), ["m2", "m1", "m1", "x", "x", "x"]);
    }

    #[test]
    fn sources_that_are_not_there_are_refused_with_those_that_are() {
        let error = mapped(&[("d", "x")], Rest::Keep).unwrap_err();
        assert!(error.contains("the trace has no `d`; it has a, b, c"), "{error}");
        let error = read().map(&ModelMap { named: BTreeMap::new(), rest: Rest::LeaveOut }).unwrap_err();
        assert!(error.contains("no arrivals are left"), "{error}");
    }
}
