//! OpenMetrics as Prometheus' older text format 0.0.4, for scrapers that ask for `text/plain`.

/// Its content type.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The same metrics in the older format. Samples are spelled alike in both; there, a family is named like its samples,
/// an `info` is a gauge, and units and the end are not written.
pub(crate) fn from_open_metrics(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            // The type, which says what the samples are called, follows.
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

/// What samples of a type have behind the family's name, and what the type is called in the older format.
fn plain_kind(kind: &str) -> (&'static str, &str) {
    match kind {
        "counter" => ("_total", "counter"),
        "info" => ("_info", "gauge"),
        "unknown" => ("", "untyped"),
        other => ("", other),
    }
}

/// Whether a scraper wants OpenMetrics, by its `Accept`: it names it, and nothing says that it likes the older format
/// better. Who says nothing gets the older format, which everybody reads.
pub(crate) fn wants_open_metrics(accept: &str) -> bool {
    let quality_of = |wanted: &str| {
        let ranges = accept.split(',').map(|range| range.split(';').map(str::trim));
        let qualities = ranges.filter_map(|mut parts| {
            let matches = parts.next().is_some_and(|media| media.eq_ignore_ascii_case(wanted));
            let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(Ok(1.0), str::parse::<f64>);
            matches.then(|| quality.unwrap_or(0.0))
        });
        qualities.fold(0.0, f64::max)
    };
    let open_metrics = quality_of("application/openmetrics-text");
    open_metrics > 0.0 && open_metrics >= quality_of("text/plain")
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

    #[test]
    fn who_names_open_metrics_gets_it_unless_plain_text_is_liked_better() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for wants in
            [prometheus, "application/openmetrics-text", "text/plain;q=0.3, Application/OpenMetrics-Text; q=0.4"]
        {
            assert!(wants_open_metrics(wants), "{wants}");
        }
        let plain = [
            "",
            "*/*",
            "text/plain",
            "text/plain;version=0.0.4;q=0.9, application/openmetrics-text;q=0.5",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=many",
            "text/html",
        ];
        for plain in plain {
            assert!(!wants_open_metrics(plain), "{plain}");
        }
    }
}
