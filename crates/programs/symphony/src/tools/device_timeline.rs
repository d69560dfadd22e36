//! The timeline of a GPU with consecutive batches, as a file: copies in, computation, copies out.

use std::path::Path;

use symphony_backend::PINNED_BYTES_MAX;
use symphony_executor::{BatchInputs, ModelExecutor};
use symphony_executor_gpu::overlap::{Device, Extent, Span, Spans};
use symphony_executor_gpu::{Cuda, PinnedPool, StagedModel};
#[cfg(feature = "simulation")]
use symphony_simulator::{TraceSpan, spans_to_trace_json};
use symphony_types::{Nanos, Time};

use crate::exit::bad_input;

/// Batches of a timeline: the first ones warm up, and the rest shows the steady state.
const BATCHES: u32 = 32;
const TRACKS: [&str; 3] = ["copy in", "compute", "copy out"];

/// Opens a GPU for a tool.
pub(super) fn open(ordinal: u32) -> anyhow::Result<Cuda> {
    Cuda::open(ordinal, &PinnedPool::new(PINNED_BYTES_MAX)).map_err(bad_input)
}

/// Refuses to: the form of the file is the simulator's.
#[cfg(not(feature = "simulation"))]
pub(super) fn write<D: Device>(_: &mut StagedModel<D>, _: u32, _: &str, _: &Path) -> anyhow::Result<f64> {
    Err(crate::left_out::left_out("profile --timeline", "simulation"))
}

/// Runs batches of this size, writes when each part of each was done, and returns the share of copies to the device
/// that overlapped with computations.
#[cfg(feature = "simulation")]
pub(super) fn write<D: Device>(model: &mut StagedModel<D>, items: u32, title: &str, out: &Path) -> anyhow::Result<f64> {
    let zeros: Vec<Vec<u8>> =
        model.signature().inputs.iter().map(|s| vec![0; s.item_bytes() * items as usize]).collect();
    let tensors: Vec<_> = zeros.iter().map(Vec::as_slice).collect();
    let spans = model.trace(&BatchInputs { items, tensors: &tensors, start: None }, BATCHES)?;
    std::fs::write(out, trace_json(title, &spans)).map_err(|error| anyhow::anyhow!("{}: {error}", out.display()))?;
    let hidden = hidden(&spans);
    eprintln!(
        "written to {}: {:.1} % of the copies to the device fell into computations",
        out.display(),
        hidden * 100.0
    );
    Ok(hidden)
}

/// The share of copies to the device, except the first, that overlapped with the computation of another batch.
fn hidden(spans: &[(Extent, Spans)]) -> f64 {
    let nanos = |span: Span| span.until.saturating_sub(span.from).get();
    let copied: u64 = spans.iter().skip(1).map(|(_, spans)| nanos(spans.copy_in)).sum();
    let pairs = spans.iter().zip(spans.iter().skip(1));
    let shared: u64 = pairs.map(|((_, this), (_, next))| next.copy_in.shared_with(this.compute).get()).sum();
    if copied == 0 { 0.0 } else { shared as f64 / copied as f64 }
}

#[cfg(feature = "simulation")]
fn trace_json(title: &str, spans: &[(Extent, Spans)]) -> String {
    let at = |nanos: Nanos| Time::from_nanos(nanos.get());
    let of_batch = |(batch, (extent, spans)): (usize, &(Extent, Spans))| {
        let items = extent.items;
        (0..).zip([spans.copy_in, spans.compute, spans.copy_out]).map(move |(track, span)| {
            let name = format!("batch {batch} ×{items}");
            TraceSpan { track, name, from: at(span.from), until: at(span.until), items }
        })
    };
    let spans: Vec<_> = spans.iter().enumerate().flat_map(of_batch).collect();
    spans_to_trace_json(title, &TRACKS, &spans)
}

#[cfg(test)]
mod tests {
    use symphony_executor::default_signature;
    use symphony_executor_gpu::Answers;
    use symphony_executor_gpu::overlap::{FakeDevice, FakePace};

    use super::*;

    #[test]
    fn a_timeline_shows_three_tracks_and_how_much_was_hidden() {
        let device = FakeDevice::new(&[64], FakePace::default(), 1);
        let mut model = StagedModel::new(device, "fake", default_signature(), 8, Answers::Checksums);
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("timeline.json");
        let hidden = write(&mut model, 8, "a fake", &out).unwrap();
        assert_eq!(hidden, 1.0, "all of it: copies are short, and staged at once");
        let trace: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let on = |track: u64| events.iter().filter(move |e| e["ph"] == "X" && e["tid"] == track).collect::<Vec<_>>();
        for track in 0..3 {
            assert_eq!(on(track).len(), BATCHES as usize);
        }
        // The copy of the second batch lies within the computation of the first.
        let ends = |e: &serde_json::Value| e["ts"].as_f64().unwrap() + e["dur"].as_f64().unwrap();
        let (compute, copy) = (on(1)[0], on(0)[1]);
        assert!(copy["ts"].as_f64() >= compute["ts"].as_f64() && ends(copy) <= ends(compute), "{compute} {copy}");
        assert_eq!(compute["args"]["items"], 8);
    }

    #[test]
    fn copies_that_are_not_hidden_count_as_such() {
        let span = |from, until| Span { from: Nanos::new(from), until: Nanos::new(until) };
        let batch =
            |copy_in, compute| (Extent { items: 1, filled: 1 }, Spans { copy_in, compute, copy_out: Span::default() });
        let apart = [batch(span(0, 10), span(10, 20)), batch(span(20, 30), span(30, 40))];
        assert_eq!(hidden(&apart), 0.0);
        let half = [batch(span(0, 10), span(10, 20)), batch(span(15, 25), span(25, 40))];
        assert_eq!(hidden(&half), 0.5);
        assert_eq!(hidden(&[]), 0.0);
    }
}
