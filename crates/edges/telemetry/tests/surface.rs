//! A process's metrics port as curl sees it, and what every metric keeps.

mod contract;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::metrics::counter::Counter;
use symphony_telemetry::{ConsoleQuestion, Kind, MetricName, PageGuard, PageRefusal, Registry, Surface, Unit, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

const REQUESTS: MetricName = MetricName {
    name: "symphony_requests_total",
    help: "Requests accepted",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
};

/// Status line and headers, and the body.
async fn get(port: u16, path: &str) -> (String, String) {
    get_from("localhost", port, path).await
}

/// The same by another name.
async fn get_from(host: &str, port: u16, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn a_process_shows_metrics_health_view_and_console_and_stops_when_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let registry = Registry::new("frontend");
    let requests = registry.register(&REQUESTS, Counter::<u64>::default());
    let loaded = Arc::new(AtomicBool::new(false));
    let surface = Surface::new(registry)
        .with_readiness({
            let loaded = Arc::clone(&loaded);
            move || if loaded.load(Ordering::Relaxed) { Ok(()) } else { Err("no view of the cluster yet".into()) }
        })
        .with_view(|| serde_json::json!({ "cluster": "<b>test</b>", "epoch": 3 }));
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(listener, surface, async { stopped.await.unwrap_or(()) }));

    // Phase 1: the process lives but is not ready, and says why.
    assert!(get(port, "/health/live").await.0.starts_with("HTTP/1.1 200"));
    let (head, body) = get(port, "/health/ready").await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert!(body.contains("not ready: no view of the cluster yet"), "{body}");

    // Phase 2: it becomes ready and counts.
    loaded.store(true, Ordering::Relaxed);
    requests.inc_by(41);
    assert!(get(port, "/health/ready").await.0.starts_with("HTTP/1.1 200"));
    let (head, body) = get(port, "/metrics").await;
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("symphony_requests_total 41\n") && body.contains("symphony_build_info{"), "{body}");

    // Phase 3: people look at it. The page loads nothing from elsewhere and makes no markup of what it is told.
    let (head, body) = get(port, "/api/view").await;
    assert!(head.contains("application/json"), "{head}");
    let view: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(view["epoch"], 3);
    let (head, page) = get(port, "/").await;
    assert!(head.contains("text/html") && head.contains("default-src 'none'"), "{head}");
    assert!(!head.contains("unsafe-inline"), "{head}");
    for (file, content_type) in
        [("console.css", "text/css"), ("console.js", "text/javascript"), ("charts.js", "text/javascript")]
    {
        assert!(file == "charts.js" || page.contains(&format!("\"{file}\"")), "the page does not load {file}");
        let (head, content) = get(port, &format!("/{file}")).await;
        assert!(head.contains(content_type) && head.contains("nosniff") && !content.is_empty(), "{file}: {head}");
    }
    let (head, words) = get(port, "/api/console").await;
    assert!(head.starts_with("HTTP/1.1 404") && words.contains("belongs to no cluster"), "{head} {words}");
    let (head, words) = get(port, "/api/history").await;
    assert!(head.starts_with("HTTP/1.1 404") && words.contains("only frontends"), "{head} {words}");
    let (head, words) = get(port, "/api/explain?request=f1/2/3").await;
    assert!(head.starts_with("HTTP/1.1 404") && words.contains("only frontends"), "{head} {words}");
    assert!(get(port, "/nothing").await.0.starts_with("HTTP/1.1 404"));

    // Phase 4: it stops when told.
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_page_that_has_its_own_name_lead_here_gets_no_answer_without_a_key() {
    let serving = async |surface: Surface| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(serve(listener, surface, std::future::pending()));
        port
    };
    let surface = || {
        let surface = Surface::new(Registry::new("scheduler")).with_hosts(["console.example".to_owned()]);
        surface
            .with_history(|_| serde_json::json!({}))
            .with_explain(|_| serde_json::json!({}))
            .with_console(|_| Box::pin(async { Ok(axum::body::Bytes::from_static(b"{}")) }))
    };
    let open = serving(surface()).await;
    let of_host = serving(surface().with_guard(PageGuard::this_host())).await;
    let by_key = serving(surface().with_guard(PageGuard::new(false, |_| Ok(())))).await;
    let explain = "/api/explain?request=f1/2/3";
    for path in ["/", "/console.js", "/api/view", "/api/history", explain, "/api/console", "/api/console/gpus"] {
        for port in [open, of_host] {
            let (head, body) = get_from("evil.example:8002", port, path).await;
            assert!(head.starts_with("HTTP/1.1 403") && body.contains("foreign_host"), "{path}: {head} {body}");
            for known in ["console.example:8002", "127.0.0.1:8002", "localhost"] {
                assert!(get_from(known, port, path).await.0.starts_with("HTTP/1.1 200"), "{path} by {known}");
            }
        }
        assert!(
            get_from("evil.example", by_key, path).await.0.starts_with("HTTP/1.1 200"),
            "a key is no browser's own"
        );
    }
    for path in ["/metrics", "/health/live", "/health/ready"] {
        assert!(get_from("frontend-1:8002", open, path).await.0.starts_with("HTTP/1.1 200"), "{path}");
    }
}

#[tokio::test]
async fn what_the_console_asks_is_answered_to_those_who_may_see_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let guard = PageGuard::new(false, |caller| {
        let knows = caller.headers.get("host").is_some_and(|host| host == "localhost");
        if knows { Ok(()) } else { Err(PageRefusal::not_found("who are you".into())) }
    });
    let surface = Surface::new(Registry::new("frontend"))
        .with_guard(guard)
        .with_history(|model| serde_json::json!({ "of": model }))
        .with_explain(|request| serde_json::json!({ "explained": request.to_string() }))
        .with_console(|question| {
            Box::pin(async move {
                match question {
                    ConsoleQuestion::Explain(request) => Err(PageRefusal::not_found(format!("no {request}"))),
                    question => {
                        let asked = format!("{question:?}").replace('"', "'");
                        Ok(axum::body::Bytes::from(format!(r#"{{"asked":"{asked}"}}"#)))
                    }
                }
            })
        });
    tokio::spawn(serve(listener, surface, std::future::pending()));

    for (path, answer) in [
        ("/api/console", r#"{"asked":"Cluster"}"#),
        ("/api/console/gpus", r#"{"asked":"Gpus"}"#),
        ("/api/console/model?name=a%2Fb", r#"{"asked":"Model('a/b')"}"#),
        ("/api/history", r#"{"of":null}"#),
        ("/api/history?model=m", r#"{"of":"m"}"#),
        ("/api/explain?request=f1/2/3", r#"{"explained":"f1/2/3"}"#),
    ] {
        let (head, body) = get(port, path).await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("no-store"), "{path}: {head}");
        assert_eq!(body, answer, "{path}");
    }
    let (head, body) = get(port, "/api/console/explain?request=f1/2/3").await;
    assert!(head.starts_with("HTTP/1.1 404") && body.contains("no f1/2/3"), "{head} {body}");
    for bad in ["/api/console/model", "/api/explain", "/api/explain?request=seventeen"] {
        assert!(get(port, bad).await.0.starts_with("HTTP/1.1 400"), "{bad}");
    }

    // Without a key nothing of it is shown, not even the page.
    for path in ["/", "/console.js", "/api/console", "/api/history", "/api/explain?request=f1/2/3"] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: elsewhere\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("who are you"), "{path}: {answer}");
    }
}
