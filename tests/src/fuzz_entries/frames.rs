//! Bytes that processes parse from each other: frames of all links, and what another host may write into memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use symphony_protocol::carrier::{CarrierMessage, CarrierOffer};
use symphony_protocol::data::{
    BatchRun, FromDataServer, RdmaEndpoint, RdmaKey, RdmaOffer, RequestResult, ResultBytes, SharingOffer,
    SharingSecret, ToDataServer,
};
use symphony_protocol::dispatch::{EndReason, RequestHeader, ToFrontend, ToLeader};
use symphony_protocol::execute::{Done, Execute, FromBackend, HostedModel, PlannedRequest, Refusal, ToBackend};
use symphony_protocol::{FRAME_HEADER_BYTES, Frame, FrameHeader, Message};
use symphony_rdma::{SEGMENT_HEADER_BYTES, Segment, SegmentKind};
use symphony_shared_memory::{Available, ENTRY_BYTES, RING_BYTES_MIN, RemoteLayout, blank_ring, ends};
use symphony_types::{
    BackendId, BootId, DropReason, FailReason, FrontendId, GpuId, Level, ModelId, RequestId, SubclusterId, Token,
};

/// Where the headers of frames keep their checksum.
const FRAME_CHECKSUM_AT: usize = 12;

/// A frame of any link. The checksum is corrected, or nothing else would ever be tested.
pub fn frames(bytes: &[u8]) {
    fn read<M: Message + std::fmt::Debug + PartialEq>(header: FrameHeader, body: &Bytes) {
        let Ok(frame) = Frame::<M>::decode(header, body.clone()) else { return };
        let again = encode(&frame.message, std::slice::from_ref(&frame.tail));
        let (head, body) = again.split_first_chunk::<FRAME_HEADER_BYTES>().expect("a frame has a header");
        let header = FrameHeader::parse(*head, Level::NEWEST).expect("what was encoded can be read");
        let back = Frame::<M>::decode(header, Bytes::copy_from_slice(body));
        assert_eq!(back, Ok(frame), "a frame that was read is written and read again");
    }
    let Some((head, body)) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>() else { return };
    let mut head = *head;
    let version = u16::from_le_bytes([head[4], head[5]]);
    let covered = if version < Level::NEWEST.formats().frames { 0 } else { crc32c::crc32c(&head[..FRAME_CHECKSUM_AT]) };
    head[FRAME_CHECKSUM_AT..].copy_from_slice(&crc32c::crc32c_append(covered, body).to_le_bytes());
    let Ok(header) = FrameHeader::parse(head, Level::NEWEST) else { return };
    let body = Bytes::copy_from_slice(body);
    read::<ToLeader>(header, &body);
    read::<ToFrontend>(header, &body);
    read::<ToBackend>(header, &body);
    read::<FromBackend>(header, &body);
    read::<ToDataServer>(header, &body);
    read::<FromDataServer>(header, &body);
    read::<CarrierMessage>(header, &body);
}

fn encode<M: Message>(message: &M, tail: &[Bytes]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    Frame::encode(message, tail, Level::NEWEST, &mut bytes).expect("it is small");
    bytes.to_vec()
}

pub(super) fn frame_seeds() -> Vec<Vec<u8>> {
    let (token, boot, gpu, model) = (Token::new(9), BootId::new(3), GpuId::new(1), ModelId::new(2));
    let header = RequestHeader { sequence: 7, model: 3, items: 2, budget: 25_000_000, attempt: 1, weight: 1000 };
    let id = RequestId { frontend: FrontendId::new(1), boot, sequence: 4 };
    let (frontend, subcluster) = (FrontendId::new(1), SubclusterId::new(1));
    let order = Execute {
        gpu,
        token,
        backend_boot: boot,
        sequence: 1,
        start_in: 5,
        latency: 6,
        model,
        requests: vec![PlannedRequest { id, items: 2, model: ModelId::new(5) }; 3],
    };
    let done = Done {
        gpu,
        token,
        sequence: 1,
        model,
        start_late: 1,
        latency: 2,
        free_in: 3,
        failed: vec![(id, FailReason::PayloadLost)],
    };
    let hosted = HostedModel { model, trunk_share: 900_000, suffix_share: 150_000, trunk: [8; 16] };
    let refusal = Refusal::Fenced { promised: token };
    let result = RequestResult {
        sequence: 4,
        outcome: ResultBytes::Answer(3),
        batch: 2,
        execution: 9,
        run: BatchRun { gpu, token, plan: 6, planned_us: 40, inputs_us: 30, started_us: 20, ended_us: 10 },
    };
    let endpoint = RdmaEndpoint { queue_pair: 17, first_packet: 1 << 23, mtu: 5, lid: 0, gid: [1; 16] };
    let rdma = RdmaOffer { endpoint, key: RdmaKey(7), address: 1 << 40, bytes: 1 << 20, entries: 64 };
    let offer = SharingOffer { name: "symphony-0".into(), secret: SharingSecret([7; 32]) };
    let ended = vec![(1, EndReason::Dropped(DropReason::QueueFull)), (2, EndReason::Failed(FailReason::NoAnswer))];
    vec![
        encode(&ToLeader::Hello { frontend, boot, subcluster, token }, &[]),
        encode(&ToLeader::Announce { token, requests: vec![header; 3] }, &[]),
        encode(&ToLeader::Redrive { token, requests: vec![header], last: true }, &[]),
        encode(&ToLeader::Cancel { requests: vec![(1, 2), (3, 4)] }, &[]),
        encode(&ToFrontend::Ended { requests: ended }, &[]),
        encode(&ToFrontend::Panicked, &[]),
        // For a sub-cluster that no test has: a seal is no rubbish, and seeds are also sent to real backends.
        encode(&ToBackend::Seal { subcluster: SubclusterId::new(99), gpus: vec![(gpu, token); 2] }, &[]),
        encode(&ToBackend::Execute(order), &[]),
        encode(&ToBackend::Retired { gpus: vec![gpu; 2] }, &[]),
        encode(&FromBackend::Done(done), &[]),
        encode(&FromBackend::PayloadDelay { fixed: 200_000, per_mib: 900_000 }, &[]),
        encode(&FromBackend::Hosts { models: vec![hosted; 2] }, &[]),
        encode(&FromBackend::Refused { gpu, sequence: 1, token, model, refusal }, &[]),
        encode(
            &ToDataServer::Hello {
                backend: BackendId::new(1),
                boot,
                frontend_boot: boot,
                shares: true,
                rdma: Some(rdma.endpoint),
            },
            &[],
        ),
        encode(&CarrierMessage::Ask, &[]),
        encode(&CarrierMessage::Offer(CarrierOffer { sharing: Some(offer.clone()), rdma: true }), &[]),
        encode(&CarrierMessage::Join(rdma.endpoint), &[]),
        encode(&CarrierMessage::Joined(rdma.endpoint), &[]),
        encode(&CarrierMessage::Switch, &[]),
        encode(&ToDataServer::Joined { shares: true }, &[]),
        encode(&ToDataServer::Read { read: 1, sequences: vec![1, 2, 3] }, &[]),
        encode(&ToDataServer::Results { results: vec![result; 2] }, &[Bytes::from_static(b"abcdef")]),
        encode(&ToDataServer::Results { results: vec![RequestResult { outcome: ResultBytes::Shared, ..result }] }, &[]),
        encode(&FromDataServer::Welcome { boot, sharing: Some(offer), rdma: Some(rdma) }, &[]),
        encode(&FromDataServer::Taken { sequences: vec![1, 2] }, &[]),
        encode(
            &FromDataServer::Payloads { read: 1, lengths: vec![Some(2), None], waited: 7_000_000 },
            &[Bytes::from_static(b"ab")],
        ),
    ]
}

/// One store of a peer into the memory of its ring, and what is then sent and received.
const RING_STEP_BYTES: usize = 11;
/// A step sends and receives multiples of this many bytes: three quarters of the ring at most.
const RING_STEP_UNIT: usize = 12;

/// A peer of this host that stores anything anywhere in the memory of its ring, while this side sends and receives: no
/// more arrives than its ring can hold, and what arrives is parsed as frames.
pub fn ring(bytes: &[u8]) {
    let (mine, theirs) = (Arc::new(blank_ring(RING_BYTES_MIN)), Arc::new(blank_ring(RING_BYTES_MIN)));
    let (mut sender, mut receiver) = ends(mine, Arc::clone(&theirs)).expect("both are rings");
    let (mut sent, mut came) = (0, Vec::new());
    for step in bytes.chunks_exact(RING_STEP_BYTES) {
        let at = usize::from(u16::from_le_bytes([step[0], step[1]])) % theirs.len();
        let value = u64::from_le_bytes(*step[2..].first_chunk().expect("a step is longer"));
        theirs[at].store(value, Ordering::Relaxed);
        let count = usize::from(step[RING_STEP_BYTES - 1]) * RING_STEP_UNIT;
        if let Ok(moved) = sender.send(&vec![0; count]) {
            sent += moved.bytes;
        }
        if let Ok(Available::Bytes(held)) = receiver.available() {
            assert!(held <= RING_BYTES_MIN, "no more than the ring holds");
        }
        let mut into = vec![0; count];
        if let Ok(moved) = receiver.receive(&mut into) {
            came.extend_from_slice(&into[..moved.bytes]);
        }
        let _ = (sender.sleeps(), receiver.sleeps());
    }
    assert!(sent <= bytes.len() / RING_STEP_BYTES * RING_BYTES_MIN, "never more at once than the ring holds");
    frames(&came);
}

pub(super) fn ring_seeds() -> Vec<Vec<u8>> {
    let step = |at: u16, value: u64, units: u8| [&at.to_le_bytes()[..], &value.to_le_bytes(), &[units]].concat();
    // A frame as a peer would put it there: its words, and then how many bytes are written.
    let frame = encode(&ToLeader::Cancel { requests: vec![(1, 2)] }, &[]);
    let words = frame.chunks(8).map(|piece| {
        let mut word = [0; 8];
        word[..piece.len()].copy_from_slice(piece);
        u64::from_le_bytes(word)
    });
    let mut steps: Vec<_> = (64..).zip(words).map(|(at, word)| step(at, word, 0)).collect();
    steps.push(step(16, frame.len() as u64, 255));
    let full = [step(48, 1, 255), step(49, 1, 255), step(32, 3060, 255), step(17, 1, 1)].concat();
    vec![steps.concat(), full]
}

/// The contents of another host's memory: a segment of a stream, and the entry of a pool of 64 KiB.
pub fn rdma(bytes: &[u8]) {
    if let Ok((segment, data)) = Segment::parse(bytes) {
        let mut again = [&[0; SEGMENT_HEADER_BYTES][..], data].concat();
        segment.write(&mut again);
        assert_eq!(again, bytes, "a segment that was parsed is written again");
    }
    let Some((entry, rest)) = bytes.split_first_chunk::<ENTRY_BYTES>() else { return };
    let (bytes, number) = (64 << 10, u64::from_le_bytes(*entry[8..].first_chunk().expect("an entry is longer")));
    let layout = RemoteLayout::new(bytes, 16).expect("there is such a pool");
    if let Ok(found) = layout.find(number, entry, 1 << 20) {
        assert!(found.at() + found.length() as u64 <= bytes, "nothing beyond the pool is fetched");
        let _ = found.holds(rest);
    }
}

pub(super) fn rdma_seeds() -> Vec<Vec<u8>> {
    let mut segment = [&[0; SEGMENT_HEADER_BYTES][..], b"some data"].concat();
    Segment { kind: SegmentKind::Data, number: 7, credits: 3 }.write(&mut segment);
    let entry = [2_u64, 5, 256, 100 | 7 << 32].iter().flat_map(|word| word.to_le_bytes()).collect();
    vec![segment, entry]
}
