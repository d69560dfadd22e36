//! The requests of one cluster, from submission to withdrawal: into its request table, and announced to the leader.

use std::sync::Arc;

use bytes::Bytes;
use symphony_types::{ModelId, RequestId, SubclusterId};

use crate::clusters::cluster::Cluster;
use crate::clusters::routing::Route;
use crate::dispatch::leader_link::LeaderCommand;
use crate::requests::request_table::OpenRequest;

impl Cluster {
    /// Takes a request in and announces it, unless it is withheld. Its name here, and its number.
    pub(crate) fn submit(self: &Arc<Self>, pending: OpenRequest) -> (RequestId, u64) {
        let (subcluster, withheld) = (pending.subcluster, pending.withheld);
        let sequence = self.table.insert(pending);
        if !withheld {
            self.send_command(subcluster, LeaderCommand::Announce(sequence));
            self.share(sequence);
        }
        (RequestId { frontend: self.id, boot: self.identity.boot, sequence }, sequence)
    }

    /// Announces a request that was withheld, where its model is now, with its input if that has been made by now: else
    /// a GPU could be given the request and find no input.
    pub(crate) fn announce_withheld(self: &Arc<Self>, sequence: u64, route: &Route, made: Option<&Bytes>) {
        if self.table.end_withholding(sequence, route.model, route.subcluster, made) {
            self.send_command(route.subcluster, LeaderCommand::Announce(sequence));
            self.share(sequence);
        }
    }

    /// The input of a request that was announced before has been made.
    pub(crate) fn supply(&self, sequence: u64, payload: &Bytes) {
        if self.table.supply(sequence, payload) {
            self.share(sequence);
        }
    }

    /// Puts the input of an announced request where backends of this host read it, if it is ready: while it is
    /// announced to its leader.
    fn share(&self, sequence: u64) {
        if let Some(inputs) = &self.inputs {
            self.table.share(sequence, inputs);
        }
    }

    /// Takes the request out of the table if it is still there, and back from the leader that has it. Returns whose
    /// that was.
    pub(crate) fn withdraw(self: &Arc<Self>, sequence: u64) -> Option<SubclusterId> {
        let pending = self.table.remove(sequence)?;
        if !pending.withheld {
            self.send_command(pending.subcluster, LeaderCommand::Cancel(sequence, pending.model.get()));
        }
        Some(pending.subcluster)
    }

    /// Withdraws those requests for the model whose input no backend of this cluster was given: they have not run here
    /// and never will. Leaders hear of those that were announced to them.
    pub(crate) fn withdraw_unread(self: &Arc<Self>, model: ModelId) -> usize {
        let withdrawn = self.table.withdraw_unread(model);
        for &(sequence, announced_to) in &withdrawn {
            if let Some(subcluster) = announced_to {
                self.send_command(subcluster, LeaderCommand::Cancel(sequence, model.get()));
            }
        }
        withdrawn.len()
    }
}
