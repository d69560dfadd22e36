//! Reads the console page of a frontend.

use std::time::Duration;

use anyhow::ensure;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use symphony_config::Address;
use symphony_explain::PipelineExplanation;
use symphony_load::Access;
use symphony_protocol::view::FrontendView;
use symphony_telemetry::history::Counted;
use symphony_types::RequestId;

use super::public_access;

/// The timeout of a frontend's answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The largest page in bytes: about 200 for each model and link.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// Reads consoles.
#[derive(Clone, Debug)]
pub(crate) struct PageClient {
    http: reqwest::Client,
    access: Access,
}

/// The client for consoles, with this key and this authority.
///
/// # Errors
/// If they cannot be used.
pub(crate) fn client(access: Access) -> anyhow::Result<PageClient> {
    // The frontend chose the address when it registered; it must not redirect this process to others.
    let builder = reqwest::Client::builder().timeout(ANSWER_WITHIN).no_proxy();
    let mut builder = builder.redirect(reqwest::redirect::Policy::none());
    if let Some(pem) = &access.authority {
        builder = builder.add_root_certificate(reqwest::Certificate::from_pem(pem)?);
    }
    if let Some(bearer) = access.bearer() {
        builder = builder.default_headers([(AUTHORIZATION, HeaderValue::from_str(&bearer)?)].into_iter().collect());
    }
    Ok(PageClient { http: builder.build()?, access })
}

/// A client for a process that serves: what cannot be used of its environment is a line in its log, and no reason not
/// to start.
///
/// # Errors
/// If this system has no client at all.
pub(crate) fn client_of_process() -> anyhow::Result<PageClient> {
    public_access::from_env().and_then(client).or_else(|error| {
        tracing::warn!(error = %format!("{error:#}"), "the console asks frontends without a key");
        client(Access::default())
    })
}

/// The page `/api/view` of a frontend.
///
/// # Errors
/// If it does not answer in time, or with more than a page, or the key would go to it readable.
pub(crate) async fn read(client: &PageClient, frontend: &FrontendView) -> anyhow::Result<Value> {
    get(client, frontend, "/api/view", &[], "status").await
}

/// The last hour of a frontend's requests: all models in short, or one of them.
///
/// # Errors
/// As [`read`], if it is on the loopback of another host perhaps, or if another process answers.
pub(crate) async fn history<T: DeserializeOwned + Counted>(
    client: &PageClient,
    frontend: &FrontendView,
    model: Option<&str>,
) -> anyhow::Result<T> {
    check_reachable(frontend)?;
    let arguments: Vec<_> = model.map(|model| ("model", model)).into_iter().collect();
    let answer: T = get(client, frontend, "/api/history", &arguments, "console").await?;
    ensure!(answer.boot() == frontend.boot.get(), "another process answers there, or it has just begun anew");
    Ok(answer)
}

/// What became of a request for a pipeline; none if the frontend does not remember it.
///
/// # Errors
/// As [`history`].
pub(crate) async fn explanation(
    client: &PageClient,
    frontend: &FrontendView,
    request: RequestId,
) -> anyhow::Result<Option<PipelineExplanation>> {
    check_reachable(frontend)?;
    let request = request.to_string();
    let answer: Explained = get(client, frontend, "/api/explain", &[("request", request.as_str())], "console").await?;
    answer.of(frontend)
}

/// What `/api/explain` answers.
#[derive(Debug, Deserialize)]
pub(crate) struct Explained {
    boot: u64,
    explanation: Option<PipelineExplanation>,
}

impl Explained {
    /// # Errors
    /// If the page is of another process than this frontend.
    pub(crate) fn of(self, frontend: &FrontendView) -> anyhow::Result<Option<PipelineExplanation>> {
        ensure!(self.boot == frontend.boot.get(), "another process answers there, or it has just begun anew");
        Ok(self.explanation)
    }
}

/// Each host has a loopback of its own: any process that listens there would get the key.
fn check_reachable(frontend: &FrontendView) -> anyhow::Result<()> {
    let is_loopback = |addr: &str| addr.parse().is_ok_and(|addr: Address| addr.is_loopback());
    ensure!(
        !is_loopback(&frontend.console_addr) || is_loopback(&frontend.data_addr),
        "its frontend.metrics is on the loopback of its host, so it is not asked; expected an address for the cluster"
    );
    Ok(())
}

async fn get<T: DeserializeOwned>(
    client: &PageClient,
    frontend: &FrontendView,
    path: &str,
    arguments: &[(&str, &str)],
    right: &str,
) -> anyhow::Result<T> {
    // The frontend chose the address when it registered.
    client.access.check(&frontend.console_addr).map_err(anyhow::Error::msg)?;
    let url = format!("{}://{}{path}", client.access.scheme(), frontend.console_addr);
    let mut answer = client.http.get(url).query(arguments).send().await?;
    ensure!(
        !matches!(answer.status().as_u16(), 401 | 403),
        "it wants the key of a tenant with the right `{right}`: name its file by --key-file or SYMPHONY_KEY_FILE"
    );
    let mut page = Vec::new();
    answer.error_for_status_ref()?;
    while let Some(part) = answer.chunk().await? {
        ensure!(page.len() + part.len() <= PAGE_BYTES_MAX, "its page has more than {PAGE_BYTES_MAX} bytes");
        page.extend_from_slice(&part);
    }
    Ok(serde_json::from_slice(&page)?)
}

#[cfg(test)]
mod tests {
    use symphony_telemetry::history::Overview;
    use symphony_types::BootId;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_history_is_that_of_the_frontend_and_the_loopback_of_another_host_is_not_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let console_addr = listener.local_addr().unwrap().to_string();
        let answering = tokio::spawn(async move {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut received = [0; 4];
                stream.read_exact(&mut received).await.unwrap();
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\nconnection: close\r\n\r\n{\"boot\":7}";
                stream.write_all(answer).await.unwrap();
                // It stays open until the other side has read.
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        });
        let client = client(Access::default()).unwrap();
        let frontend = |data_addr: &str, boot| {
            let (data_addr, console_addr, boot) = (data_addr.to_owned(), console_addr.clone(), BootId::new(boot));
            FrontendView { data_addr, console_addr, boot, ..FrontendView::default() }
        };
        let overview = history::<Overview>(&client, &frontend("127.0.0.1:1", 7), None).await;
        assert_eq!(overview.unwrap().boot, 7);
        let other = history::<Overview>(&client, &frontend("127.0.0.1:1", 8), None).await.unwrap_err();
        assert!(other.to_string().contains("another process"), "{other}");
        answering.await.unwrap();
        let far = history::<Overview>(&client, &frontend("10.0.0.1:1", 7), None).await.unwrap_err();
        assert!(far.to_string().contains("on the loopback of its host"), "{far}");
        let far = explanation(&client, &frontend("10.0.0.1:1", 7), RequestId::default()).await.unwrap_err();
        assert!(far.to_string().contains("on the loopback of its host"), "{far}");
    }

    #[test]
    fn an_explanation_is_that_of_the_frontend_that_was_asked() {
        let frontend = FrontendView { boot: BootId::new(7), ..FrontendView::default() };
        let parse = |text: &str| serde_json::from_str::<Explained>(text).unwrap().of(&frontend);
        assert_eq!(parse(r#"{"boot":7,"explanation":null}"#).unwrap(), None);
        let explanation = parse(r#"{"boot":7,"explanation":{"pipeline":"canvas@1","later":1}}"#).unwrap().unwrap();
        assert_eq!(explanation.pipeline, "canvas@1");
        let other = parse(r#"{"boot":8,"explanation":null}"#).unwrap_err();
        assert!(other.to_string().contains("another process"), "{other}");
    }
}
