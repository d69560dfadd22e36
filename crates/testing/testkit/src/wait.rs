//! Waiting on conditions.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

/// The pause between two looks at a condition: short against anything a test waits for, long against one look.
const POLL_EVERY: Duration = Duration::from_millis(10);
/// How long [`until`] polls.
const SOON: Duration = Duration::from_secs(60);

/// Polls `condition` until it gives a value, which is returned.
///
/// The condition's error is why it does not hold yet. The last one becomes part of the failure, so that a timed-out
/// test shows what it saw and not only what it waited for.
///
/// # Errors
/// If `timeout` passes first.
pub fn wait_until<T>(what: &str, timeout: Duration, mut condition: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + timeout;
    loop {
        match condition() {
            Ok(value) => return Ok(value),
            Err(last) if Instant::now() >= deadline => {
                bail!("waited {timeout:?} for {what} in vain; last seen: {last:#}");
            }
            Err(_) => std::thread::sleep(POLL_EVERY),
        }
    }
}

/// [`wait_until`] for conditions that are futures.
///
/// # Errors
/// If `timeout` passes first, also while the condition is being checked.
pub async fn wait_until_async<T, F>(what: &str, timeout: Duration, mut condition: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut last = None;
    let looking = async {
        loop {
            match condition().await {
                Ok(value) => return value,
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    };
    if let Ok(value) = tokio::time::timeout(timeout, looking).await {
        return Ok(value);
    }
    match last {
        Some(last) => bail!("waited {timeout:?} for {what} in vain; last seen: {last:#}"),
        None => bail!("waited {timeout:?} for {what} in vain; the first look did not end"),
    }
}

/// Polls until there is a value, for at most a minute: longer than anything should take on a busy machine.
///
/// # Panics
/// If there is none by then.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let seen = wait_until_async(what, SOON, || {
        let seen = look();
        async { seen.await.ok_or_else(|| anyhow!("nothing yet")) }
    });
    seen.await.unwrap_or_else(|error| panic!("{error}"))
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_condition_that_comes_true_ends_the_wait() {
        let mut looks = 0;
        let seen = wait_until("the third look", Duration::from_secs(5), || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err(anyhow!("look {looks}")) }
        });
        assert_eq!(seen.unwrap(), 3);
    }

    #[test]
    fn a_wait_in_vain_says_what_it_saw_last() {
        let error = wait_until("never", Duration::ZERO, || Err::<(), _>(anyhow!("2 of 3 up"))).unwrap_err();
        assert!(error.to_string().contains("for never in vain; last seen: 2 of 3 up"), "{error}");
    }

    #[tokio::test]
    async fn a_look_that_hangs_does_not_hang_the_test() {
        let hang = || std::future::pending::<Result<()>>();
        let error = wait_until_async("an answer", Duration::from_millis(20), hang).await.unwrap_err();
        assert!(error.to_string().contains("the first look did not end"), "{error}");
        let fail = async || Err::<(), _>(anyhow!("refused"));
        let error = wait_until_async("an answer", Duration::from_millis(20), fail).await.unwrap_err();
        assert!(error.to_string().contains("last seen: refused"), "{error}");
    }
}
