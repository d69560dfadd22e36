//! Which processes may take part by what they know, and which calls by what the cluster writes.

use symphony_cluster_state::{Command, Reply};
use symphony_net::{ClusterLevel, PeerInfo, Role};
use symphony_protocol::control as pb;
use symphony_types::{BootId, Level, Member};
use tonic::Status;

use super::ControlService;
use crate::api::backup;
use crate::group::levels::WatchedLevel;
use crate::group::propose::Accepted;

impl ControlService {
    /// Below that level the cluster's formats have no room for it.
    pub(super) fn needs(&self, needed: Level, what: &str) -> Result<(), Status> {
        let level = self.proposer.cluster_level().written();
        if level >= needed {
            return Ok(());
        }
        Err(Status::failed_precondition(format!(
            "{what} need level {needed}, and the cluster is at level {level}: symphony upgrade finish"
        )))
    }

    /// Whether a process that knows levels up to that one reads what this cluster writes, as far as this replica knows;
    /// returns what that is.
    fn admits(&self, who: &str, announced: u32) -> Result<Level, Status> {
        let (known, level) = (Level::from_message(announced), self.viewer.state.read().level());
        if known < level {
            let known = known.get();
            return Err(ClusterLevel::refusal(
                level,
                format!(
                    "{who} knows level {known} at most, and the cluster's upgrade to level {level} is finished: start a \
                     newer release"
                ),
            ));
        }
        Ok(level)
    }

    /// The same by everything that was committed: this replica may lag, or be empty. A process that knows as much as
    /// this replica is admitted at once, so a thousand returning backends do not ask the leader for as many views.
    async fn admits_by_all(&self, who: &str, announced: u32) -> Result<Level, Status> {
        if self.is_behind(announced) {
            backup::catch_up(&self.proposer, self.views.clone()).await?;
        }
        self.admits(who, announced)
    }

    /// Whether a process knows less than this replica.
    fn is_behind(&self, announced: u32) -> bool {
        Level::from_message(announced) < self.proposer.cluster_level().newest()
    }

    /// Makes the cluster agree on a process that reads what it writes. Returns what that is.
    pub(super) async fn register(&self, who: &str, announced: u32, command: Command) -> Result<(Reply, Level), Status> {
        self.admits_by_all(who, announced).await?;
        let Accepted { index, reply } = self.propose(command).await?;
        // The upgrade may have been finished meanwhile. From this entry on it waits for every process that is behind.
        if self.is_behind(announced) {
            backup::applied(self.views.clone(), index).await?;
        }
        Ok((reply, self.admits(who, announced)?))
    }

    /// Whether a backend or frontend that watches can read what this cluster writes. Tools are not checked.
    pub(super) fn admits_watch(&self, request: &pb::WatchRequest) -> Result<(), Status> {
        if request.backend.is_none() && request.frontend.is_none() && request.process.is_none() {
            return Ok(());
        }
        // Releases from before there were levels do not report one.
        let announced = request.process.as_ref().map_or(0, |process| process.level);
        self.admits(&format!("`{}`", request.watcher), announced)?;
        Ok(())
    }

    /// Notes the level that a backend or frontend reports, for as long as it watches.
    pub(super) fn level_of_watcher(
        &self,
        peer: &PeerInfo,
        process: Option<&pb::WatchingProcess>,
    ) -> Option<WatchedLevel> {
        let process = process?;
        let member = Member::try_from(process.member?).ok()?;
        let state = self.viewer.state.read();
        let (role, name) = match member {
            Member::Backend(id) => (Role::Backend, state.backends().get(&id).map(|backend| &backend.name)),
            Member::Frontend(id) => (Role::Frontend, state.frontends().get(&id).map(|frontend| &frontend.name)),
            // Replicas report it with their heartbeats.
            Member::Scheduler(_) => return None,
        };
        // A process that registered at another replica may not be known here yet: then its role has to do.
        let is_itself = name.map_or_else(|| peer.has_role(&[role]), |name| peer.may_be(role, name));
        let boot = (member, BootId::new(process.boot_id));
        is_itself.then(|| self.viewer.levels.begin(boot, Level::from_message(process.level)))
    }
}
