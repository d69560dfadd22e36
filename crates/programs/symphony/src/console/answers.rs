//! Answers that are kept for a moment: ten open consoles cost the cluster no more than one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use symphony_telemetry::{ConsoleQuestion, PageRefusal};

/// How long an answer is good: the console asks again each second.
pub(super) const FRESH: Duration = Duration::from_secs(1);
/// Answers about models and requests that are kept or waited for. A model's has some 100 KB, so they have 6 MB; more
/// people than that do not look at different things at a time.
const QUESTIONS_MAX: usize = 64;

type Kept = Option<(Instant, Result<Bytes, PageRefusal>)>;

type Places = BTreeMap<ConsoleQuestion, Arc<tokio::sync::Mutex<Kept>>>;

/// By question.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Places>);

/// There is one answer about the cluster and one about its GPUs: their places are never taken.
const fn is_bounded(question: &ConsoleQuestion) -> bool {
    matches!(question, ConsoleQuestion::Model(_) | ConsoleQuestion::Explain(_))
}

fn is_full(places: &Places) -> bool {
    places.keys().filter(|question| is_bounded(question)).count() >= QUESTIONS_MAX
}

impl Answers {
    /// The kept answer if it is fresh, or else what `gather` finds. Others that ask meanwhile wait for the same.
    ///
    /// # Errors
    /// As `gather`, and if too many questions wait.
    pub(super) async fn get(
        &self,
        question: ConsoleQuestion,
        gather: impl Future<Output = Result<Value, PageRefusal>>,
    ) -> Result<Bytes, PageRefusal> {
        let place = self.place(question)?;
        let mut kept = place.lock().await;
        if let Some((at, answer)) = &*kept
            && at.elapsed() < FRESH
        {
            return answer.clone();
        }
        let answer = gather.await.map(|answer| Bytes::from(answer.to_string()));
        *kept = Some((Instant::now(), answer.clone()));
        answer
    }

    fn place(&self, question: ConsoleQuestion) -> Result<Arc<tokio::sync::Mutex<Kept>>, PageRefusal> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_bounded(&question) && !places.contains_key(&question) && is_full(&places) {
            // A page that waits for an answer holds its place.
            places.retain(|question, place| !is_bounded(question) || Arc::strong_count(place) > 1);
            if is_full(&places) {
                let words = format!("{QUESTIONS_MAX} other questions wait for answers: ask again");
                return Err(PageRefusal::unavailable(words));
            }
        }
        Ok(Arc::clone(places.entry(question).or_default()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test]
    async fn those_who_ask_at_a_time_share_one_answer() {
        let (answers, gathered) = (&Answers::default(), &AtomicU64::new(0));
        let ask = move |question| {
            let gather = async move {
                tokio::task::yield_now().await;
                Ok(Value::from(gathered.fetch_add(1, Ordering::Relaxed)))
            };
            answers.get(question, gather)
        };
        let all = futures::future::join_all((0..10).map(|_| ask(ConsoleQuestion::Cluster))).await;
        assert!(all.iter().all(|answer| answer.as_deref() == Ok(b"0".as_slice())), "{all:?}");
        assert_eq!(ask(ConsoleQuestion::Gpus).await.as_deref(), Ok(b"1".as_slice()), "another question");
    }

    #[tokio::test]
    async fn an_old_answer_is_gathered_anew_and_a_failed_one_does_not_stay() {
        let answers = Answers::default();
        let failed = answers.get(ConsoleQuestion::Gpus, async { Err(PageRefusal::unavailable("no".into())) }).await;
        assert_eq!(failed.unwrap_err().words, "no");
        let place = answers.place(ConsoleQuestion::Gpus).unwrap();
        let long_ago = Instant::now().checked_sub(2 * FRESH).unwrap();
        place.lock().await.as_mut().unwrap().0 = long_ago;
        let answer = answers.get(ConsoleQuestion::Gpus, async { Ok(Value::from(7)) }).await;
        assert_eq!(answer.as_deref(), Ok(b"7".as_slice()));
    }

    #[tokio::test]
    async fn places_are_bounded_and_those_that_nobody_waits_for_make_room() {
        let answers = Answers::default();
        let model = |number: usize| ConsoleQuestion::Model(format!("m{number}"));
        let held: Vec<_> = (0..QUESTIONS_MAX).map(|number| answers.place(model(number)).unwrap()).collect();
        assert!(answers.place(model(QUESTIONS_MAX)).unwrap_err().words.contains("ask again"));
        assert!(answers.place(model(0)).is_ok(), "its place is there");
        for always in [ConsoleQuestion::Cluster, ConsoleQuestion::Gpus] {
            assert!(answers.place(always).is_ok(), "it has a place of its own");
        }
        drop(held);
        assert!(answers.place(model(QUESTIONS_MAX)).is_ok());
        assert_eq!(answers.0.lock().unwrap().len(), 3);
    }
}
