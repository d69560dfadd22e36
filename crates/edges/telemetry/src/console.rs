//! The console: files of a page, and the questions that it asks. The program answers them.

use std::collections::BTreeMap;
use std::pin::Pin;

use axum::body::Bytes;
use axum::extract::Query;
use axum::http::{Uri, header};
use axum::response::{IntoResponse as _, Response};

use crate::PageRefusal;

/// The page may load what the server it came from has, and ask it; nothing else, so that a name in an answer that looks
/// like markup could do nothing even if it were taken for it.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// The files of the page: where they are, their type, their content. They name each other by relative paths, so that a
/// proxy may put the page anywhere.
pub(crate) const FILES: [(&str, &str, &str); 7] = [
    ("/", HTML, include_str!("console/console.html")),
    ("/console.css", CSS, include_str!("console/console.css")),
    ("/console.js", JAVASCRIPT, include_str!("console/console.js")),
    ("/base.js", JAVASCRIPT, include_str!("console/base.js")),
    ("/charts.js", JAVASCRIPT, include_str!("console/charts.js")),
    ("/troubles.js", JAVASCRIPT, include_str!("console/troubles.js")),
    ("/views.js", JAVASCRIPT, include_str!("console/views.js")),
];

/// What the page asks about the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConsoleQuestion {
    /// `/api/console`: models, GPUs, processes, events.
    Cluster,
    /// `/api/console/model?name=…`: the last hour of a model.
    Model(String),
    /// `/api/console/gpus`: the last batches of all GPUs.
    Gpus,
    /// `/api/console/explain?request=…`: why a request ended as it did.
    Explain(String),
}

/// The longest name in a question: no model or request has a longer one.
const NAME_BYTES_MAX: usize = 1024;

impl ConsoleQuestion {
    /// The question of a path.
    pub(crate) fn parse(uri: &Uri) -> Result<Self, PageRefusal> {
        match uri.path() {
            "/api/console/model" => Ok(Self::Model(argument(uri, "name")?)),
            "/api/console/explain" => Ok(Self::Explain(argument(uri, "request")?)),
            "/api/console/gpus" => Ok(Self::Gpus),
            _ => Ok(Self::Cluster),
        }
    }
}

/// An answer as JSON, once there is one.
pub type ConsoleAnswer = Pin<Box<dyn Future<Output = Result<Bytes, PageRefusal>> + Send>>;

/// An argument that must be there.
pub(crate) fn argument(uri: &Uri, name: &str) -> Result<String, PageRefusal> {
    let missing = || PageRefusal::bad_request(format!("{}: expected ?{name}=…", uri.path()));
    optional(uri, name)?.filter(|value| !value.is_empty()).ok_or_else(missing)
}

/// An argument that may be there.
pub(crate) fn optional(uri: &Uri, name: &str) -> Result<Option<String>, PageRefusal> {
    let arguments = Query::<BTreeMap<String, String>>::try_from_uri(uri)
        .map_err(|error| PageRefusal::bad_request(format!("{}: {error}", uri.path())))?;
    let Query(mut arguments) = arguments;
    let value = arguments.remove(name);
    if value.as_ref().is_some_and(|value| value.len() > NAME_BYTES_MAX) {
        let words = format!("{}: {name} has more than {NAME_BYTES_MAX} bytes", uri.path());
        return Err(PageRefusal::bad_request(words));
    }
    Ok(value)
}

pub(crate) fn file(content_type: &'static str, content: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Of this release, whichever the browser has seen.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, content).into_response()
}

/// The answer to a question, as a response.
pub(crate) fn json(answer: Bytes) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (headers, answer).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(uri: &str) -> Result<ConsoleQuestion, PageRefusal> {
        ConsoleQuestion::parse(&uri.parse().unwrap())
    }

    #[test]
    fn questions_are_read_from_paths_and_bad_ones_are_refused_with_what_was_expected() {
        assert_eq!(parse("/api/console"), Ok(ConsoleQuestion::Cluster));
        assert_eq!(parse("/api/console/gpus?x=1"), Ok(ConsoleQuestion::Gpus));
        assert_eq!(parse("/api/console/model?name=a%40b%2Fc"), Ok(ConsoleQuestion::Model("a@b/c".into())));
        assert_eq!(parse("/api/console/explain?request=f1/2/3"), Ok(ConsoleQuestion::Explain("f1/2/3".into())));
        for bad in ["/api/console/model", "/api/console/model?name=", "/api/console/explain?name=m"] {
            assert!(parse(bad).unwrap_err().words.contains("expected ?"), "{bad}");
        }
        let long = format!("/api/console/model?name={}", "m".repeat(NAME_BYTES_MAX + 1));
        assert!(parse(&long).unwrap_err().words.contains("more than 1024 bytes"));
    }

    #[test]
    fn the_page_loads_nothing_from_elsewhere_and_makes_no_markup_of_what_it_is_told() {
        for (path, _, content) in FILES {
            for forbidden in
                ["://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style="]
            {
                // The name of the vector format is an address, and nothing is loaded from it.
                let content = content.replace("http://www.w3.org/2000/svg", "");
                assert!(!content.contains(forbidden), "{path} has {forbidden}");
            }
        }
    }
}
