//! Evaluates the backends' journals: which leaders they obeyed, and what ran on each GPU when. Judged from the records
//! alone, not by the backend's own view of itself.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context as _, Result};
use symphony_protocol::journal::Record;

/// Findings that are kept in words; more are counted.
const FINDINGS_MAX: usize = 16;

/// A backend's GPU: backend, GPU.
type Gpu = (usize, u32);

/// What the records show.
#[derive(Debug, Default)]
pub(crate) struct Executions {
    /// Batches accepted, and run.
    pub(crate) accepted: u64,
    pub(crate) ran: u64,
    /// Requests executed, and executions of requests that had been executed before.
    pub(crate) requests: u64,
    pub(crate) again: u64,
    /// Batches accepted under a token below one that was asked for, or accepted, before.
    pub(crate) stale: u64,
    /// Batches that began before another one on the same GPU had ended.
    pub(crate) overlapping: u64,
    /// Tokens under which two replicas gave orders.
    pub(crate) disputed: u64,
    /// Records that are missing or cannot be read: beyond those, nothing is proved.
    pub(crate) missing: u64,
    /// The first of them in words.
    pub(crate) findings: Vec<String>,
    /// When a plan of which replica was accepted, by the machine's clock.
    pub(crate) orders: BTreeMap<u64, Vec<u64>>,
    /// When a GPU was first sealed under each token, by the same clock.
    pub(crate) seals: BTreeMap<u64, u64>,
}

/// Reads one journal. A line that a kill cut is passed over, any other that cannot be read is counted.
pub(crate) fn read(path: &Path) -> Result<(Vec<Record>, u64)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(parse(&text))
}

fn parse(text: &str) -> (Vec<Record>, u64) {
    let (mut records, mut garbled) = (Vec::new(), 0);
    // A boot's last line may be half: then the file ends, or the next boot begins.
    let mut half = false;
    for line in text.lines().filter(|line| !line.is_empty()) {
        match serde_json::from_str::<Record>(line) {
            Ok(record) => {
                garbled += u64::from(half && !matches!(record, Record::Registered { .. }));
                half = false;
                records.push(record);
            }
            Err(_) => {
                garbled += u64::from(half);
                half = true;
            }
        }
    }
    (records, garbled)
}

/// Judges the journals of all backends.
pub(crate) fn judge(journals: &[(Vec<Record>, u64)]) -> Executions {
    let mut this = Executions::default();
    let mut spans: BTreeMap<Gpu, Vec<(u64, u64)>> = BTreeMap::new();
    let mut times: HashMap<(u32, u64, u64), u32> = HashMap::new();
    for (backend, (records, garbled)) in journals.iter().enumerate() {
        this.missing += garbled;
        this.judge_orders(backend, records);
        for record in records {
            if let Record::Ran { gpu, start_ns, end_ns, requests, .. } = record {
                this.ran += 1;
                this.requests += requests.len() as u64;
                spans.entry((backend, *gpu)).or_default().push((*start_ns, *end_ns));
                for &request in requests {
                    *times.entry(request).or_default() += 1;
                }
            }
        }
    }
    this.again = times.values().map(|&times| u64::from(times) - 1).sum();
    for ((backend, gpu), mut spans) in spans {
        spans.sort_unstable();
        let mut busy_until = 0;
        for (start, end) in spans {
            if start < busy_until {
                this.overlapping += 1;
                let early = busy_until - start;
                this.find(format!(
                    "I1: GPU {gpu} of backend {}: a batch began {early} ns before another one ended",
                    backend + 1
                ));
            }
            busy_until = busy_until.max(end);
        }
    }
    this
}

impl Executions {
    /// Those of several clusters, whose GPUs, tokens and requests have nothing to do with each other. Who gave orders
    /// when is left out: replicas of different clusters have the same ids.
    pub(crate) fn together(each: Vec<Self>) -> Self {
        let mut all = Self::default();
        for one in each {
            all.accepted += one.accepted;
            all.ran += one.ran;
            all.requests += one.requests;
            all.again += one.again;
            all.stale += one.stale;
            all.overlapping += one.overlapping;
            all.disputed += one.disputed;
            all.missing += one.missing;
            one.findings.into_iter().for_each(|finding| all.find(finding));
        }
        all
    }

    fn judge_orders(&mut self, backend: usize, records: &[Record]) {
        // A requested token counts as promised: a backend that promised less broke its word then.
        let mut promised: BTreeMap<u32, u64> = BTreeMap::new();
        let mut leaders: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for record in records {
            match record {
                Record::Registered { gpus, token, .. } => {
                    for &gpu in gpus {
                        let promise = promised.entry(gpu).or_default();
                        *promise = (*promise).max(*token);
                    }
                }
                Record::Sealed { at_ns, gpu, node, token, .. } => {
                    let first = self.seals.entry(*token).or_insert(*at_ns);
                    *first = (*first).min(*at_ns);
                    let promise = promised.entry(*gpu).or_default();
                    *promise = (*promise).max(*token);
                    self.judge_leader(&mut leaders, backend, *gpu, *token, *node);
                }
                Record::Accepted { at_ns, gpu, node, token, sequence } => {
                    self.accepted += 1;
                    self.orders.entry(*node).or_default().push(*at_ns);
                    let promise = promised.entry(*gpu).or_default();
                    if *token < *promise {
                        self.stale += 1;
                        let backend = backend + 1;
                        self.find(format!(
                            "I1: GPU {gpu} of backend {backend} accepted plan {sequence} under token {token}; {promise} had been asked for"
                        ));
                    }
                    *promise = (*promise).max(*token);
                    self.judge_leader(&mut leaders, backend, *gpu, *token, *node);
                }
                Record::Ran { .. } => {}
                Record::Missed { records } => self.missing += records,
            }
        }
    }

    fn judge_leader(
        &mut self,
        leaders: &mut BTreeMap<(u32, u64), u64>,
        backend: usize,
        gpu: u32,
        token: u64,
        node: u64,
    ) {
        let first = *leaders.entry((gpu, token)).or_insert(node);
        if first != node {
            self.disputed += 1;
            let backend = backend + 1;
            self.find(format!(
                "I2: replicas {first} and {node} gave orders to GPU {gpu} of backend {backend} under token {token}"
            ));
        }
    }

    /// When the last plan of a replica was accepted within [from, to); none if none was.
    pub(crate) fn last_order(&self, node: u64, from_ns: u64, to_ns: u64) -> Option<u64> {
        let orders = self.orders.get(&node)?;
        orders.iter().copied().filter(|at| (from_ns..to_ns).contains(at)).max()
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(token: u64) -> Record {
        Record::Registered { at_ns: 0, backend: 1, boot: 1, gpus: vec![1, 2], token }
    }

    fn sealed(token: u64, node: u64) -> Record {
        Record::Sealed { at_ns: 0, gpu: 1, node, token, promised: token }
    }

    fn accepted(token: u64, node: u64) -> Record {
        Record::Accepted { at_ns: 0, gpu: 1, node, token, sequence: 1 }
    }

    fn ran(gpu: u32, start_ns: u64, end_ns: u64, request: u64) -> Record {
        Record::Ran { gpu, token: 1, sequence: 1, start_ns, end_ns, requests: vec![(1, 1, request)] }
    }

    fn judged(records: Vec<Record>) -> Executions {
        judge(&[(records, 0)])
    }

    #[test]
    fn a_take_over_that_keeps_its_word_is_clean() {
        let found = judged(vec![
            registered(5),
            sealed(6, 1),
            accepted(6, 1),
            ran(1, 10, 20, 1),
            // On another GPU at the same time, and on this one from the moment on.
            ran(2, 12, 30, 2),
            sealed(9, 2),
            ran(1, 20, 25, 3),
            accepted(9, 2),
            // The old leader asks again, and gets nothing.
            sealed(6, 1),
            registered(12),
            sealed(13, 2),
            accepted(13, 2),
        ]);
        assert_eq!((found.accepted, found.ran, found.requests), (3, 3, 3));
        assert_eq!((found.stale, found.overlapping, found.disputed, found.again, found.missing), (0, 0, 0, 0, 0));
        assert_eq!(found.findings, [""; 0]);
    }

    #[test]
    fn each_planted_fault_is_found() {
        // The fence forgets a promise: the backend says it promised 6 when 9 was asked for.
        let forgetful = Record::Sealed { at_ns: 0, gpu: 1, node: 2, token: 9, promised: 6 };
        assert_eq!(judged(vec![registered(5), sealed(6, 1), forgetful, accepted(6, 1)]).stale, 1);
        // Tokens go back without any seal.
        assert_eq!(judged(vec![registered(5), accepted(9, 2), accepted(6, 1)]).stale, 1);
        // A restarted backend forgets what its registration promised.
        assert_eq!(judged(vec![registered(5), sealed(6, 1), registered(9), accepted(6, 1)]).stale, 1);
        // One began a nanosecond before the other ended, though it was written down later.
        assert_eq!(judged(vec![ran(1, 20, 30, 1), ran(1, 10, 21, 2)]).overlapping, 1);
        // One inside another, and another GPU's in between.
        assert_eq!(judged(vec![ran(1, 10, 40, 1), ran(2, 12, 13, 3), ran(1, 20, 30, 2)]).overlapping, 1);
        // Two leaders under one token.
        assert_eq!(judged(vec![sealed(6, 1), sealed(9, 2)]).seals, [(6, 0), (9, 0)].into());
        assert_eq!(judged(vec![sealed(6, 1), sealed(6, 2)]).disputed, 1);
        // Executed three times.
        assert_eq!(judged(vec![ran(1, 1, 2, 7), ran(2, 1, 2, 7), ran(1, 3, 4, 7)]).again, 2);
        assert_eq!(judged(vec![Record::Missed { records: 3 }]).missing, 3);
    }

    #[test]
    fn the_last_order_of_a_replica_is_found_whichever_gpu_took_it() {
        let at = |at_ns, gpu, node| Record::Accepted { at_ns, gpu, node, token: 1, sequence: 1 };
        let first = (vec![at(10, 1, 7), at(30, 2, 7), at(50, 1, 7)], 0);
        let second = (vec![at(40, 1, 7), at(45, 1, 8)], 0);
        let found = judge(&[first, second]);
        assert_eq!(found.last_order(7, 10, 50), Some(40));
        assert_eq!(found.last_order(7, 60, 99), None);
        assert_eq!(found.last_order(9, 0, 99), None);
    }

    #[test]
    fn half_a_line_is_a_kill_only_where_a_boot_ends() {
        let line = |record: &Record| serde_json::to_string(record).unwrap();
        let (one, next) = (line(&accepted(1, 1)), line(&registered(2)));
        let half = &one[..20];
        assert_eq!(parse(&format!("{one}\n{half}")).1, 0);
        assert_eq!(parse(&format!("{one}\n{half}\n{next}\n")).1, 0);
        assert_eq!(parse(&format!("{half}\n{one}\n")).1, 1, "in the middle of a boot");
        assert_eq!(parse(&format!("{half}\n{half}\n{next}\n")).1, 1);
    }
}
