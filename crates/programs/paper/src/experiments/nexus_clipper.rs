//! Clipper as the Nexus paper runs it (section 7.2): GPUs allocated without regard to batches, a container for each
//! model on a GPU, lazy drop, budgets in equal shares.

use anyhow::Result;
use symphony_packing::{Session, batch_oblivious};
use symphony_types::{LatencyProfile, Nanos};

use super::nexus_apps::{Case, Line, PRE_MS, Service, ablation, gpus};
use crate::lab::Lab;
use crate::setup::{Models, Setup};
use crate::system::CLIPPER;

/// Rows of profiles that the allocation looks at; every budget here ends before.
const BATCH_MAX: u32 = 256;

impl Service {
    /// In a container beside others, all of which are busy: the GPU takes that many times as long, and in front of
    /// each batch there is pre-processing.
    fn beside(&self, containers: usize) -> Line {
        let times = containers as f64;
        Line { alpha_ms: times * self.line.alpha_ms, beta_ms: times * self.line.beta_ms + PRE_MS }
    }

    fn container(&self, lab: &Lab<'_>, containers: usize) -> Setup {
        let Line { alpha_ms, beta_ms } = self.beside(containers);
        let models = vec![Models { slo_ms: self.slo_ms, ..Models::line(&self.name, alpha_ms, beta_ms) }];
        let name = format!("{} in one of {containers} containers", self.name);
        let mut setup = lab.setup(&name, 1, models).with_policy(CLIPPER.policy);
        setup.arrival = r#""uniform""#.to_owned();
        setup.duration_s = lab.pick(30.0, 5.0);
        setup
    }
}

/// By service, how many containers there are on the GPU of each of its own.
fn containers(services: &[Service], gpus: u32) -> Result<Vec<Vec<usize>>> {
    let profile = |service: &Service| {
        let Line { alpha_ms, beta_ms } = service.beside(1);
        LatencyProfile::from_line(alpha_ms, beta_ms, BATCH_MAX)
    };
    let profiles: Vec<_> = services.iter().map(profile).collect::<Result<_, _>>()?;
    let pairs = services.iter().zip(&profiles);
    let sessions: Vec<_> = pairs
        .map(|(service, profile)| Session {
            profile,
            slo: Nanos::from_millis_f64(service.slo_ms),
            rate_per_second: service.per_request,
        })
        .collect();
    let nodes = batch_oblivious(&sessions, gpus as usize);
    let of = |service: usize| nodes.iter().filter(|node| node.runs(service)).map(|node| node.sessions.len()).collect();
    Ok((0..services.len()).map(of).collect())
}

/// As [`ablation`], where the last case is Clipper's, which is asked for these services.
pub(crate) fn ablation_beside_clipper(
    lab: &Lab<'_>,
    cases: &[Case],
    per_request: impl Fn(&Case) -> f64,
    setup: impl Fn(&Case) -> Setup,
    services: &[Service],
) -> Result<Vec<f64>> {
    let mut found = ablation(lab, &cases[..cases.len() - 1], per_request, setup)?;
    found.push(throughput(lab, services, gpus(lab))?);
    Ok(found)
}

/// Requests of the application per second of which 99 % of each model's are in time. Each container is simulated by
/// itself; its model's requests go to all of them by what they can do.
fn throughput(lab: &Lab<'_>, services: &[Service], gpus: u32) -> Result<f64> {
    let containers = containers(services, gpus)?;
    let each = services.iter().zip(&containers);
    let setups: Vec<_> =
        each.clone().flat_map(|(service, of)| of.iter().map(|&beside| service.container(lab, beside))).collect();
    let mut goodputs = lab.goodputs(&setups)?.into_iter();
    let able = each.map(|(service, of)| goodputs.by_ref().take(of.len()).sum::<f64>() / service.per_request);
    Ok(able.fold(f64::INFINITY, f64::min))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_shared_in_proportion_and_containers_on_one_slow_each_other_down() {
        let service = |name: &str, per_request| Service {
            name: name.to_owned(),
            line: Line { alpha_ms: 1.0, beta_ms: 5.0 },
            slo_ms: 100.0,
            per_request,
        };
        let services = [service("often", 5.0), service("seldom", 1.0), service("rarely", 2.0)];
        // Of four GPUs two and a half, a half, and one, which begins where the first has left half of one.
        assert_eq!(containers(&services, 4).unwrap(), [vec![1, 1, 2], vec![2], vec![2, 2]]);
        let beside = services[0].beside(2);
        assert_eq!((beside.alpha_ms, beside.beta_ms), (2.0, 10.0 + PRE_MS));
    }
}
