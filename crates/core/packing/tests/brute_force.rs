//! Algorithm 1 against brute force: a thousand small instances need at most one GPU more.

mod random;

use random::Random;
use symphony_packing::{Session, squishy_bin_packing};
use symphony_types::{LatencyProfile, Nanos};

const INSTANCES: usize = 1000;
const SESSIONS_MAX: f64 = 6.0;
const BATCH_MAX: u32 = 32;

/// The items per second that a GPU does alone, in the largest batch within half the SLO.
fn alone(session: &Session<'_>) -> f64 {
    let fits = |batch: &u32| session.profile.latency(*batch).saturating_mul(2) <= session.slo;
    let batch = (1..=BATCH_MAX).rev().find(fits).unwrap_or(1);
    f64::from(batch) / session.profile.latency(batch).as_secs_f64()
}

/// Whether some duty cycle lets these residues share a GPU, whatever Algorithm 1 would choose.
fn fit_together(block: &[(Session<'_>, f64)]) -> bool {
    // Between two of these no batch size changes and no SLO is broken, and a longer cycle has more time.
    let mut ends = block.iter().flat_map(|(session, rate)| {
        (1..=BATCH_MAX).flat_map(move |batch| {
            [Nanos::from_secs_f64(f64::from(batch) / rate), session.slo - session.profile.latency(batch)]
        })
    });
    block.len() == 1 || ends.any(|duty| fit_in(block, duty))
}

fn fit_in(block: &[(Session<'_>, f64)], duty: Nanos) -> bool {
    let mut busy = Nanos::ZERO;
    for (session, rate) in block {
        let batch = ((duty.as_secs_f64() - 1e-9) * rate - 1e-6).ceil().max(1.0) as u32;
        let latency = session.profile.latency(batch);
        if duty + latency > session.slo + Nanos::new(2) {
            return false;
        }
        busy += latency;
    }
    busy <= duty
}

/// The fewest nodes, over all divisions of the residues into blocks.
fn fewest<'a>(left: &[(Session<'a>, f64)], blocks: &mut Vec<Vec<(Session<'a>, f64)>>, best: &mut usize) {
    let Some((next, left)) = left.split_first() else {
        *best = (*best).min(blocks.len());
        return;
    };
    if blocks.len() >= *best {
        return;
    }
    for at in 0..blocks.len() {
        blocks[at].push(*next);
        if fit_together(&blocks[at]) {
            fewest(left, blocks, best);
        }
        blocks[at].pop();
    }
    blocks.push(vec![*next]);
    fewest(left, blocks, best);
    blocks.pop();
}

#[test]
fn at_most_one_gpu_more_than_the_fewest() {
    let mut random = Random::new(6);
    let mut more = [0_usize; 2];
    for instance in 0..INSTANCES {
        let count = random.between(1.0, SESSIONS_MAX + 1.0) as usize;
        let profiles: Vec<_> = (0..count)
            .map(|_| LatencyProfile::from_line(random.between(0.2, 3.0), random.between(1.0, 15.0), BATCH_MAX).unwrap())
            .collect();
        let sessions: Vec<_> = profiles
            .iter()
            .map(|profile| {
                let slo = Nanos::from_millis_f64(random.between(40.0, 250.0));
                let session = Session { profile, slo, rate_per_second: 0.0 };
                Session { rate_per_second: random.between(0.02, 1.2) * alone(&session), ..session }
            })
            .collect();
        let (mut whole, mut residues) = (0, Vec::new());
        for session in &sessions {
            let gpus = session.rate_per_second / alone(session);
            whole += gpus as usize;
            if gpus.fract() > 0.0 {
                residues.push((*session, gpus.fract() * alone(session)));
            }
        }
        let mut least = residues.len();
        fewest(&residues, &mut Vec::new(), &mut least);
        let packed = squishy_bin_packing(&sessions).len();
        // Brute force forgives some nanoseconds, so it is never worse.
        let over = packed.checked_sub(whole + least).expect("brute force finds what Algorithm 1 finds");
        assert!(over <= 1, "instance {instance}: {packed} GPUs, {} are enough", whole + least);
        more[over] += 1;
    }
    eprintln!("of {INSTANCES} instances {} need no GPU more, {} one", more[0], more[1]);
    assert!(more[0] >= INSTANCES * 9 / 10, "{more:?}");
}
