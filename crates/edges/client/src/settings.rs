//! What a client is made with, and why it can not be made.

use std::time::Duration;

use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};

use crate::balance::Balance;
use crate::limits;

/// What a client needs to know about its frontends and its requests.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) frontends: Vec<String>,
    pub(crate) connections: usize,
    pub(crate) in_flight_max: usize,
    pub(crate) balance: Balance,
    pub(crate) timeout: Duration,
    pub(crate) answer_grace: Duration,
    pub(crate) wait_for_frontend: Duration,
    pub(crate) watched: bool,
    /// PEM.
    pub(crate) authority: Option<Vec<u8>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            frontends: Vec::new(),
            connections: 1,
            in_flight_max: limits::IN_FLIGHT_MAX,
            balance: Balance::default(),
            timeout: limits::TIMEOUT,
            answer_grace: limits::ANSWER_GRACE,
            wait_for_frontend: limits::WAIT_FOR_FRONTEND,
            watched: true,
            authority: None,
        }
    }
}

/// Why a client can not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value}: expected {expected}")]
pub struct BuildError {
    /// The invalid setting.
    pub key: &'static str,
    /// The value that was set, as text.
    pub value: String,
    /// What would be right.
    pub expected: String,
}

/// What [`ClientBuilder::metadata`](crate::ClientBuilder::metadata) holds, checked.
pub(crate) type Metadata = Vec<(AsciiMetadataKey, AsciiMetadataValue)>;
