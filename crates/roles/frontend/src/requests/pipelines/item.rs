//! One item of a request on its way: which rows of which results each stage request takes.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use symphony_pipeline::{AskId, InputData, Source};
use symphony_types::FailReason;

use super::checked_run::CheckedRun;
use super::tensors::{numbers, output, row};
use crate::clusters::live_pipeline::LivePipeline;
use crate::oip::{InferError, ModelInfo};

/// A stage request of an item.
#[derive(Debug)]
pub(super) struct StageAsk {
    pub(super) stage: usize,
    /// The rows that it comes of, from the source on, along edges that lead on row by row.
    pub(super) path: Vec<u32>,
    pub(super) result: Option<StageResult>,
}

/// The result of a stage request.
#[derive(Debug)]
pub(super) struct StageResult {
    /// The model that gave it.
    pub(super) info: Arc<ModelInfo>,
    pub(super) payload: Bytes,
    pub(super) at: Instant,
    /// By edge out of its stage: the rows that lead on.
    pub(super) passing: Vec<Vec<u32>>,
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) run: CheckedRun,
    /// By their numbers.
    pub(super) asks: Vec<StageAsk>,
}

/// Where the rows that a stage is asked for come from, by edge into it.
#[derive(Debug, Default)]
pub(super) struct Feeds(Vec<Feed>);

#[derive(Debug)]
struct Feed {
    edge: usize,
    /// Stage request and row, in order.
    rows: Vec<(usize, u32)>,
}

impl Feed {
    /// What the nth stage request takes. Fewer rows of one go with all of another: the last one again.
    fn of(&self, nth: usize) -> Option<(usize, u32)> {
        self.rows.get(nth).or_else(|| self.rows.last()).copied()
    }
}

/// What clients sent.
#[derive(Debug)]
pub(super) struct ClientInputs {
    pub(super) payload: Bytes,
    /// One for each item; empty where the pipeline takes none.
    pub(super) pictures: Vec<Bytes>,
    /// By input of the pipeline: where its first item lies, and the bytes of one; none for pictures.
    pub(super) tensors: Vec<Option<(usize, usize)>>,
}

impl ClientInputs {
    pub(super) fn new(pipeline: &LivePipeline, items: u32, payload: Bytes, pictures: Vec<Bytes>) -> Self {
        let mut from = 0;
        let place = |(input, spec): (&symphony_pipeline::PipelineInput, &symphony_types::TensorSpec)| {
            if input.data == InputData::Picture {
                return None;
            }
            let at = from;
            from += items as usize * spec.item_bytes();
            Some((at, spec.item_bytes()))
        };
        let specs = &pipeline.info.signature.inputs;
        let tensors = pipeline.declaration.inputs.iter().zip(specs).map(place).collect();
        Self { payload, pictures, tensors }
    }

    fn tensor(&self, input: usize, item: usize) -> Option<Bytes> {
        let (from, bytes) = (*self.tensors.get(input)?)?;
        let from = from + item * bytes;
        (from + bytes <= self.payload.len()).then(|| self.payload.slice(from..from + bytes))
    }
}

/// The input of a stage request, but for its picture.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Assembled {
    pub(super) payload: Bytes,
    /// Where the picture has its place, if it takes one.
    pub(super) picture_at: Option<usize>,
}

impl Item {
    pub(super) const fn new(run: CheckedRun) -> Self {
        Self { run, asks: Vec::new() }
    }

    /// What stage requests that begin with `first` take.
    pub(super) fn feeds(&self, pipeline: &LivePipeline, stage: usize, first: AskId) -> Feeds {
        let inputs = self.run.inputs(first);
        let into = pipeline.wiring.edges.iter().enumerate().filter(|(_, edge)| edge.to == stage);
        let feed = |(edge, wired): (usize, &symphony_pipeline::WiredEdge)| {
            let way = pipeline.ways[wired.from].iter().position(|&way| way == edge)?;
            let of_stage = inputs
                .iter()
                .map(|ask| ask.get() as usize)
                .filter(|&ask| self.asks.get(ask).is_some_and(|entry| entry.stage == wired.from));
            let rows = of_stage.flat_map(|ask| {
                let result = self.asks[ask].result.as_ref();
                let passing = result.and_then(|result| result.passing.get(way)).map_or(&[][..], Vec::as_slice);
                passing.iter().map(move |&row| (ask, row))
            });
            Some(Feed { edge, rows: rows.collect() })
        };
        Feeds(into.filter_map(feed).collect())
    }

    /// The rows that the nth of them comes of: those of the parent that brings most.
    pub(super) fn path(&self, pipeline: &LivePipeline, feeds: &Feeds, nth: usize) -> Vec<u32> {
        let Some(feed) = feeds.0.iter().rev().max_by_key(|feed| feed.rows.len()) else { return Vec::new() };
        let Some((ask, row)) = feed.of(nth) else { return Vec::new() };
        let mut path = self.asks[ask].path.clone();
        if pipeline.wiring.edges[feed.edge].spec.per_row {
            path.push(row);
        }
        path
    }

    /// When the last result came that leads to these.
    pub(super) fn fed_at(&self, feeds: &Feeds) -> Option<Instant> {
        let asks = feeds.0.iter().flat_map(|feed| &feed.rows).map(|&(ask, _)| ask);
        asks.filter_map(|ask| self.asks[ask].result.as_ref().map(|result| result.at)).max()
    }

    /// The region of the nth one, in shares of what the model sees that found it, and that model.
    pub(super) fn region(
        &self,
        pipeline: &LivePipeline,
        feeds: &Feeds,
        edge: usize,
        nth: usize,
    ) -> Option<([f64; 4], &Arc<ModelInfo>)> {
        let crop = pipeline.wiring.edges[edge].crop.as_ref()?;
        let (ask, at) = feeds.0.iter().find(|feed| feed.edge == edge)?.of(nth)?;
        let result = self.asks[ask].result.as_ref()?;
        let (spec, data) = output(&result.info, &result.payload, &crop.boxes)?;
        let data = if pipeline.wiring.edges[edge].spec.per_row { row(spec, &data, at) } else { data };
        let sides: [f64; 4] = numbers(spec.data_type, &data).try_into().ok()?;
        let shares = match crop.unit {
            symphony_pipeline::BoxUnit::Share => sides,
            symphony_pipeline::BoxUnit::Pixel => {
                let image = result.info.transforms.image.as_ref()?;
                let (width, height) = (f64::from(image.width), f64::from(image.height));
                [sides[0] / width, sides[1] / height, sides[2] / width, sides[3] / height]
            }
        };
        Some((shares, &result.info))
    }

    /// The input of the nth stage request, as the model takes it. A tensor alone is not copied.
    ///
    /// # Errors
    /// If the model does not take what is connected to it, as it was loaded again.
    pub(super) fn assemble(
        &self,
        pipeline: &LivePipeline,
        client: (&ClientInputs, usize),
        (stage, feeds, nth): (usize, &Feeds, usize),
        info: &ModelInfo,
    ) -> Result<Assembled, InferError> {
        let wired = &pipeline.wiring.stages[stage];
        let (mut parts, mut bytes, mut picture_at) = (Vec::with_capacity(info.signature.inputs.len()), 0, None);
        for spec in &info.signature.inputs {
            let place = wired.inputs.iter().position(|input| input.input == spec.name);
            if place.is_some() && place == wired.picture {
                picture_at = Some(bytes);
                continue;
            }
            let part = place.and_then(|place| match &wired.inputs[place].source {
                Source::Client(input) => client.0.tensor(*input, client.1),
                Source::Stage { stage: from, output } => self.tensor(pipeline, (feeds, nth), *from, output),
            });
            // A model that was loaded again may take something else.
            let part = part.filter(|part| part.len() == spec.item_bytes());
            let part = part.ok_or(InferError::Failed(FailReason::ModelNotReady))?;
            bytes += part.len();
            parts.push(part);
        }
        let payload = match parts.as_slice() {
            [only] => only.clone(),
            several => several.concat().into(),
        };
        Ok(Assembled { payload, picture_at })
    }

    /// The output of another stage that the nth stage request takes, or its row of it.
    fn tensor(&self, pipeline: &LivePipeline, (feeds, nth): (&Feeds, usize), from: usize, name: &str) -> Option<Bytes> {
        let edges = &pipeline.wiring.edges;
        let feed = feeds.0.iter().find(|feed| edges[feed.edge].from == from)?;
        let (ask, at) = feed.of(nth)?;
        let result = self.asks[ask].result.as_ref()?;
        let (spec, data) = output(&result.info, &result.payload, name)?;
        Some(if edges[feed.edge].spec.per_row { row(spec, &data, at) } else { data })
    }
}
