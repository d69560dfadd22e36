//! A pipeline as the newest view has it, ready to be run.

use std::collections::BTreeMap;
use std::sync::Arc;

use symphony_pipeline::{DeclaredStage, InputData, PipelineDeclaration, RunPlan, Source, Wiring};
use symphony_protocol::view::{PipelineView, View};
use symphony_types::{DataType, ImageInput, LatencyProfile, Nanos, Signature, TensorSpec, Transforms, VersionedName};

use crate::clusters::routing::{PROFILE_OFF_MAX, Route, Routes, versions_of};
use crate::oip::{ModelInfo, ModelState, PipelineInfo, PipelineStep};

/// Pipelines by the names of their versions.
pub(crate) type Pipelines = BTreeMap<String, Arc<LivePipeline>>;

/// A version of a pipeline of a cluster.
#[derive(Debug)]
pub(crate) struct LivePipeline {
    pub(crate) declaration: PipelineDeclaration,
    pub(crate) wiring: Wiring,
    /// By stage: the edges out of it, as results are counted along them.
    pub(crate) ways: Vec<Vec<usize>>,
    /// By edge: the most rows of a result that lead on.
    pub(crate) most: Vec<u32>,
    /// As clients know it.
    pub(crate) info: Arc<ModelInfo>,
    /// None before the cluster has split its budget, or while a stage has no model.
    pub(crate) plan: Option<Arc<RunPlan>>,
    /// What an item costs its tenant: of every stage as often as it is expected to be asked.
    pub(crate) gpu_time_per_item: Nanos,
}

/// All pipelines of a view, of which these are the routes.
pub(crate) fn pipelines(view: &View, routes: &Routes) -> Pipelines {
    let live = |(name, pipeline): (&String, &PipelineView)| match LivePipeline::of(pipeline, routes) {
        Ok(live) => Some((name.clone(), Arc::new(live))),
        Err(refused) => {
            tracing::error!(pipeline = name, %refused, "the cluster has a pipeline that cannot be run");
            None
        }
    };
    view.pipelines.iter().filter_map(live).collect()
}

impl LivePipeline {
    pub(crate) fn of(view: &PipelineView, routes: &Routes) -> Result<Self, symphony_pipeline::Refused> {
        let declaration = view.declaration.clone();
        let wiring = declaration.validate()?;
        let models: Vec<_> = declaration.stages.iter().map(|stage| route_of(stage, routes)).collect();
        let mut ways = vec![Vec::new(); declaration.stages.len()];
        for (at, edge) in wiring.edges.iter().enumerate() {
            ways[edge.from].push(at);
        }
        let (mut plan, mut gpu_time_per_item, mut most) = (None, Nanos::ZERO, Vec::new());
        if let Some(profiles) = models.iter().map(|route| route.and_then(fastest)).collect::<Option<Vec<_>>>() {
            let profiles: Vec<_> = match &view.split {
                Some(split) => profiles.into_iter().zip(split.budgets()).map(as_budgeted).collect(),
                None => profiles,
            };
            let pipeline = declaration.pipeline(profiles)?;
            let gammas = view.split.iter().flat_map(|split| &split.gammas).map(|gamma| gamma.get());
            let pipeline = pipeline.with_gammas(&gammas.collect::<Vec<_>>());
            for (requests, route) in pipeline.requests_per_request().into_iter().zip(models.iter().flatten()) {
                gpu_time_per_item += Nanos::from_secs_f64(requests * route.gpu_time(1).as_secs_f64());
            }
            most = pipeline.edges().iter().map(|edge| edge.most).collect();
            if let Some(split) = &view.split {
                plan = Some(Arc::new(RunPlan::new(&pipeline, &split.budgets(), split.hop())?));
            }
        }
        let info = Arc::new(info(&declaration, &wiring, &models, plan.is_some()));
        Ok(Self { declaration, wiring, ways, most, info, plan, gpu_time_per_item })
    }

    pub(crate) fn stage_name(&self, stage: usize) -> &str {
        &self.declaration.stages[stage].name
    }
}

/// The model that answers a stage, by this cluster's view.
pub(crate) fn route_of<'a>(stage: &DeclaredStage, routes: &'a Routes) -> Option<&'a Route> {
    let exact = routes.get(&stage.model);
    let versions = if stage.names_a_version() { Vec::new() } else { versions_of(routes, &stage.model) };
    let versions = versions.iter().filter_map(|loaded_as| routes.get(loaded_as));
    versions.chain(exact).max_by_key(|route| (route.info.state == ModelState::Ready, route.info.version))
}

/// The profile of the kind of GPU that answers one item first.
fn fastest(route: &Route) -> Option<LatencyProfile> {
    route.profiles.iter().min_by_key(|profile| profile.latency(1)).cloned()
}

/// The profile by which a stage is left time at least. Budgets follow from what batches took, where that was measured:
/// if one is shorter than ℓ(1), the profile is too slow, and no request may be refused for that.
fn as_budgeted((profile, budget): (LatencyProfile, Nanos)) -> LatencyProfile {
    if profile.latency(1) <= budget {
        return profile;
    }
    LatencyProfile::from_table(&[Nanos::new(budget.get() / PROFILE_OFF_MAX)]).unwrap_or(profile)
}

fn info(declaration: &PipelineDeclaration, wiring: &Wiring, models: &[Option<&Route>], has_plan: bool) -> ModelInfo {
    let is_picture = |input: &&symphony_pipeline::PipelineInput| input.data == InputData::Picture;
    let mut image = None;
    let input = |(at, input): (usize, &symphony_pipeline::PipelineInput)| match &input.data {
        InputData::Tensor { data_type, item_shape } => {
            TensorSpec { name: input.name.clone(), data_type: *data_type, item_shape: item_shape.clone() }
        }
        InputData::Picture => {
            let (spec, transform) = picture(at, wiring, models).unzip();
            image = transform.map(|transform| ImageInput { input: input.name.clone(), ..transform });
            let unknown = || TensorSpec { name: String::new(), data_type: DataType::Uint8, item_shape: vec![1] };
            TensorSpec { name: input.name.clone(), ..spec.unwrap_or_else(unknown) }
        }
    };
    let inputs = declaration.inputs.iter().enumerate().map(input).collect();
    let mut labels = BTreeMap::new();
    for (output, wired) in declaration.outputs.iter().zip(&wiring.outputs) {
        let of_stage = models[wired.stage].and_then(|route| route.info.transforms.labels.get(&wired.output));
        if let Some(of_stage) = of_stage {
            labels.insert(output.tensor.name.clone(), of_stage.clone());
        }
    }
    let step = |stage: &DeclaredStage| {
        let VersionedName { name, version } = VersionedName::parse(&stage.model);
        PipelineStep {
            model: name.to_owned(),
            version: stage.names_a_version().then_some(version),
            inputs: stage.inputs.clone(),
            outputs: stage.outputs.clone(),
        }
    };
    let pipeline = PipelineInfo {
        picture: declaration.inputs.iter().find(is_picture).map(|input| input.name.clone()),
        any_rows: declaration.outputs.iter().map(|output| output.any_rows).collect(),
        steps: declaration.stages.iter().map(step).collect(),
    };
    ModelInfo {
        name: declaration.name.clone(),
        version: declaration.version,
        loaded_as: declaration.versioned().loaded_as(),
        signature: Signature {
            inputs,
            outputs: declaration.outputs.iter().map(|output| output.tensor.clone()).collect(),
        },
        transforms: Transforms { image, labels },
        batch_max: declaration.items_max,
        platform: "ensemble".to_owned(),
        slo: declaration.slo(),
        sheds: models.iter().flatten().any(|route| route.info.sheds),
        state: state(declaration, models, has_plan),
        pipeline: Some(Arc::new(pipeline)),
    }
}

/// What a picture of the client becomes for the stage that takes all of it, or else for one that takes regions.
fn picture(input: usize, wiring: &Wiring, models: &[Option<&Route>]) -> Option<(TensorSpec, ImageInput)> {
    let takes = |stage: usize, whole: bool| {
        let wired = &wiring.stages[stage];
        let place = wired.picture.filter(|_| wired.cropped_by.is_none() == whole)?;
        let taken = &wired.inputs[place];
        let info = &models[stage].filter(|_| taken.source == Source::Client(input))?.info;
        let spec = info.signature.inputs.iter().find(|spec| spec.name == taken.input)?;
        Some((spec.clone(), info.transforms.image.clone()?))
    };
    [true, false].into_iter().find_map(|whole| (0..models.len()).find_map(|stage| takes(stage, whole)))
}

/// Whether all stages can be asked.
fn state(declaration: &PipelineDeclaration, models: &[Option<&Route>], has_plan: bool) -> ModelState {
    for (stage, route) in declaration.stages.iter().zip(models) {
        let of_stage = |reason: &str| ModelState::Unavailable(format!("stage `{}`: {reason}", stage.name));
        match route.map(|route| &route.info.state) {
            Some(ModelState::Ready) => {}
            Some(ModelState::Unavailable(reason)) => return of_stage(reason),
            Some(other) => return other.clone(),
            None => return of_stage(&format!("there is no model `{}`", stage.model)),
        }
    }
    match has_plan {
        true => ModelState::Ready,
        false => ModelState::Unavailable(
            "its budget is not split between its stages yet; `symphony get pipelines` says why".to_owned(),
        ),
    }
}
