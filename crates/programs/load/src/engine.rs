//! One run: a thread that paces, a task per request, and a collector.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::arrivals::Arrivals;
use crate::inputs::OutputCheck;
use crate::load_plan::{IN_FLIGHT_MAX, LoadPlan, ModelLoad, PlanError};
use crate::report::{Report, Verdict};
use crate::tally::Tally;
use crate::target::{Answer, End, Request, Target};

/// The longest sleep of the pacing thread: a stop is noticed within this time.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// How often ended requests are collected: a wake-up for each of them would cost more than adding it up.
const COLLECT_EVERY: Duration = Duration::from_millis(2);

/// The outcome of one request.
struct Record {
    model: usize,
    id: u64,
    /// When it was due, since the start.
    due: Duration,
    /// The time within which its answer is good, without the slack.
    slo: Duration,
    /// How late it was sent.
    lag: Duration,
    /// When its answer came, since the start, and what its outputs are.
    answered: Option<(Duration, Answer, OutputCheck)>,
}

/// Sends the plan's requests to `target`, and reports their outcomes. Cancelling `stop` ends the sending early; answers
/// are still waited for.
///
/// # Errors
/// If the plan is invalid. A generator that lags is not an error; the report's verdict says so.
pub async fn run<T: Target>(plan: LoadPlan, target: Arc<T>, stop: CancellationToken) -> Result<Report, PlanError> {
    let arrivals = plan.arrivals()?;
    let plan = Arc::new(plan);
    let strays_before = target.stray_answers();
    let (send, mut records) = mpsc::unbounded_channel();
    let give_up = CancellationToken::new();
    let start = Instant::now();
    let pacer = Pacer {
        plan: Arc::clone(&plan),
        target: Arc::clone(&target),
        start,
        in_flight: Arc::default(),
        records: send,
        give_up: give_up.clone(),
        runtime: Handle::current(),
    };
    let mut pacing = tokio::task::spawn_blocking(move || pacer.pace(arrivals, &stop));

    // The channel holds at most the requests that end between two collections; at most IN_FLIGHT_MAX are in flight at a
    // time.
    let mut collector = Collector::new(&plan);
    let paced = loop {
        tokio::select! {
            Some(record) = records.recv() => {
                collector.note(&plan, record);
                while let Ok(record) = records.try_recv() {
                    collector.note(&plan, record);
                }
                tokio::time::sleep(COLLECT_EVERY).await;
            }
            paced = &mut pacing => break paced,
        }
    };
    // A panic of the pacing thread is a bug; the requests that it had sent are still counted.
    let paced = paced.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    let waiting = async {
        while let Some(record) = records.recv().await {
            collector.note(&plan, record);
        }
    };
    if tokio::time::timeout(plan.grace, waiting).await.is_err() {
        give_up.cancel();
        while let Some(record) = records.recv().await {
            collector.note(&plan, record);
        }
    }
    let strays = target.stray_answers().saturating_sub(strays_before);
    Ok(collector.report(&plan, &paced, strays))
}

/// What the pacing thread did.
struct Paced {
    /// Requests sent per model.
    sent: Vec<u64>,
    /// Requests that were due while too many were in flight.
    withheld: u64,
    /// When the last request was due, or the run was stopped.
    until: Duration,
}

struct Pacer<T> {
    plan: Arc<LoadPlan>,
    target: Arc<T>,
    start: Instant,
    in_flight: Arc<AtomicUsize>,
    records: mpsc::UnboundedSender<Record>,
    give_up: CancellationToken,
    runtime: Handle,
}

impl<T: Target> Pacer<T> {
    /// Sends every request when it is due. Takes `self`, so that the channel closes with the last request's task.
    fn pace(self, mut arrivals: Vec<Arrivals>, stop: &CancellationToken) -> Paced {
        let end = self.plan.warmup + self.plan.duration;
        let mut due: BinaryHeap<_> =
            arrivals.iter_mut().enumerate().map(|(model, stream)| Reverse((stream.next_due(), model))).collect();
        let mut paced = Paced { sent: vec![0; arrivals.len()], withheld: 0, until: end };
        let (mut id, mut due_so_far) = (0, vec![0; arrivals.len()]);
        while let Some(Reverse((at, model))) = due.pop() {
            if at >= end {
                break;
            }
            if !self.sleep_until(at, stop) {
                paced.until = at.min(self.start.elapsed());
                break;
            }
            due.push(Reverse((arrivals[model].next_due(), model)));
            // Counts withheld ones, too: request n of a recording is its n-th.
            let n = due_so_far[model];
            due_so_far[model] += 1;
            if self.in_flight.load(Ordering::Relaxed) >= IN_FLIGHT_MAX {
                paced.withheld += 1;
                continue;
            }
            self.spawn(id, model, n, at);
            id += 1;
            paced.sent[model] += 1;
        }
        paced
    }

    /// Sleeps until that time since the start; false if stopped before.
    fn sleep_until(&self, at: Duration, stop: &CancellationToken) -> bool {
        loop {
            if stop.is_cancelled() {
                return false;
            }
            let left = at.saturating_sub(self.start.elapsed());
            if left.is_zero() {
                return true;
            }
            // Timers overshoot by some 50 µs, far below any lag that is allowed. Due times are absolute, so it does not
            // add up, and spinning would take the core from the server on small machines.
            std::thread::sleep(left.min(SLEEP_MAX));
        }
    }

    /// One request: model number `model`, its request number `n`, due at `due`.
    fn spawn(&self, id: u64, model: usize, n: u64, due: Duration) {
        let (plan, target, start) = (Arc::clone(&self.plan), Arc::clone(&self.target), self.start);
        let (records, give_up, in_flight) = (self.records.clone(), self.give_up.clone(), Arc::clone(&self.in_flight));
        in_flight.fetch_add(1, Ordering::Relaxed);
        self.runtime.spawn(async move {
            let load = &plan.models[model];
            let request = request(id, load, n);
            // Everything before this line is the generator's own time: waiting for a worker, making the input.
            let lag = start.elapsed().saturating_sub(due);
            let answer = tokio::select! {
                answer = target.send(request) => Some((start.elapsed(), answer)),
                () = give_up.cancelled() => None,
            };
            in_flight.fetch_sub(1, Ordering::Relaxed);
            let answered = answer.map(|(at, answer)| {
                let has_outputs = matches!(answer.end, End::Ok) || !answer.outputs.is_empty();
                let checked = if has_outputs { load.inputs.check(n, &answer.outputs) } else { OutputCheck::Unknown };
                (at, answer, checked)
            });
            // The receiver is gone only if the run itself was dropped.
            let _ = records.send(Record { model, id, due, slo: load.slo_of(n), lag, answered });
        });
    }
}

fn request(id: u64, load: &ModelLoad, n: u64) -> Request {
    let sample = load.inputs.sample(n);
    Request {
        id,
        model: Arc::clone(&load.model),
        items: sample.items,
        inputs: sample.inputs,
        pictures: sample.pictures,
        timeout: load.timeout_of(n),
    }
}

/// Adds records up.
struct Collector {
    tallies: Vec<Tally>,
    /// One bit per request id: whether an answer for it has come.
    answered: Vec<u64>,
}

impl Collector {
    fn new(plan: &LoadPlan) -> Self {
        Self { tallies: plan.models.iter().map(|_| Tally::new()).collect(), answered: Vec::new() }
    }

    fn note(&mut self, plan: &LoadPlan, record: Record) {
        let tally = &mut self.tallies[record.model];
        let load = &plan.models[record.model];
        let counts = record.due >= plan.warmup;
        if counts {
            tally.offered += 1;
            tally.note_lag(record.lag);
        }
        let Some((at, answer, checked)) = record.answered else {
            tally.lost += 1;
            return;
        };
        // An answer that names another request was meant for that one, which then gets two once its own arrives.
        let misdirected = answer.id.is_some_and(|id| id != record.id);
        let named = answer.id.unwrap_or(record.id);
        // An id in an answer is bounded by the number of requests sent so far.
        if named <= record.id.saturating_add(IN_FLIGHT_MAX as u64) {
            tally.answered_twice += u64::from(!first_answer(&mut self.answered, named));
        }
        let foreign = misdirected || checked == OutputCheck::Foreign;
        tally.foreign += u64::from(foreign);
        if !counts {
            return;
        }
        tally.bytes += answer.bytes;
        if let Some(items) = answer.batch {
            tally.batch_items += u64::from(items);
            tally.batches_reported += 1;
        }
        let (judged, right) = checked.judged();
        tally.judged += judged;
        tally.right += right;
        let latency = at.saturating_sub(record.due);
        match answer.end {
            End::Ok | End::Late if foreign => Tally::count_reason(&mut tally.failed, "foreign_answer".into(), 1),
            End::Ok if latency <= record.slo + load.slack => {
                tally.note_latency(latency);
                tally.note_good(at);
            }
            End::Ok | End::Late => {
                tally.note_latency(latency);
                tally.late += 1;
            }
            End::Refused(reason) => Tally::count_reason(&mut tally.refused, reason, 1),
            End::Dropped(reason) => Tally::count_reason(&mut tally.dropped, reason, 1),
            End::Failed(reason) => Tally::count_reason(&mut tally.failed, reason, 1),
        }
    }

    fn report(mut self, plan: &LoadPlan, paced: &Paced, strays: u64) -> Report {
        for (tally, sent) in self.tallies.iter_mut().zip(&paced.sent) {
            tally.sent = *sent;
        }
        let verdict = |lag_us: &hdrhistogram::Histogram<u64>| Verdict::of(lag_us, plan.lag, paced.withheld);
        Report::new(plan, self.tallies, strays, paced.until, verdict)
    }
}

/// Records that a request was answered; false if it had been answered before.
fn first_answer(answered: &mut Vec<u64>, id: u64) -> bool {
    let (word, bit) = ((id / 64) as usize, 1 << (id % 64));
    if answered.len() <= word {
        answered.resize(word + 1, 0);
    }
    let first = answered[word] & bit == 0;
    answered[word] |= bit;
    first
}
