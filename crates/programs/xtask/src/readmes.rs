//! Each library has a README that says what it decides or owns, and what it does not do.

use std::fs;

use anyhow::Result;

use crate::metadata::Metadata;

/// Crates without a README that explains them.
pub(crate) fn problems(metadata: &Metadata) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for package in metadata.members() {
        let path = package.dir().join("README.md");
        let text = if path.exists() { Some(fs::read_to_string(&path)?) } else { None };
        problems.extend(problem(&package.name, text.as_deref()));
    }
    Ok(problems)
}

fn problem(name: &str, readme: Option<&str>) -> Option<String> {
    match readme {
        None => Some(format!("{name} has no README.md; say what it decides or owns, and what it does not do")),
        Some(text) if !text.to_lowercase().contains("does not") => {
            Some(format!("README.md of {name} has no \"does not\" line"))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_that_does_not_explain_itself_is_found() {
        assert!(problem("a", None).unwrap().contains("a has no README.md"));
        assert!(problem("a", Some("# a\n\nOwns things.")).unwrap().contains("\"does not\""));
        assert_eq!(problem("a", Some("# a\n\n**Does not** sing.")), None);
    }
}
