//! Stands in where the program is built without RDMA: nothing can be opened, so none of these values ever exists.

use std::sync::Arc;

use bytes::Bytes;
use symphony_protocol::data::{RdmaEndpoint, RdmaOffer};
use symphony_shared_memory::{Pool, Unreadable};

use crate::link::Streams;
use crate::sharing::SharingError;

#[derive(Clone, Debug)]
pub(crate) enum RdmaReader {}

#[derive(Debug)]
pub(crate) enum RdmaBegun {}

#[derive(Debug)]
pub(crate) enum RdmaInputs {}

#[derive(Debug)]
pub(crate) enum RdmaFrontend {}

#[derive(Debug)]
pub(crate) enum RdmaPeer {}

fn not_built() -> SharingError {
    SharingError::Rdma(symphony_net::RDMA_NOT_BUILT.to_owned())
}

impl RdmaReader {
    pub(crate) fn open(_: Option<&str>, _: u64) -> Result<Self, SharingError> {
        Err(not_built())
    }

    pub(crate) fn begin(&self) -> Result<RdmaBegun, String> {
        match *self {}
    }
}

impl RdmaBegun {
    pub(crate) fn endpoint(&self) -> RdmaEndpoint {
        match *self {}
    }

    pub(crate) fn join(self, _: &RdmaOffer) -> Result<RdmaInputs, String> {
        match self {}
    }
}

impl RdmaInputs {
    pub(crate) async fn prove(&self) -> Result<(), String> {
        match *self {}
    }

    pub(crate) async fn input(&self, _: u64) -> Result<Result<Bytes, Unreadable>, String> {
        match *self {}
    }

    pub(crate) fn streams(&self) -> Streams {
        match *self {}
    }

    pub(crate) fn is_read(&self) -> bool {
        match *self {}
    }

    pub(crate) fn end(&self) {
        match *self {}
    }
}

impl RdmaFrontend {
    pub(crate) fn open(_: Option<&str>, _: &Arc<Pool>) -> Result<Self, SharingError> {
        Err(not_built())
    }

    pub(crate) async fn offer(&self, _: RdmaEndpoint) -> Result<(RdmaOffer, RdmaPeer), String> {
        match *self {}
    }
}

impl RdmaPeer {
    pub(crate) fn streams(&self) -> Streams {
        match *self {}
    }
}
