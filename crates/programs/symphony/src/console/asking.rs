//! Asks many at a time, and takes what has come by a deadline.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use tokio::time::Instant;

/// Frontends and leaders that are asked at a time.
const ASKED_AT_A_TIME_MAX: usize = 64;

/// Puts its question to each of these, in this order, and returns each name with its answer; none if that had not come
/// by then.
pub(super) async fn ask_by<Q, T, F: Future<Output = T>>(
    by: Instant,
    named: Vec<(String, Q)>,
    ask: impl Fn(Q) -> F,
) -> Vec<(String, Option<T>)> {
    let (names, questions): (Vec<_>, Vec<_>) = named.into_iter().unzip();
    let one = move |(at, question): (usize, Q)| {
        let answer = ask(question);
        async move { (at, answer.await) }
    };
    let answers =
        futures::stream::iter(questions.into_iter().enumerate()).map(one).buffer_unordered(ASKED_AT_A_TIME_MAX);
    let mut in_time: BTreeMap<usize, T> = answers.take_until(tokio::time::sleep_until(by)).collect().await;
    names.into_iter().enumerate().map(|(at, name)| (name, in_time.remove(&at))).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_came_in_time_is_told_however_many_hang() {
        let answers = |name: usize| async move {
            match name {
                7 => name,
                _ => std::future::pending().await,
            }
        };
        let named = (0..3 * ASKED_AT_A_TIME_MAX).map(|name| (name.to_string(), name)).collect();
        let in_time = ask_by(Instant::now() + Duration::from_secs(1), named, answers).await;
        assert_eq!(in_time.len(), 3 * ASKED_AT_A_TIME_MAX);
        for (name, in_time) in in_time {
            assert_eq!(in_time, (name == "7").then_some(7), "{name}");
        }
    }
}
