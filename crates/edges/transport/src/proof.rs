//! Checks that an RDMA connection works: it is established without any data, even where all its packets vanish.

use std::time::Duration;

/// How long the first answer over a fresh RDMA connection may take before the two agree on TCP: some thousand times its
/// duration where packets arrive, and less than any wait for the link.
pub(crate) const PROVED_WITHIN: Duration = Duration::from_millis(500);

/// Whether an answer comes in time.
///
/// # Errors
/// The reason if none does.
pub(crate) async fn proved(answer: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let within = PROVED_WITHIN.as_millis();
    let proved = tokio::time::timeout(PROVED_WITHIN, answer).await;
    proved.unwrap_or_else(|_| Err(format!("no answer by RDMA within {within} ms")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_comes_proves_no_rdma() {
        assert_eq!(proved(async { Ok(()) }).await, Ok(()));
        assert_eq!(proved(async { Err("no answer came".to_owned()) }).await, Err("no answer came".to_owned()));
        let vanished = proved(std::future::pending()).await.unwrap_err();
        assert_eq!(vanished, "no answer by RDMA within 500 ms");
    }
}
