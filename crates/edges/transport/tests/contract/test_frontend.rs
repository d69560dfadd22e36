//! A frontend of requests, as far as transports need one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use symphony_transport::{PayloadFrontend, PlacedInput, ReturnedResult, SharedInputs};
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct TestFrontend {
    inputs: Mutex<HashMap<u64, (Bytes, Option<PlacedInput>)>>,
    shared: Option<Arc<SharedInputs>>,
    returned: watch::Sender<Vec<ReturnedResult>>,
}

impl TestFrontend {
    pub(crate) fn new(shared: Option<Arc<SharedInputs>>) -> Arc<Self> {
        Arc::new(Self { inputs: Mutex::default(), shared, returned: watch::Sender::default() })
    }

    /// A request comes.
    pub(crate) fn hold(&self, sequence: u64, input: Bytes) {
        let placed = self.shared.as_ref().and_then(|shared| shared.put(sequence, &input));
        self.inputs.lock().unwrap().insert(sequence, (input, placed));
    }

    /// A request has its outcome.
    pub(crate) fn end(&self, sequence: u64) {
        self.inputs.lock().unwrap().remove(&sequence);
    }

    /// The results, once there are `count`.
    pub(crate) async fn results(&self, count: usize) -> Vec<ReturnedResult> {
        let mut returned = self.returned.subscribe();
        let enough = returned.wait_for(|returned| returned.len() >= count);
        let results = tokio::time::timeout(super::promises::SOON, enough).await.expect("they come").unwrap();
        results.clone()
    }

    pub(crate) fn results_so_far(&self) -> usize {
        self.returned.borrow().len()
    }
}

impl PayloadFrontend for TestFrontend {
    fn input(&self, sequence: u64) -> Option<Bytes> {
        self.inputs.lock().unwrap().get(&sequence).map(|(input, _)| input.clone())
    }

    fn returned(&self, result: ReturnedResult) {
        self.returned.send_modify(|returned| returned.push(result));
    }
}
