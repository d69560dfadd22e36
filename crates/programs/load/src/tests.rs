//! The load generator against targets that behave, stall, lie, vanish, or block the generator itself.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{
    Answer, ArrivalKind, DigitInputs, DueRequest, EmulatedInputs, End, InputSet, LagLimits, LoadPlan, ModelLoad,
    OutputTensor, RandomInputs, Report, Request, Target, Verdict, run,
};
use bytes::Bytes;
use symphony_executor::{default_signature, digits, item_checksum};
use tokio_util::sync::CancellationToken;

const MS: Duration = Duration::from_millis(1);
/// Far above the timer errors of a busy test machine, far below the planted lag.
const TEST_LAG: LagLimits = LagLimits { p99: Duration::from_millis(1000), max: Duration::from_millis(1400) };

fn load(model: &str, rate_rps: f64, inputs: impl InputSet + 'static) -> ModelLoad {
    ModelLoad {
        model: model.into(),
        rate_rps,
        arrival: ArrivalKind::Uniform,
        recorded: None,
        slo: 2000 * MS,
        slack: Duration::ZERO,
        timeout: None,
        inputs: Arc::new(inputs),
    }
}

fn plan(models: Vec<ModelLoad>) -> LoadPlan {
    LoadPlan { seed: 1, warmup: 100 * MS, duration: 500 * MS, grace: 5000 * MS, lag: TEST_LAG, models }
}

fn random() -> RandomInputs {
    RandomInputs::new(&default_signature(), 1, 1)
}

fn emulated() -> EmulatedInputs {
    EmulatedInputs::new(&default_signature(), 1, 1)
}

async fn run_with<F, R>(plan: LoadPlan, answer: F) -> Report
where
    F: Fn(Request) -> R + Send + Sync + 'static,
    R: Future<Output = Answer> + Send,
{
    run(plan, Arc::new(Fake(answer)), CancellationToken::new()).await.unwrap()
}

struct Fake<F>(F);

impl<F, R> Target for Fake<F>
where
    F: Fn(Request) -> R + Send + Sync + 'static,
    R: Future<Output = Answer> + Send,
{
    fn send(&self, request: Request) -> impl Future<Output = Answer> + Send {
        (self.0)(request)
    }
}

/// What an emulated model answers.
fn checksum(request: &Request) -> Answer {
    let sum = item_checksum(request.inputs.iter().map(|(_, data)| data.as_ref()));
    let data = Bytes::copy_from_slice(&sum.to_le_bytes());
    let outputs = vec![OutputTensor { name: "OUTPUT0".into(), data }];
    Answer { end: End::Ok, id: Some(request.id), bytes: 4, outputs, batch: Some(3) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_behaves_gets_all_requests_and_a_clean_report() {
    let models = vec![load("digits", 200.0, DigitInputs::new()), load("emulated", 100.0, emulated())];
    let images = digits::test_set();
    // Every tenth image is classified wrongly, as by a real model.
    let answer = move |request: Request| {
        let mut answer = checksum(&request);
        if &*request.model == "digits" {
            let image = images.iter().find(|image| {
                let mut bytes = Vec::new();
                image.append_input(&mut bytes);
                bytes == *request.inputs[0].1
            });
            let label = i64::from(image.unwrap().label) + i64::from(request.id.is_multiple_of(10));
            answer.outputs = vec![OutputTensor { name: "label".into(), data: label.to_le_bytes().to_vec().into() }];
        }
        std::future::ready(answer)
    };
    let report = run_with(plan(models), answer).await;

    assert_eq!(report.verdict, Verdict::Passed, "{}", report.table());
    let [digits, emulated] = &report.models[..] else { panic!("{} models", report.models.len()) };
    assert_eq!((digits.offered, emulated.offered), (100, 50), "{}", report.table());
    assert_eq!((digits.good, emulated.good), (100, 50), "{}", report.table());
    assert_eq!((digits.sent, emulated.sent), (120, 60), "warm-up included");
    assert_eq!((emulated.accuracy, emulated.mean_batch), (Some(1.0), Some(3.0)));
    let accuracy = digits.accuracy.unwrap();
    assert!((0.8..1.0).contains(&accuracy), "{accuracy}");
    assert_eq!((report.total.offered, report.total.lost, report.total.answered_twice), (150, 0, 0));
    assert!(report.table().contains("total") && report.table().contains("the load was sent as planned"));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["verdict"]["result"], &json["models"][1]["good"]), (&"passed".into(), &50.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_requests_are_sent_once_each_with_its_own_deadline() {
    let mut plan = plan(vec![load("m", 0.0, random()), load("n", 1000.0, random())]);
    plan.warmup = Duration::ZERO;
    let due = |due: u32, slo| DueRequest { due: due * MS, slo };
    // The second one's own deadline cannot be met; that of the fourth is beyond the SLO; the last one lies behind the
    // end.
    let short = Duration::from_nanos(1);
    let requests =
        [due(0, Some(1500 * MS)), due(10, Some(short)), due(10, None), due(20, Some(9000 * MS)), due(600, None)];
    plan.models[0].recorded = Some(requests.into());
    plan.models[1].recorded = Some([due(5, None)].into());
    let timeouts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&timeouts);
    let report = run_with(plan, move |request| {
        seen.lock().unwrap().push((request.model.to_string(), request.timeout));
        std::future::ready(checksum(&request))
    })
    .await;
    let [m, n] = &report.models[..] else { panic!("{} models", report.models.len()) };
    assert_eq!((m.sent, m.good, m.late, n.sent, n.good), (4, 3, 1, 1, 1), "{}", report.table());
    let mut timeouts = timeouts.lock().unwrap().clone();
    timeouts.sort();
    let m = |timeout| ("m".to_owned(), timeout);
    let expected = [m(None), m(Some(short)), m(Some(1500 * MS)), m(Some(2000 * MS)), ("n".to_owned(), None)];
    assert_eq!(timeouts, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stalls_is_slow_but_the_generator_does_not_lag() {
    let mut plan = plan(vec![load("m", 200.0, random())]);
    plan.models[0].slo = 100 * MS;
    // Each answer takes longer than the run's pace and the lag allowed: a closed loop would send a handful.
    let report = run_with(plan, |request| async move {
        tokio::time::sleep(1500 * MS).await;
        checksum(&request)
    })
    .await;
    assert_eq!(report.verdict, Verdict::Passed, "{}", report.table());
    assert_eq!((report.total.offered, report.total.late, report.total.good), (100, 100, 0), "{}", report.table());
    assert!(report.total.p50_ms >= 1500.0, "{}", report.table());
    assert_eq!(report.total.longest_gap_ms, Some(500.0), "no good answer in the whole time that counts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_generator_that_lags_fails_the_run_although_the_server_is_quick() {
    // The only worker is blocked with each request, so that requests cannot leave on time: 120 × 30 ms in 0.6 s.
    let report = run_with(plan(vec![load("m", 200.0, random())]), |request| {
        std::thread::sleep(30 * MS);
        std::future::ready(checksum(&request))
    })
    .await;
    assert!(matches!(report.verdict, Verdict::Lagged { .. }), "{}", report.table());
    assert!(!report.verdict.passed() && report.lag.max_ms > 1000.0, "{}", report.table());
    assert!(report.verdict.to_string().contains("the generator lagged"), "{}", report.verdict);
    assert!(!report.table().contains("as planned") && !report.table().contains("lagged"), "{}", report.table());
    assert!(report.total.max_ms >= report.lag.max_ms, "latency counts from when a request was due");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_end_is_counted_under_its_reason_and_silence_is_loss() {
    let mut plan = plan(vec![load("m", 200.0, emulated())]);
    plan.warmup = Duration::ZERO;
    plan.grace = 200 * MS;
    let report = run_with(plan, |request| async move {
        match request.id % 5 {
            0 if request.id % 10 == 0 => Answer::ended(End::Refused("quota".into())),
            0 => checksum(&request),
            1 => Answer::ended(End::Dropped("slo_unreachable".into())),
            2 => Answer::ended(End::Failed("no_gpu".into())),
            3 => Answer { end: End::Late, ..checksum(&request) },
            _ => std::future::pending().await,
        }
    })
    .await;
    let total = &report.total;
    assert_eq!((total.sent, total.good, total.late, total.lost), (100, 10, 20, 20), "{}", report.table());
    assert_eq!(total.refused["quota"], 10);
    assert!(report.table().contains("refused: quota: 10"), "{}", report.table());
    assert_eq!((total.dropped["slo_unreachable"], total.failed["no_gpu"]), (20, 20));
    assert!((total.bad_rate - 0.9).abs() < 1e-9);
    assert_eq!(report.verdict, Verdict::Passed, "a server's losses are not the generator's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_to_other_requests_and_second_answers_are_found() {
    // Phase 1: outputs of the request before, under the right id.
    let before: Mutex<Option<Answer>> = Mutex::new(None);
    let report = run_with(plan(vec![load("m", 100.0, emulated())]), move |request| {
        let mut slot = before.lock().unwrap();
        let own = checksum(&request);
        let swapped = Answer { id: Some(request.id), ..slot.clone().unwrap_or_else(|| own.clone()) };
        *slot = Some(own);
        std::future::ready(swapped)
    })
    .await;
    assert_eq!(report.total.foreign, report.total.sent - 1, "all but the first: {}", report.table());
    assert!(report.table().contains("WRONG"), "{}", report.table());
    assert_eq!(report.total.answered_twice, 0);

    // Phase 2: one request's answer comes under another one's id, which is answered as well.
    let report = run_with(plan(vec![load("m", 100.0, random())]), |request| {
        let id = if request.id == 20 { 10 } else { request.id };
        std::future::ready(Answer { id: Some(id), ..checksum(&request) })
    })
    .await;
    assert_eq!((report.total.foreign, report.total.answered_twice), (1, 1), "{}", report.table());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blackout_shows_as_the_longest_gap_and_a_stop_ends_the_run() {
    // Phase 1: a hole of 600 ms in otherwise good answers.
    let mut blackout = plan(vec![load("m", 500.0, random())]);
    (blackout.warmup, blackout.duration) = (Duration::ZERO, 1400 * MS);
    let report = run_with(blackout, |request| async move {
        // Uniform arrivals of 2 ms: numbers 200 to 499 are due between 0.4 s and 1.0 s.
        let out = (200..500).contains(&request.id);
        if out { Answer::ended(End::Failed("no_gpu".into())) } else { checksum(&request) }
    })
    .await;
    let (gap, at) = (report.total.longest_gap_ms.unwrap(), report.total.longest_gap_at_s.unwrap());
    assert!(gap >= 300.0 && at < 1.0, "{gap} ms at {at} s");
    let window = report.tallies[0].longest_gap(400 * MS, 1000 * MS).unwrap();
    assert!(window.length >= 300 * MS && window.begin >= 400 * MS, "{window:?}");

    // Phase 2: an endless run is stopped by its third request.
    let stop = CancellationToken::new();
    let mut endless = plan(vec![load("m", 100.0, random())]);
    (endless.warmup, endless.duration) = (Duration::ZERO, Duration::from_secs(3600));
    let (sent, stopper) = (AtomicU64::new(0), stop.clone());
    let target = Fake(move |request: Request| {
        if sent.fetch_add(1, Ordering::Relaxed) == 2 {
            stopper.cancel();
        }
        std::future::ready(checksum(&request))
    });
    let report = run(endless, Arc::new(target), stop).await.unwrap();
    assert!(report.total.sent >= 3 && report.duration_s < 3600.0, "{}", report.table());
    assert_eq!(report.total.good, report.total.sent, "what was sent is answered for");
}

#[tokio::test]
async fn senseless_plans_are_refused_by_name() {
    let refused = async |change: fn(&mut LoadPlan)| {
        let mut plan = plan(vec![load("m", 1.0, random())]);
        change(&mut plan);
        let target = Arc::new(Fake(|request: Request| std::future::ready(checksum(&request))));
        run(plan, target, CancellationToken::new()).await.unwrap_err().to_string()
    };
    assert!(refused(|plan| plan.models.clear()).await.contains("models = 0: expected 1 to 1024"));
    assert!(refused(|plan| plan.duration = Duration::ZERO).await.contains("duration = 0ns"));
    assert!(refused(|plan| plan.models[0].rate_rps = f64::NAN).await.contains("rate and arrival of m = NaN"));
    assert!(refused(|plan| plan.models[0].rate_rps = 1e9).await.contains("rate of m = 1000000000"));
}
