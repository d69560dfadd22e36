//! Suggestions for a mistyped name.

/// A name is suggested if it is this similar, as clap has it for options; 1 is the same.
const SIMILAR: f64 = 0.7;
/// The most names in a message.
const NAMED_MAX: usize = 5;

/// The error that no `kind` has that name, with similar names, or else all names; `list` shows all.
pub(crate) fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>, list: &str) -> String {
    let mut all: Vec<_> = known.map(|known| (similarity(name, known), known)).collect();
    // Equally similar ones stay in their order.
    all.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let similar: Vec<_> = all.iter().filter(|(similarity, _)| *similarity >= SIMILAR).collect();
    let (what, named) =
        if similar.is_empty() { ("there are", all.iter().collect()) } else { ("similar names:", similar) };
    let mut message = format!("no {kind} is named `{name}`");
    if !named.is_empty() {
        let names: Vec<_> = named.iter().take(NAMED_MAX).map(|(_, name)| *name).collect();
        let more = if named.len() > NAMED_MAX { ", …" } else { "" };
        message.push_str(&format!("; {what} {}{more}", names.join(", ")));
    }
    format!("{message}; see `{list}`")
}

/// A part of a name is similar, and so is one with letters that are wrong, missing or swapped.
fn similarity(name: &str, known: &str) -> f64 {
    let is_part = name.len() > 1 && known.contains(name);
    if is_part { 1.0 } else { strsim::jaro(name, known) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_said_or_else_those_that_there_are() {
        let known = ["resnet", "resnet-large", "digits"];
        let message = |name: &str| unknown("model", name, known.into_iter(), "symphony get models");
        assert_eq!(
            message("resent"),
            "no model is named `resent`; similar names: resnet, resnet-large; see `symphony get models`"
        );
        assert!(message("igit").contains("similar names: digits;"), "{}", message("igit"));
        assert!(message("zzz").contains("there are resnet, resnet-large, digits;"), "{}", message("zzz"));
        let none = unknown("model", "m", std::iter::empty(), "symphony get models");
        assert_eq!(none, "no model is named `m`; see `symphony get models`");
        let many: Vec<_> = (0..9).map(|n| format!("m{n}")).collect();
        let message = unknown("model", "zzz", many.iter().map(String::as_str), "x");
        assert!(message.contains("m0, m1, m2, m3, m4, …;"), "{message}");
    }
}
