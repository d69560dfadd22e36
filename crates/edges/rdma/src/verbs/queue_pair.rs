//! One end of a reliable connection, and the work that is posted there.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ffi::ibv_qp_attr_mask as mask;
use ibverbs_sys as ffi;

use super::{Completion, CompletionQueue, Piece, Window, checked};
use crate::endpoint::Endpoint;
use crate::purpose::{Purpose, RECEIVE_BUFFERS};

/// READs of one connection that are on the network at a time; what the device cannot do it refuses, and 16 all can.
const READS_AT_A_TIME: u8 = 16;
/// Without an answer for 4.096 µs × 2^14 = 67 ms a packet is sent again, …
const TIMEOUT_CODE: u8 = 14;
/// … this often; then the connection is broken. Some devices wait longer each time: half a second to a few seconds in
/// all.
const RETRIES: u8 = 6;
/// Where no buffer waits for a SEND it is tried again for ever; the flow of the stream sees to it that this is rare.
const RETRIES_WITHOUT_BUFFER: u8 = 7;
/// After 0.64 ms.
const WITHOUT_BUFFER_CODE: u8 = 12;
/// Hops of a packet through routers.
const HOPS: u8 = 64;

/// Numbers of work requests, unique in a process: a late completion is never taken for another one's.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A READ of the other end's memory.
    Read,
    /// A SEND into a buffer of the other end.
    Send,
    /// A buffer for a SEND of the other end.
    Receive,
    /// A window that is bound.
    Bind,
}

/// Work that is done.
#[derive(Debug)]
pub(crate) enum Finished {
    Well {
        /// Its number.
        id: u64,
        /// The kind of work that it completes.
        kind: Kind,
        /// Its memory, if it had any.
        piece: Option<Piece>,
        /// How many bytes came.
        bytes: usize,
    },
    /// It failed, and with it the connection. Its memory stays with the queue pair.
    Failed(u32),
    /// It is not this queue pair's.
    Unknown,
}

/// One end of a reliable connection.
#[derive(Debug)]
pub(crate) struct QueuePair {
    completions: Arc<CompletionQueue>,
    pair: NonNull<ffi::ibv_qp>,
    /// Work that the device has, with its memory (V2).
    posted: Mutex<HashMap<u64, (Kind, Option<Piece>)>>,
    first_packet: u32,
}

// SAFETY: V5.
unsafe impl Send for QueuePair {}
// SAFETY: V5.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A fresh one, which takes buffers but sends nothing yet.
    pub(crate) fn new(completions: &Arc<CompletionQueue>, purpose: Purpose, first_packet: u32) -> io::Result<Self> {
        let mut wanted = ffi::ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: completions.queue.as_ptr(),
            recv_cq: completions.queue.as_ptr(),
            srq: null_mut(),
            cap: ffi::ibv_qp_cap {
                max_send_wr: purpose.send_queue(),
                max_recv_wr: RECEIVE_BUFFERS as u32,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: ffi::ibv_qp_type::IBV_QPT_RC,
            sq_sig_all: 1,
        };
        let device = &completions.device;
        // SAFETY: V1 for domain and queue; the other is a value of this frame.
        let pair = unsafe { ffi::ibv_create_qp(device.domain.as_ptr(), &mut wanted) };
        let pair = NonNull::new(pair).ok_or_else(io::Error::last_os_error)?;
        let made = Self { completions: Arc::clone(completions), pair, posted: Mutex::default(), first_packet };
        let mut attributes = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_INIT,
            port_num: device.port.number,
            qp_access_flags: if purpose.reads() { ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ.0 } else { 0 },
            ..Default::default()
        };
        let which = mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        made.modify(&mut attributes, which)?;
        Ok(made)
    }

    /// How the other end finds it.
    pub(crate) fn endpoint(&self) -> Endpoint {
        let device = &self.completions.device;
        let (lid, gid) = (device.port.lid, device.port.gid);
        Endpoint { queue_pair: self.number(), first_packet: self.first_packet, mtu: device.mtu, lid, gid }
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: V1.
        unsafe { self.pair.as_ref() }.qp_num
    }

    /// Connects to the other end, which has to do the same.
    pub(crate) fn connect(&self, peer: &Endpoint) -> io::Result<()> {
        let port = &self.completions.device.port;
        let mut attributes = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_RTR,
            path_mtu: self.endpoint().mtu_with(peer).into(),
            dest_qp_num: peer.queue_pair,
            rq_psn: peer.first_packet,
            max_dest_rd_atomic: READS_AT_A_TIME,
            min_rnr_timer: WITHOUT_BUFFER_CODE,
            ..Default::default()
        };
        attributes.ah_attr.port_num = port.number;
        attributes.ah_attr.dlid = peer.lid;
        if peer.lid == 0 {
            attributes.ah_attr.is_global = 1;
            attributes.ah_attr.grh.dgid = ffi::ibv_gid { raw: peer.gid };
            attributes.ah_attr.grh.sgid_index = port.gid_index;
            attributes.ah_attr.grh.hop_limit = HOPS;
        }
        let which = mask::IBV_QP_STATE
            | mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        self.modify(&mut attributes, which)?;
        let mut attributes = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_RTS,
            timeout: TIMEOUT_CODE,
            retry_cnt: RETRIES,
            rnr_retry: RETRIES_WITHOUT_BUFFER,
            sq_psn: self.first_packet,
            max_rd_atomic: READS_AT_A_TIME,
            ..Default::default()
        };
        let which = mask::IBV_QP_STATE
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attributes, which)
    }

    /// Ends the connection: whatever is posted fails.
    pub(crate) fn end(&self) -> io::Result<()> {
        let mut attributes = ffi::ibv_qp_attr { qp_state: ffi::ibv_qp_state::IBV_QPS_ERR, ..Default::default() };
        self.modify(&mut attributes, mask::IBV_QP_STATE)
    }

    /// Copies `length` bytes of the other end's memory into the piece. Returns the number of the work.
    pub(crate) fn read(&self, piece: Piece, length: usize, address: u64, key: u32) -> io::Result<u64> {
        let mut request = request(ffi::ibv_wr_opcode::IBV_WR_RDMA_READ);
        request.wr.rdma.remote_addr = address;
        request.wr.rdma.rkey = key;
        self.post_send(Kind::Read, request, Some((piece, length)))
    }

    /// Sends the first `length` bytes of the piece into a buffer of the other end.
    pub(crate) fn send(&self, piece: Piece, length: usize) -> io::Result<u64> {
        self.post_send(Kind::Send, request(ffi::ibv_wr_opcode::IBV_WR_SEND), Some((piece, length)))
    }

    /// Lets only the other end read through the window.
    pub(crate) fn bind(&self, window: &Window) -> io::Result<u64> {
        let mut request = request(ffi::ibv_wr_opcode::IBV_WR_BIND_MW);
        let region = &window.region;
        request.__bindgen_anon_2.bind_mw = ffi::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
            mw: window.window.as_ptr(),
            rkey: window.key.0,
            bind_info: ffi::ibv_mw_bind_info {
                mr: region.region.as_ptr(),
                addr: region.address,
                length: region.bytes,
                mw_access_flags: ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ.0,
            },
        };
        self.post_send(Kind::Bind, request, None)
    }

    /// A buffer for a SEND of the other end.
    pub(crate) fn receive(&self, piece: Piece) -> io::Result<u64> {
        // SAFETY: V1.
        let context = unsafe { self.completions.device.context.as_ref() };
        let post = context.ops.post_recv.ok_or(io::ErrorKind::Unsupported)?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let mut span = piece.span(piece.length());
        let mut request = ffi::ibv_recv_wr { wr_id: id, next: null_mut(), sg_list: &mut span, num_sge: 1 };
        let mut refused = null_mut();
        self.lock().insert(id, (Kind::Receive, Some(piece)));
        // SAFETY: V1 and V2; the others are values of this frame, which the driver copies.
        let code = unsafe { post(self.pair.as_ptr(), &mut request, &mut refused) };
        self.posted_or_not(id, code)
    }

    /// What a completion is about. The memory is this process's again.
    pub(crate) fn finish(&self, completion: &Completion) -> Finished {
        if completion.queue_pair != self.number() {
            return Finished::Unknown;
        }
        let mut posted = self.lock();
        if !posted.contains_key(&completion.id) {
            return Finished::Unknown;
        }
        // The device may not have let go of the memory of work that failed before the connection has ended.
        if completion.status != 0 {
            return Finished::Failed(completion.status);
        }
        let (id, bytes) = (completion.id, completion.bytes);
        posted.remove(&id).map_or(Finished::Unknown, |(kind, piece)| Finished::Well { id, kind, piece, bytes })
    }

    fn post_send(&self, kind: Kind, mut request: ffi::ibv_send_wr, memory: Option<(Piece, usize)>) -> io::Result<u64> {
        // SAFETY: V1.
        let context = unsafe { self.completions.device.context.as_ref() };
        let post = context.ops.post_send.ok_or(io::ErrorKind::Unsupported)?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        request.wr_id = id;
        let mut span = memory.as_ref().map(|(piece, length)| piece.span(*length));
        if let Some(span) = &mut span {
            request.sg_list = span;
            request.num_sge = 1;
        }
        let mut refused = null_mut();
        self.lock().insert(id, (kind, memory.map(|(piece, _)| piece)));
        // SAFETY: V1 and V2; the others are values of this frame, which the driver copies. A window that is bound here
        // may end before that is done: then the binding fails.
        let code = unsafe { post(self.pair.as_ptr(), &mut request, &mut refused) };
        self.posted_or_not(id, code)
    }

    fn posted_or_not(&self, id: u64, code: i32) -> io::Result<u64> {
        checked(code).inspect_err(|_| drop(self.lock().remove(&id))).map(|()| id)
    }

    fn modify(&self, attributes: &mut ffi::ibv_qp_attr, which: mask) -> io::Result<()> {
        // SAFETY: V1; the other is a value of this frame.
        checked(unsafe { ffi::ibv_modify_qp(self.pair.as_ptr(), attributes, which.0 as i32) })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (Kind, Option<Piece>)>> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: V1. Afterwards the device touches no memory that was posted, which is dropped after this (V2).
        let code = unsafe { ffi::ibv_destroy_qp(self.pair.as_ptr()) };
        if code != 0 {
            // It may still write there: better lost than wrong.
            tracing::error!(code, "a queue pair does not end; its memory is lost");
            self.lock().drain().for_each(|(_, work)| std::mem::forget(work));
        }
    }
}

/// Work of that kind, with nothing else.
fn request(opcode: ffi::ibv_wr_opcode::Type) -> ffi::ibv_send_wr {
    ffi::ibv_send_wr { opcode, ..Default::default() }
}
