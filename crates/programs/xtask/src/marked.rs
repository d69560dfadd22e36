//! Parts of pages that are written by program, between marks.

/// The page with new text between `<!-- NAME: … -->` and `<!-- end of NAME -->`; none if it lacks the marks.
pub(crate) fn between(page: &str, name: &str, text: &str) -> Option<String> {
    let begin = page.find(&format!("<!-- {name}:"))?;
    let begin = begin + page[begin..].find("-->\n")? + "-->\n".len();
    let end = begin + page[begin..].find(&format!("<!-- end of {name} -->"))?;
    Some(format!("{}{text}{}", &page[..begin], &page[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_written() {
        let page = "a\n<!-- crates: by program -->\nstale\n<!-- end of crates -->\nb\n";
        let fresh = "a\n<!-- crates: by program -->\nfresh\n<!-- end of crates -->\nb\n";
        assert_eq!(between(page, "crates", "fresh\n").unwrap(), fresh);
        assert_eq!(between("no marks", "crates", "fresh\n"), None);
    }
}
