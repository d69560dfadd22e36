//! A timeline as a trace for `chrome://tracing` and Perfetto: a track per GPU, a counter per queue.

use serde::Serialize;
use serde_json::{Value, json};
use symphony_types::Time;

use crate::pipelines::StageSpan;
use crate::timeline::{Batch, Timeline};

/// Processes of the trace, which group the tracks.
const GPUS: u32 = 1;
const QUEUES: u32 = 2;
const PIPELINES: u32 = 3;

#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    ph: &'a str,
    /// Microseconds.
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cname: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'a str>,
    args: Value,
}

/// A span on a track of [`spans_to_trace_json`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpan {
    /// Index of the track.
    pub track: u32,
    /// Its label.
    pub name: String,
    /// Its start.
    pub from: Time,
    /// Its end.
    pub until: Time,
    /// Its number of items.
    pub items: u32,
}

/// Spans from other measurements in the same format: a track per name, from top to bottom.
#[must_use]
pub fn spans_to_trace_json(title: &str, tracks: &[&str], spans: &[TraceSpan]) -> String {
    let mut events: Vec<Value> =
        vec![json!({ "name": "process_name", "ph": "M", "pid": GPUS, "args": { "name": title } })];
    for (tid, name) in (0_u32..).zip(tracks) {
        events.push(json!({ "name": "thread_name", "ph": "M", "pid": GPUS, "tid": tid, "args": { "name": name } }));
        let sort = json!({ "sort_index": tid });
        events.push(json!({ "name": "thread_sort_index", "ph": "M", "pid": GPUS, "tid": tid, "args": sort }));
    }
    events.extend(spans.iter().map(|span| {
        value(&Event {
            name: &span.name,
            ph: "X",
            ts: us(span.from),
            dur: Some(us(span.until) - us(span.from)),
            pid: GPUS,
            tid: span.track,
            cname: None,
            s: None,
            args: json!({ "items": span.items }),
        })
    }));
    json!({ "displayTimeUnit": "ms", "traceEvents": events }).to_string()
}

fn us(at: Time) -> f64 {
    at.as_nanos() as f64 / 1e3
}

fn ms(at: Time) -> f64 {
    at.as_nanos() as f64 / 1e6
}

impl Timeline {
    /// The timeline in the Trace Event Format (JSON).
    #[must_use]
    pub fn to_trace_json(&self) -> String {
        let mut events: Vec<Value> = vec![
            json!({ "name": "process_name", "ph": "M", "pid": GPUS, "args": { "name": self.title } }),
            json!({ "name": "process_name", "ph": "M", "pid": QUEUES, "args": { "name": "requests waiting" } }),
        ];
        for gpu in 0..self.gpus {
            let name = format!("GPU {gpu} ({})", self.kind_of(gpu));
            events.push(json!({ "name": "thread_name", "ph": "M", "pid": GPUS, "tid": gpu, "args": { "name": name } }));
            let sort = json!({ "sort_index": gpu });
            events.push(json!({ "name": "thread_sort_index", "ph": "M", "pid": GPUS, "tid": gpu, "args": sort }));
        }
        events.extend(self.batches.iter().map(|batch| self.batch_event(batch)));
        for length in &self.queues {
            events.push(value(&Event {
                name: &self.model_names[length.model as usize],
                ph: "C",
                ts: us(length.at),
                dur: None,
                pid: QUEUES,
                tid: 0,
                cname: None,
                s: None,
                args: json!({ "waiting": length.waiting }),
            }));
        }
        for &(at, model) in &self.drops {
            events.push(value(&Event {
                name: &format!("drop {}", self.model_names[model as usize]),
                ph: "i",
                ts: us(at),
                dur: None,
                pid: QUEUES,
                tid: 0,
                cname: None,
                s: Some("p"),
                args: json!({}),
            }));
        }
        if !self.pipelines.is_empty() {
            let args = json!({ "name": "requests of pipelines" });
            events.push(json!({ "name": "process_name", "ph": "M", "pid": PIPELINES, "args": args }));
        }
        events.extend(self.stages.iter().flat_map(|span| self.stage_events(span)));
        for &(gpu, from, until) in &self.outages {
            let until = until.min(self.range.until).max(from);
            events.push(value(&Event {
                name: "failed",
                ph: "X",
                ts: us(from),
                dur: Some(us(until) - us(from)),
                pid: GPUS,
                tid: gpu.get(),
                cname: Some("terrible"),
                s: None,
                args: json!({}),
            }));
        }
        let trace = json!({ "displayTimeUnit": "ms", "otherData": { "cut": self.is_cut }, "traceEvents": events });
        trace.to_string()
    }

    /// Begin and end of a stage request, below its request: events of one id are shown together.
    fn stage_events(&self, span: &StageSpan) -> [Value; 2] {
        let (pipeline, stages) = &self.pipelines[span.pipeline];
        let name = span.stage.and_then(|stage| stages.get(stage)).unwrap_or(pipeline);
        let id = format!("{pipeline} {}", span.number);
        [("b", span.from), ("e", span.until)].map(|(ph, at)| {
            let ts = us(at);
            json!({ "name": name, "cat": pipeline, "ph": ph, "id": id, "ts": ts, "pid": PIPELINES, "tid": 0 })
        })
    }

    fn batch_event(&self, batch: &Batch) -> Value {
        let (run, plan) = (&batch.run, &batch.run.plan);
        let cname = match () {
            () if batch.cut => Some("terrible"),
            () if batch.late > 0 => Some("bad"),
            () => None,
        };
        value(&Event {
            name: &format!("{} ×{}", self.model_names[run.model as usize], plan.batch),
            ph: "X",
            ts: us(run.start),
            dur: Some(us(run.end) - us(run.start)),
            pid: GPUS,
            tid: plan.gpu.get(),
            cname,
            s: None,
            args: json!({
                "items": plan.batch,
                "requests": plan.requests,
                "window_ms": [ms(batch.frontrun), ms(batch.latest)],
                "planned_ms": [ms(plan.start), ms(plan.end)],
                "actual_ms": [ms(run.start), ms(run.end)],
                "must_end_by_ms": ms(plan.must_end_by),
                "late_requests": batch.late,
                "stopped": batch.cut,
            }),
        })
    }

    pub(crate) fn kind_of(&self, gpu: u32) -> &str {
        let mut upto = 0;
        let found = self.gpu_kinds.iter().find(|(_, count)| {
            upto += count;
            gpu < upto
        });
        found.map_or("", |(kind, _)| kind)
    }
}

fn value(event: &Event<'_>) -> Value {
    // Only numbers and strings, so this cannot fail.
    serde_json::to_value(event).unwrap_or(Value::Null)
}
