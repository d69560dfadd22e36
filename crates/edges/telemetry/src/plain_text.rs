//! OpenMetrics as Prometheus' older text format 0.0.4, for scrapers that ask for `text/plain`.

/// The same metrics in the older format. Samples are spelled alike in both; there, a family is named like its samples,
/// an `info` is a gauge, and units and the end are not written.
pub(crate) fn from_open_metrics(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            // The type, which determines the names of the samples, follows.
            let kind = lines.peek().and_then(|next| next.strip_prefix("# TYPE ")).and_then(|next| next.split_once(' '));
            let (name, words) = help.split_once(' ').unwrap_or((help, ""));
            let (suffix, _) = plain_kind(kind.map_or("", |(_, kind)| kind));
            // Quotes are escaped in OpenMetrics only.
            let words = words.replace("\\\"", "\"");
            out.extend(["# HELP ", name, suffix, " ", &words, "\n"]);
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap_or((typed, ""));
            let (suffix, kind) = plain_kind(kind);
            out.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            out.extend([line, "\n"]);
        }
    }
    out
}

/// What samples of a type have behind the family's name, and the type's name in the older format.
fn plain_kind(kind: &str) -> (&'static str, &str) {
    match kind {
        "counter" => ("_total", "counter"),
        "info" => ("_info", "gauge"),
        "unknown" => ("", "untyped"),
        other => ("", other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_named_like_their_samples() {
        let open = "# HELP a Things \\\"counted\\\".\n# TYPE a counter\n# UNIT a seconds\na_total{x=\"1\"} 2\n\
                    # HELP b Facts.\n# TYPE b info\nb_info{v=\"1\"} 1\n# HELP c Now.\n# TYPE c gauge\nc 3\n\
                    # HELP d What.\n# TYPE d unknown\nd 4\n# EOF\n";
        let plain = "# HELP a_total Things \"counted\".\n# TYPE a_total counter\na_total{x=\"1\"} 2\n\
                     # HELP b_info Facts.\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n# HELP c Now.\n# TYPE c gauge\nc 3\n\
                     # HELP d What.\n# TYPE d untyped\nd 4\n";
        assert_eq!(from_open_metrics(open), plain);
    }
}
