//! Loads on a test cluster, single requests, and what its frontends count.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use symphony_testkit::{Child, wait_until};

use super::{READY_WITHIN, TestCluster};
use crate::load_report::LoadReport;

/// How long a load run may take beyond its own duration.
const LOAD_ENDS_WITHIN: Duration = Duration::from_secs(120);

impl TestCluster {
    /// Starts `symphony load` over gRPC for this many seconds; `models` as in `NAME=RPS`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn_load(&self, name: &str, models: &[&str], seconds: u32) -> Result<Child> {
        self.spawn_load_for(name, models, &seconds.to_string())
    }

    /// Starts `symphony load` over gRPC, until [`Self::end_load`].
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn_load_until_ended(&self, name: &str, models: &[&str]) -> Result<Child> {
        self.spawn_load_for(name, models, LoadReport::UNTIL_ENDED_S)
    }

    fn spawn_load_for(&self, name: &str, models: &[&str], duration: &str) -> Result<Child> {
        let frontend = self.address("frontend", "grpc");
        let mut args = vec!["load", "--protocol", "grpc", "--frontend", &frontend, "--duration-s", duration];
        args.extend(LoadReport::OPTIONS);
        models.iter().for_each(|model| args.extend(["--model", model]));
        self.spawn_cli(name, &args)
    }

    /// Waits for the end of [`Self::spawn_load`] and reads its report.
    ///
    /// # Errors
    /// If it does not end in time or wrote no report.
    pub fn load_report(&self, mut load: Child, seconds: u32) -> Result<LoadReport> {
        let status = load.wait(Duration::from_secs(seconds.into()) + LOAD_ENDS_WITHIN)?;
        LoadReport::parse(status.code(), &load.stdout()?, &load.log_tail())
    }

    /// Stops the load of [`Self::spawn_load`], and reads its report. For stories of unknown length.
    ///
    /// # Errors
    /// If it does not end in time or wrote no report.
    pub fn end_load(&self, mut load: Child) -> Result<LoadReport> {
        let status = load.stop(LOAD_ENDS_WITHIN)?;
        LoadReport::parse(status.code(), &load.stdout()?, &load.log_tail())
    }

    /// Waits until the frontend has accepted this many more requests: the load flows.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_for_more(&self, requests: u64) -> Result<()> {
        self.wait_for_accepted(self.accepted()? + requests)
    }

    /// Waits until the frontend has accepted this many requests since it started: the load flows.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_for_accepted(&self, requests: u64) -> Result<()> {
        wait_until("load to flow", READY_WITHIN, || {
            let page = self.console()?;
            let accepted = page["ledger"]["counts"]["accepted"].as_u64().unwrap_or(0);
            ensure!(accepted >= requests, "{accepted} of {requests} requests are accepted");
            Ok(())
        })
    }

    /// Requests that have failed, by the ledgers of all frontends.
    ///
    /// # Errors
    /// If the console of a frontend does not show it.
    pub fn failed(&self) -> Result<u64> {
        wait_until("the ledgers of all frontends", READY_WITHIN, || {
            let ledger = self.cli(&["get", "ledger", "-o", "json"]).ended_with(0).json();
            ensure!(ledger["cluster"]["frontends_unreachable"] == 0, "{ledger}");
            ledger["cluster"]["counts"]["failed"].as_u64().with_context(|| ledger.to_string())
        })
    }

    /// Requests that the frontend accepted so far.
    ///
    /// # Errors
    /// If its console does not show it.
    pub fn accepted(&self) -> Result<u64> {
        self.console()?["ledger"]["counts"]["accepted"].as_u64().context("the console counts requests")
    }

    /// By the frontend's own count every accepted request had exactly one outcome (invariant S3).
    ///
    /// # Errors
    /// If that does not come true.
    pub fn wait_for_a_balanced_ledger(&self) -> Result<()> {
        wait_until("a balanced ledger", READY_WITHIN, || {
            let ledger = &self.console()?["ledger"];
            let count = |name: &str| ledger["counts"][name].as_u64().unwrap_or(u64::MAX / 8);
            let ended = ["in_time", "late", "dropped", "failed", "cancelled"].map(count).iter().sum::<u64>();
            ensure!(ledger["in_flight"] == 0 && ended == count("accepted"), "{ledger}");
            Ok(())
        })
    }

    /// One request for an emulated model, answered in [any time](crate::RestClient::infer_in_any_time) with the
    /// checksum of its own input.
    ///
    /// # Errors
    /// If it is answered in any other way.
    pub fn one_good_request(&self, model: &str) -> Result<()> {
        self.block_on(async { self.rest().check_emulated_in_any_time(model, 7.0).await })
    }

    /// One request as in [`one_good_request`](Self::one_good_request), which must be answered in time.
    ///
    /// # Errors
    /// If it is not.
    pub fn one_request_in_time(&self, model: &str) -> Result<()> {
        self.block_on(async { self.rest().check_emulated(model, 7.0).await })
    }

    /// Waits until a request for an emulated model succeeds.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_until_it_serves(&self, model: &str) -> Result<()> {
        wait_until(&format!("{model} to be served"), READY_WITHIN, || self.one_request_in_time(model))
    }
}
