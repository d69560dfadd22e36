//! Checks of how bytes travel: payloads and frames, over TCP, shared memory or RDMA.

use super::{Check, limits};
use crate::{FramesConfig, NodeConfig, PayloadTransportKind, PayloadsConfig};

impl Check {
    pub(super) fn payloads(&mut self, section: &str, payloads: &PayloadsConfig) {
        self.range(format!("{section}.pool_mb"), payloads.pool_mb, 1, limits::POOL_MB_MAX);
        if !payloads.rdma_device.is_empty() && !payloads.wants_rdma() {
            let device = &payloads.rdma_device;
            self.say(format!("{section}.rdma_device"), format!("`{device}` is only used with transport = \"rdma\""));
        }
        if payloads.required && payloads.transport == PayloadTransportKind::Auto {
            self.say(
                format!("{section}.required"),
                "with transport = \"auto\" everything is allowed; name the transport that is required",
            );
        }
    }

    pub(super) fn frames(&mut self, frames: &FramesConfig) {
        self.range("frames.spin_us", frames.spin_us.into(), 0, limits::FRAMES_SPIN_US_MAX);
        if frames.required && !frames.expects_other_than_tcp() {
            self.say(
                "frames.required",
                "only another way than TCP can be required; say transport = \"shared-memory\" or \"rdma\", or leave it out",
            );
        }
        if !frames.rdma_device.is_empty() && !frames.wants_rdma() {
            let device = &frames.rdma_device;
            self.say("frames.rdma_device", format!("`{device}` is only used with transport = \"rdma\""));
        }
        if frames.spin_us > 0 && !frames.shares() {
            self.say("frames.spin_us", "shared memory is not used with transport = \"tcp\"; leave it out");
        }
    }

    /// Memory keys are sent only over links with mutual authentication.
    pub(super) fn rdma(&mut self, config: &NodeConfig) {
        let frontend = config.frontend.as_ref().map(|frontend| ("frontend", &frontend.payloads));
        let backend = config.backend.as_ref().map(|backend| ("backend", &backend.payloads));
        for (section, payloads) in frontend.into_iter().chain(backend) {
            if config.security.insecure_dev && payloads.must_use_rdma() {
                let why = "keys to memory are handed out over mutual TLS only, and security.insecure_dev has none";
                self.say(format!("{section}.payloads.transport"), format!("\"rdma\" is required, but {why}"));
            }
        }
    }
}
