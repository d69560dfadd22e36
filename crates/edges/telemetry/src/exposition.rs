//! The formats of metrics, and which of them a scraper wants.

/// A format of `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposition {
    /// `io.prometheus.client.MetricFamily`, one after another, each behind its length: the only one with native
    /// histograms. Prometheus asks for it where it takes them.
    Protobuf,
    /// `application/openmetrics-text`.
    OpenMetrics,
    /// Text 0.0.4, which every scraper reads.
    Plain,
}

/// The message that [`Exposition::Protobuf`] consists of.
const PROTO: &str = "io.prometheus.client.MetricFamily";

impl Exposition {
    /// What a scraper wants, by its `Accept`: what it names and likes best, of equals the first above. Without an
    /// `Accept` header, the older text.
    pub(crate) fn wanted(accept: &str) -> Self {
        let ranges: Vec<Range<'_>> = accept.split(',').map(Range::read).collect();
        let quality_of = |format: Self| {
            let qualities = ranges.iter().filter(|range| range.names(format)).map(|range| range.quality);
            qualities.fold(0.0, f64::max)
        };
        let (protobuf, open_metrics, plain) =
            (quality_of(Self::Protobuf), quality_of(Self::OpenMetrics), quality_of(Self::Plain));
        if protobuf > 0.0 && protobuf >= open_metrics && protobuf >= plain {
            Self::Protobuf
        } else if open_metrics > 0.0 && open_metrics >= plain {
            Self::OpenMetrics
        } else {
            Self::Plain
        }
    }

    /// Its content type in an answer.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// One of the formats that an `Accept` names.
struct Range<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f64,
}

impl<'a> Range<'a> {
    fn read(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
            .collect();
        let quality = parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case("q"));
        let quality = quality.map_or(1.0, |(_, quality)| quality.parse().unwrap_or(0.0));
        Self { media, parameters, quality }
    }

    fn says(&self, name: &str, value: &str) -> bool {
        self.parameters
            .iter()
            .any(|(given, given_value)| given.eq_ignore_ascii_case(name) && given_value.eq_ignore_ascii_case(value))
    }

    fn names(&self, format: Exposition) -> bool {
        let media = |wanted: &str| self.media.eq_ignore_ascii_case(wanted);
        match format {
            // There are other messages and encodings of this media type.
            Exposition::Protobuf => {
                media("application/vnd.google.protobuf")
                    && self.says("proto", PROTO)
                    && self.says("encoding", "delimited")
            }
            Exposition::OpenMetrics => media("application/openmetrics-text"),
            Exposition::Plain => media("text/plain"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_open_metrics_gets_it_unless_plain_text_is_liked_better() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for wants in
            [prometheus, "application/openmetrics-text", "text/plain;q=0.3, Application/OpenMetrics-Text; q=0.4"]
        {
            assert_eq!(Exposition::wanted(wants), Exposition::OpenMetrics, "{wants}");
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
            assert_eq!(Exposition::wanted(plain), Exposition::Plain, "{plain}");
        }
    }

    #[test]
    fn prometheus_that_takes_native_histograms_gets_protobuf_and_no_other_message() {
        let prometheus = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                          application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                          application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        assert_eq!(Exposition::wanted(prometheus), Exposition::Protobuf);
        let spaced = "application/vnd.google.protobuf; proto=\"io.prometheus.client.MetricFamily\"; encoding=delimited";
        assert_eq!(Exposition::wanted(spaced), Exposition::Protobuf);
        assert_eq!(Exposition::wanted(Exposition::Protobuf.content_type()), Exposition::Protobuf);
        for other in [
            "application/vnd.google.protobuf",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
            "application/vnd.google.protobuf;proto=other.Message;encoding=delimited",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0",
        ] {
            assert_eq!(Exposition::wanted(other), Exposition::Plain, "{other}");
        }
        let likes_text = format!("{};q=0.2, application/openmetrics-text;q=0.9", Exposition::Protobuf.content_type());
        assert_eq!(Exposition::wanted(&likes_text), Exposition::OpenMetrics);
    }
}
