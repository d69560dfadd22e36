//! The scenario made from tapes: models, profiles, delays and GPUs as the lead had them, and the requests as they
//! arrived.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use symphony_tape::{RecordedLoad, RecordedModel};
use symphony_types::{GpuClass, Nanos};
use symphony_workload::RecordedArrivals;

use crate::exit::bad_input;

/// The file of arrivals that the scenario names.
const ARRIVALS: &str = "arrivals";

/// How many GPUs there are of each class.
pub(super) type Gpus = Vec<(GpuClass, u32)>;

/// What all scenarios of a comparison share.
pub(super) struct RecordedScenario {
    recorded_gpus: Gpus,
    /// The parts of the text in front of the GPUs and behind them.
    before: String,
    behind: String,
    /// By name: profiles of models, and the arrivals.
    files: BTreeMap<String, String>,
    /// Classes on which every model can run.
    classes: Vec<GpuClass>,
    models: usize,
}

impl RecordedScenario {
    pub(super) fn new(load: &RecordedLoad, arrivals: &RecordedArrivals) -> anyhow::Result<Self> {
        let mut requests: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for row in &arrivals.rows {
            let (count, items) = requests.entry(&arrivals.sources[row.source as usize]).or_default();
            *count += 1;
            *items += u64::from(row.items.unwrap_or(1));
        }
        // Of models that had one name, one after the other, the last one counts.
        let recorded: BTreeMap<&str, &RecordedModel> =
            load.models().values().map(|model| (model.name.as_str(), model)).collect();
        let models: Vec<_> = requests
            .into_iter()
            .filter_map(|(name, (count, items))| Some((*recorded.get(name)?, count, items)))
            .collect();
        let mut files = BTreeMap::from([(ARRIVALS.to_owned(), arrivals.csv_lines().collect::<String>())]);
        let mut behind = String::new();
        for (number, &(model, count, items)) in models.iter().enumerate() {
            let file = format!("profile-{number}");
            model_text(&mut behind, &file, model, count, items);
            files.insert(file, profile_csv(model));
        }
        let runs_on = |class: &GpuClass| models.iter().all(|(model, ..)| model.known.profiles.get(*class).is_some());
        let lasts = arrivals.rows.last().map_or(Nanos::ZERO, |row| row.at);
        let longest = arrivals.rows.iter().filter_map(|row| row.slo).max().unwrap_or(Nanos::ZERO);
        Ok(Self {
            recorded_gpus: load.gpus().collect(),
            before: head(&models, lasts + longest),
            behind,
            files,
            classes: GpuClass::all().filter(runs_on).collect(),
            models: models.len(),
        })
    }

    /// Models with requests.
    pub(super) const fn models(&self) -> usize {
        self.models
    }

    /// The GPUs of the tapes.
    pub(super) fn recorded_gpus(&self) -> anyhow::Result<Gpus> {
        if self.recorded_gpus.is_empty() {
            return Err(bad_input(
                "no GPUs are on these tapes; expected the tape of the rank worker among them (…-rank.tape), or --gpus",
            ));
        }
        self.check(&self.recorded_gpus)?;
        Ok(self.recorded_gpus.clone())
    }

    /// GPUs in this number, in the proportions of the tapes.
    pub(super) fn gpus(&self, gpus: u32) -> anyhow::Result<Gpus> {
        let gpus = match (self.recorded_gpus.as_slice(), self.classes.first()) {
            ([], None) => return Err(bad_input("no kind of GPUs has a profile of every model on these tapes")),
            ([], Some(&class)) => vec![(class, gpus)],
            (recorded, _) => in_proportion(recorded, gpus),
        };
        self.check(&gpus)?;
        Ok(gpus)
    }

    fn check(&self, gpus: &[(GpuClass, u32)]) -> anyhow::Result<()> {
        match gpus.iter().find(|(class, _)| !self.classes.contains(class)) {
            Some((class, _)) => Err(bad_input(format!(
                "not every model has a profile for the GPUs of {class} on these tapes; expected profiles of all models for \
                 all GPUs"
            ))),
            None => Ok(()),
        }
    }

    /// The scenario with these GPUs.
    pub(super) fn text(&self, gpus: &[(GpuClass, u32)]) -> String {
        let mut text = self.before.clone();
        for (class, count) in gpus {
            let _ = writeln!(text, "[[gpu]]\nkind = \"{class}\"\ncount = {count}");
        }
        text + &self.behind
    }

    /// A file that the scenario names.
    pub(super) fn csv(&self, name: &str) -> Result<String, String> {
        self.files.get(name).cloned().ok_or_else(|| "is not on the tapes".to_owned())
    }
}

/// Everything in front of the first table of a list. Counting ends when the last request can have an answer in time.
fn head(models: &[(&RecordedModel, u64, u64)], duration: Nanos) -> String {
    let longest = |of: fn(&RecordedModel) -> Nanos| {
        let longest = models.iter().map(|(model, ..)| of(model)).max().unwrap_or(Nanos::ZERO);
        longest.get() as f64 / 1e3
    };
    // The simulator has one network for all models, without a fixed part for inputs: it is part of the way to the GPU.
    let control_us = longest(|model| {
        let delays = &model.known.delays;
        delays.control + delays.data.fixed.min(delays.data.max)
    });
    let data_us = longest(|model| model.known.delays.data.per_item.min(model.known.delays.data.max));
    let reply_us = longest(|model| model.known.delays.reply);
    let duration_s = duration.max(Nanos::from_millis(1)).as_secs_f64();
    format!(
        "name = \"the tapes\"\nwarmup_s = 0\nseeds = [1]\nduration_s = {duration_s}\n\
         [network]\nctrl_us = {control_us}\ndata_us_per_item = {data_us}\nreply_us = {reply_us}\n\
         [workload]\narrival = {{ trace_csv = \"{ARRIVALS}\" }}\n"
    )
}

/// Shares of the rate, for policies that need rates, are those of the requests.
fn model_text(text: &mut String, file: &str, model: &RecordedModel, count: u64, items: u64) {
    let batch_max = model.known.profiles.iter().map(|(_, profile)| profile.batch_max()).max().unwrap_or(1);
    let value = model.requests.first().map_or(1.0, |request| request.weight.number());
    let mean_items = (items as f64 / count.max(1) as f64).round().clamp(1.0, f64::from(batch_max));
    let _ = writeln!(
        text,
        "[[model]]\nname = {}\nprofile_csv = \"{file}\"\nbatch_max = {batch_max}\nslo_ms = {}\nweight = {count}\nvalue = {value}\n\
         items = {mean_items}",
        toml::Value::String(model.name.clone()),
        model.known.slo.as_millis_f64(),
    );
}

fn profile_csv(model: &RecordedModel) -> String {
    let mut csv = "gpu_kind,batch,latency_ms\n".to_owned();
    for (class, profile) in model.known.profiles.iter() {
        for (batch, latency) in (1..).zip(profile.table()) {
            let _ = writeln!(csv, "{class},{batch},{}", latency.as_millis_f64());
        }
    }
    csv
}

/// `total` GPUs by class in the proportions of `recorded`: rounded down, and what is left to the largest remainders.
fn in_proportion(recorded: &[(GpuClass, u32)], total: u32) -> Gpus {
    let all: u64 = recorded.iter().map(|(_, gpus)| u64::from(*gpus)).sum::<u64>().max(1);
    let exact = |gpus: u32| u64::from(gpus) * u64::from(total);
    let mut shares: Vec<(GpuClass, u64, u64)> =
        recorded.iter().map(|&(class, gpus)| (class, exact(gpus) / all, exact(gpus) % all)).collect();
    let given: u64 = shares.iter().map(|share| share.1).sum();
    shares.sort_by_key(|&(class, _, remainder)| (std::cmp::Reverse(remainder), class));
    let left = u64::from(total).saturating_sub(given) as usize;
    shares.iter_mut().take(left).for_each(|share| share.1 += 1);
    shares.sort_by_key(|share| share.0);
    shares.into_iter().filter(|share| share.1 > 0).map(|(class, gpus, _)| (class, gpus as u32)).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use symphony_scheduler::rivals::{Clockwork, ClockworkSettings};
    use symphony_scheduler::{
        Delays, ModelActions, ModelInput, ModelQueueConfig, Policy, PolicyRegistry, RankInput, Request,
    };
    use symphony_simulator::simulate;
    use symphony_tape::{Chunk, Tape, TapeHeader, TapeOrigin};
    use symphony_types::{BootId, FrontendId, GpuId, ModelId, RequestId, RequestValue, Time};
    use symphony_workload::{RecordedArrival, Scenario, Window, request_streams};

    use super::*;
    use crate::cli::{Cli, Command};

    const SCENARIO: &str = "name = 'a'\nduration_s = 3\nwarmup_s = 0\nseeds = [1]\n\
        [network]\nctrl_us = 100\nreply_us = 50\n[[gpu]]\nkind = 'x'\ncount = 2\n\
        [[model]]\nname = 'a'\nalpha_ms = 1.053\nbeta_ms = 5.072\nslo_ms = 25\nbatch_max = 16\n\
        [[model]]\nname = 'b'\nalpha_ms = 2\nbeta_ms = 9\nslo_ms = 70\nbatch_max = 16\ndeadline = { uniform_ms = [40, 90] }\n\
        [workload]\nrate_rps = 1100\narrival = 'poisson'";

    /// The scenario, whose arrivals are a trace that begins at zero, as those of tapes do.
    fn scenario(policy: &str) -> Scenario {
        let drawn = Scenario::parse("s.toml", SCENARIO, &[], &|_| Err("none".to_owned())).unwrap();
        let until = Time::ZERO + drawn.duration;
        let sources = drawn.models.iter().map(|model| model.name.clone()).collect();
        let mut arrivals = RecordedArrivals { sources, rows: Vec::new() };
        for (source, mut stream) in (0_u32..).zip(request_streams(&drawn, 1, drawn.rate_rps)) {
            while let Some(request) = stream.next_request().filter(|request| request.at < until) {
                let (at, items, slo) = (request.at.since(Time::ZERO), Some(request.items), Some(request.slo));
                arrivals.rows.push(RecordedArrival { at, source, items, slo });
            }
        }
        let from = arrivals.rows.iter().map(|row| row.at).min().unwrap();
        arrivals.cut(Window { from, span: None }, 1.0).unwrap();
        let csv: String = arrivals.csv_lines().collect();
        let set = [format!("policy={policy}"), "workload.arrival={ trace_csv = 't' }".to_owned()];
        Scenario::parse("s.toml", SCENARIO, &set, &|_| Ok(csv.clone())).unwrap()
    }

    /// The tape of a lead that saw the arrivals of the scenario from `begin` on. What it decided does not matter here.
    fn recorded(scenario: &Scenario, begin: Time) -> Vec<u8> {
        let mut chunk = Chunk::with_capacity(0);
        let network = scenario.network;
        for (number, model) in (0_u32..).zip(&scenario.models) {
            let config = ModelQueueConfig {
                profiles: model.profiles[0].clone().into(),
                slo: model.slo,
                policy: Policy::AUTO,
                delays: Delays { control: network.control, reply: network.reply, ..Delays::default() },
                requests_max: 1000,
            };
            chunk.model(number, ModelId::new(number), &model.name, number, &config);
        }
        chunk.ranker(9, 0, 0);
        for gpu in 0..scenario.gpu_count() {
            let add = RankInput::Add { gpu: GpuId::new(gpu), class: GpuClass::FIRST, free_at: begin };
            chunk.rank_step(9, begin, &add, &[]);
        }
        let mut sequence = 0;
        for (number, mut stream) in (0_u32..).zip(request_streams(scenario, 1, scenario.rate_rps)) {
            while let Some(request) = stream.next_request() {
                sequence += 1;
                let now = begin + request.at.since(Time::ZERO);
                let id = RequestId { frontend: FrontendId::new(1), boot: BootId::new(1), sequence };
                let (deadline, weight) = (now + request.slo, RequestValue::ONE);
                let (items, variant) = (request.items, request.variant);
                let arrive = ModelInput::Arrive(Request { id, deadline, items, weight, variant });
                chunk.model_step(number, now, &arrive, &ModelActions::default());
            }
        }
        let mut bytes = TapeHeader { origin: TapeOrigin::default(), worker: "decide".into() }.to_bytes();
        bytes.extend_from_slice(chunk.seal());
        bytes
    }

    fn load(bytes: &[u8]) -> RecordedLoad {
        let mut load = RecordedLoad::default();
        load.add(&Tape::open(bytes).unwrap()).unwrap();
        load
    }

    #[test]
    fn arrivals_that_were_recorded_give_the_same_counts_under_the_same_policy() {
        for policy in ["auto", "symphony", "clockwork"] {
            let original = scenario(policy);
            let expected = simulate(&original, 1, original.rate_rps).unwrap();
            let load = load(&recorded(&original, Time::from_nanos(3_600_000_000_123)));
            let arrivals = crate::tools::tape::arrivals(&load).unwrap();
            let of_tape = RecordedScenario::new(&load, &arrivals).unwrap();
            let text = of_tape.text(&of_tape.recorded_gpus().unwrap());
            let set = [format!("policy={policy}")];
            let again = Scenario::parse("tape", &text, &set, &|name: &str| of_tape.csv(name)).unwrap();
            let got = simulate(&again, 1, again.rate_rps).unwrap();
            for (got, expected) in got.models.iter().zip(&expected.models) {
                let counts = |of: &symphony_simulator::ModelResult| (of.offered, of.good, of.late, of.dropped);
                assert_eq!(got.name, expected.name);
                assert_eq!(counts(got), counts(expected), "{policy}, model {}", got.name);
            }
            assert!(expected.models.iter().any(|model| model.dropped > 0), "{policy}: the load shows nothing");
        }
    }

    #[test]
    fn policies_that_the_program_adds_are_compared_as_well() {
        let workspace = symphony_testkit::Workspace::new("compare-added").unwrap();
        let tape = workspace.file("a.tape");
        std::fs::write(&tape, recorded(&scenario("auto"), Time::ZERO)).unwrap();
        let tape = tape.display().to_string();
        let compare = |policies: &PolicyRegistry| {
            let words = ["symphony", "compare", &tape, "--policy", "auto,copy", "--threads", "1"];
            let Command::Compare(args) = Cli::try_parse_from(words).unwrap().command else { panic!("another command") };
            crate::tools::compare::run(&args, policies)
        };
        let error = compare(&PolicyRegistry::new()).unwrap_err().to_string();
        assert!(error.contains("--policy copy") && error.contains("expected one of"), "{error}");
        let added = PolicyRegistry::new().with("copy", |facts, options| {
            options.only(&[])?;
            let early = Nanos::from_millis(5);
            Ok(Box::new(Clockwork::new(facts, ClockworkSettings { commit: early, early })))
        });
        compare(&added).unwrap();
    }

    #[test]
    fn other_numbers_of_gpus_keep_the_proportions_of_kinds() {
        let class = |number| GpuClass::new(number).unwrap();
        let recorded = vec![(class(0), 3), (class(2), 1)];
        assert_eq!(in_proportion(&recorded, 8), [(class(0), 6), (class(2), 2)]);
        assert_eq!(in_proportion(&recorded, 2), [(class(0), 2)], "1.5 and 0.5, of equal remainders the first");
        assert_eq!(in_proportion(&recorded, 1), [(class(0), 1)]);
        let all = |total| in_proportion(&recorded, total).iter().map(|(_, gpus)| gpus).sum::<u32>();
        assert!((1..50).all(|total| all(total) == total));
    }

    #[test]
    fn without_the_tape_of_a_rank_worker_the_number_of_gpus_must_be_given() {
        let original = scenario("auto");
        let bytes = recorded(&original, Time::ZERO);
        let mut load = load(&bytes);
        let arrivals = crate::tools::tape::arrivals(&load).unwrap();
        let with = RecordedScenario::new(&load, &arrivals).unwrap();
        assert_eq!(with.gpus(5).unwrap(), [(GpuClass::FIRST, 5)]);
        load = RecordedLoad::default();
        let chunkless = TapeHeader { origin: TapeOrigin::default(), worker: "rank".into() }.to_bytes();
        load.add(&Tape::open(&chunkless).unwrap()).unwrap();
        let error = RecordedScenario::new(&load, &arrivals).unwrap().recorded_gpus().unwrap_err();
        assert!(error.to_string().contains("or --gpus"), "{error}");
    }
}
