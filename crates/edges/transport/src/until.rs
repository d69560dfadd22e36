//! A wait that there may be no end of.

use tokio::time::Instant;

/// Waits until that moment; for ever if there is none. For a branch of `select!`.
pub async fn until(moment: Option<impl Into<Instant>>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn it_ends_at_its_moment_and_without_one_never() {
        until(Some(std::time::Instant::now())).await;
        let never = until(None::<Instant>);
        assert!(tokio::time::timeout(Duration::from_millis(5), never).await.is_err());
    }
}
