//! Problems that operators write: fleets, sessions and pipelines to be split, the first two with a CSV for whatever
//! file they name.

use symphony_fleet::{Bound, FleetProblem, rank};
use symphony_pipeline::{PipelineFile, STAGES_MAX};
use symphony_placement::read_sessions;
use symphony_types::LatencyProfile;

/// Between the problem and its CSV.
const SEPARATOR: char = '\u{1e}';
/// Fleets times sizes of requests that are ranked here: most mutations of a budget buy more than there is time for.
const RANKED_MAX: u64 = 2000;

fn parts(bytes: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(bytes);
    let (problem, csv) = text.split_once(SEPARATOR).unwrap_or((&text, ""));
    (problem.to_owned(), csv.to_owned())
}

/// FLEET.toml of `symphony plan fleet`.
pub fn fleet(bytes: &[u8]) {
    let (text, csv) = parts(bytes);
    match FleetProblem::parse("fuzz.toml", &text, &|_| Ok(csv.clone())) {
        Ok(problem) => {
            assert!(problem.models.iter().all(|model| model.items_max() > 0 && model.share >= 0.0));
            let sizes: u64 = problem.models.iter().map(|model| model.sizes.len() as u64).sum();
            let fleets = problem.kinds.iter().map(|kind| u64::from(kind.count_max) + 1);
            if fleets.fold(sizes, u64::saturating_mul) <= RANKED_MAX
                && let Ok(ranking) = rank(&problem, Bound::Together)
            {
                assert!(problem.affordable(&ranking.chosen().counts));
                assert!(ranking.fleets.iter().all(|fleet| fleet.bound_rps >= 0.0));
            }
        }
        Err(error) => assert!(error.to_string().starts_with("fuzz.toml: "), "{error}"),
    }
}

/// SESSIONS.toml of `symphony plan pack`.
pub fn sessions(bytes: &[u8]) {
    let (text, csv) = parts(bytes);
    match read_sessions("fuzz.toml", &text, &|_| Ok(csv.clone())) {
        Ok(sessions) => {
            assert!(sessions.iter().all(|session| session.rate_per_second >= 0.0 && session.profile.batch_max() > 0));
        }
        Err(error) => assert!(error.to_string().contains("fuzz.toml"), "{error}"),
    }
}

/// PIPELINE.toml of `symphony plan split`. Splits take too long here; property tests of the crate ask for them.
pub fn split(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let profile = |_: &str, _: Option<&str>| LatencyProfile::from_line(1.0, 1.0, 8).map_err(|error| error.to_string());
    match PipelineFile::parse("fuzz.toml", &text, &profile) {
        Ok(file) => {
            assert!((1..=STAGES_MAX).contains(&file.pipeline.stages().len()));
            assert!(file.rate_rps > 0.0 && file.rate_rps.is_finite());
        }
        Err(error) => assert!(error.to_string().starts_with("fuzz.toml: "), "{error}"),
    }
}

pub(super) fn split_seeds() -> Vec<Vec<u8>> {
    vec![include_bytes!("../../../deploy/pipelines/traffic.toml").to_vec()]
}

pub(super) fn fleet_seeds() -> Vec<Vec<u8>> {
    let latencies = "kind,items,latency_ms\na,1,10\na,10,50\nb,1,40\nb,10,200\n";
    let one = format!(
        "budget_per_hour = 2.0\nslo_ms = 100.0\nlatency_csv = \"l.csv\"\nitems = {{ lognormal = {{ mean = 1.0, sigma = 0.5 }} }}\n\
         kind = [ {{ name = \"a\", price_per_hour = 0.5, count_max = 3 }}, {{ name = \"b\", price_per_hour = 0.2 }} ]\n{SEPARATOR}{latencies}"
    );
    let two = format!(
        "budget_per_hour = 1\n[[kind]]\nname = \"a\"\nprice_per_hour = 0.5\n[[model]]\nname = \"m\"\nshare = 3.0\nslo_ms = 60.0\n\
         items = 4\nlatency_csv = \"l\"\n[[model]]\nname = \"n\"\nslo_ms = 100\nshare = 1\nlatency_csv = \"l\"\n{SEPARATOR}{latencies}"
    );
    [one, two].map(String::into_bytes).into()
}

pub(super) fn sessions_seeds() -> Vec<Vec<u8>> {
    let text = format!(
        "[[session]]\nname = \"A\"\nslo_ms = 200.0\nrate_rps = 64.0\nprofile_csv = \"a.csv\"\n[[session]]\nname = \"B\"\n\
         slo_ms = 250\nrate_rps = 32\nalpha_ms = 4.0\nbeta_ms = 20.0\nbatch_max = 16\n{SEPARATOR}batch,latency_ms\n4,50\n8,75\n16,100\n"
    );
    vec![text.into_bytes()]
}
