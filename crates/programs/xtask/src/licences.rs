//! Every dependency must be usable under a licence that the policy accepts.

use std::collections::BTreeSet;

use crate::metadata::Metadata;
use crate::policy::Policy;

/// Dependencies without an accepted licence, and accepted licences that no dependency has.
pub(crate) fn problems(metadata: &Metadata, policy: &Policy) -> Vec<String> {
    let accepted: BTreeSet<_> = policy.licences.iter().map(|licence| licence.id.as_str()).collect();
    let mut needed = BTreeSet::new();
    let mut problems = policy.unexplained();
    for package in metadata.foreign() {
        let who = format!("{} {}", package.name, package.version);
        match &package.license {
            None => problems.push(format!("{who} names no licence")),
            Some(text) => match choose(text, &accepted) {
                Ok(Some(chosen)) => needed.extend(chosen),
                Ok(None) => problems
                    .push(format!("{who} is under `{text}`, which crates/programs/xtask/policy.toml does not accept")),
                Err(problem) => problems.push(format!("{who} has the licence expression `{text}`: {problem}")),
            },
        }
    }
    for id in accepted {
        if !needed.contains(id) {
            problems.push(format!("licence {id} is accepted but no dependency needs it; remove it from policy.toml"));
        }
    }
    problems
}

/// The accepted licences that satisfy the expression, or none if none do.
///
/// SPDX: `AND` binds tighter than `OR`; the old `/` of crates.io means `OR`; `A WITH B` is met by accepting `A`, since
/// an exception only adds permissions.
fn choose(text: &str, accepted: &BTreeSet<&str>) -> Result<Option<BTreeSet<String>>, String> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut parser = Parser { words: spaced.split_whitespace().collect(), at: 0, accepted };
    let chosen = parser.any_of()?;
    if parser.at < parser.words.len() {
        return Err(format!("`{}` is not expected here", parser.words[parser.at]));
    }
    Ok(chosen)
}

struct Parser<'a> {
    words: Vec<&'a str>,
    at: usize,
    accepted: &'a BTreeSet<&'a str>,
}

type Chosen = Option<BTreeSet<String>>;

impl Parser<'_> {
    fn take(&mut self, word: &str) -> bool {
        let found = self.words.get(self.at) == Some(&word);
        self.at += usize::from(found);
        found
    }

    fn any_of(&mut self) -> Result<Chosen, String> {
        let mut chosen = self.all_of()?;
        while self.take("OR") {
            let other = self.all_of()?;
            chosen = chosen.or(other);
        }
        Ok(chosen)
    }

    fn all_of(&mut self) -> Result<Chosen, String> {
        let mut chosen = self.one()?;
        while self.take("AND") {
            let other = self.one()?;
            chosen = chosen.zip(other).map(|(a, b)| &a | &b);
        }
        Ok(chosen)
    }

    fn one(&mut self) -> Result<Chosen, String> {
        if self.take("(") {
            let inner = self.any_of()?;
            return if self.take(")") { Ok(inner) } else { Err("a bracket is not closed".to_owned()) };
        }
        let id = *self.words.get(self.at).ok_or("it ends too early")?;
        if ["OR", "AND", "WITH", ")"].contains(&id) {
            return Err(format!("`{id}` is not expected here"));
        }
        self.at += 1;
        if self.take("WITH") {
            self.at += 1;
        }
        Ok(self.accepted.contains(id).then(|| BTreeSet::from([id.to_owned()])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::planted;

    #[test]
    fn expressions_mean_what_spdx_says() {
        let accepted = BTreeSet::from(["MIT", "BSD-3-Clause"]);
        let met = |text: &str| choose(text, &accepted).unwrap().is_some();
        for text in [
            "MIT",
            "GPL-3.0 OR MIT",
            "Apache-2.0/MIT",
            "MIT AND BSD-3-Clause",
            "(MIT OR GPL-3.0) AND BSD-3-Clause",
            "GPL-3.0 AND ISC OR MIT",
            "MIT WITH some-exception",
        ] {
            assert!(met(text), "{text}");
        }
        for text in
            ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR BSD-3-Clause) AND GPL-3.0", "Apache-2.0 WITH LLVM-exception"]
        {
            assert!(!met(text), "{text}");
        }
        for text in ["", "MIT OR", "(MIT", "MIT MIT", "AND MIT", "MIT )"] {
            assert!(choose(text, &accepted).is_err(), "{text}");
        }
    }

    #[test]
    fn a_foreign_licence_and_a_needless_one_are_found() {
        let mut metadata = planted(&["types"], &["good", "evil", "bare"], &[]);
        metadata.packages[2].license = Some("AGPL-3.0".into());
        metadata.packages[3].license = None;
        let policy =
            Policy::parse("licence = [{ id = \"MIT\", reason = \"fine\" }, { id = \"ISC\", reason = \"\" }]").unwrap();
        assert_eq!(
            problems(&metadata, &policy),
            [
                "ISC is accepted without a reason",
                "evil 1.0.0 is under `AGPL-3.0`, which crates/programs/xtask/policy.toml does not accept",
                "bare 1.0.0 names no licence",
                "licence ISC is accepted but no dependency needs it; remove it from policy.toml",
            ]
        );
    }
}
