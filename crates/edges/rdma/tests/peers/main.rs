//! Two processes with one RDMA device between them: this one reads, the other owns. Run by `make test-rdma`.

mod owner;

use std::time::Duration;

use owner::{ENTRIES, Owner, POOL_BYTES, bytes_of};
use symphony_rdma::{Broken, Endpoint, Fabric, Key, Landing, Pair, Purpose, RdmaError, RemotePool};
use symphony_shared_memory::{ENTRY_BYTES, RemoteLayout, Unreadable};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Nothing takes longer, unless it hangs.
const SOON: Duration = Duration::from_secs(30);

/// Status of work that the other end does not allow.
const REMOTE_ACCESS: Broken = Broken::Failed(10);

#[test]
#[ignore = "not a test: the other process of the others"]
fn the_other_process() {
    owner::run();
}

fn pool(pair: &Pair, landing: &Landing, [key, address, bytes]: [u64; 3]) -> RemotePool {
    let layout = RemoteLayout::new(POOL_BYTES, ENTRIES as u64).unwrap();
    RemotePool::new(pair.clone(), landing.clone(), layout, bytes, address, Key(key as u32)).unwrap()
}

struct Peers {
    owner: Owner,
    fabric: Fabric,
    landing: Landing,
    pair: Pair,
    grant: [u64; 3],
    pool: RemotePool,
}

fn peers() -> Peers {
    let mut owner = Owner::start();
    let fabric = Fabric::open(None, Purpose::Payloads).unwrap();
    let landing = fabric.landing(16 << 20).unwrap();
    let (pair, grant) = owner.connect(&fabric);
    let pool = pool(&pair, &landing, grant);
    Peers { owner, fabric, landing, pair, grant, pool }
}

async fn read(pool: &RemotePool, number: u64) -> Result<Result<Vec<u8>, Unreadable>, Broken> {
    let read = tokio::time::timeout(SOON, pool.read(number)).await.expect("no read hangs");
    read.map(|read| read.map(|bytes| bytes.to_vec()))
}

#[tokio::test]
async fn payloads_of_another_process_are_read_without_a_word() {
    let mut peers = peers();
    let lengths = [0, 1, 7, 4095, 4097, 150_000, 1 << 20];
    for (number, length) in lengths.iter().enumerate() {
        peers.owner.does(&format!("put {number} {length}"));
    }
    for (number, &length) in (0..).zip(&lengths) {
        assert!(read(&peers.pool, number).await == Ok(Ok(bytes_of(number, length))), "{length} bytes");
    }
    assert_eq!(read(&peers.pool, 40).await, Ok(Err(Unreadable::Absent)));
    peers.owner.does("take 3");
    assert_eq!(read(&peers.pool, 3).await, Ok(Err(Unreadable::Absent)));
}

#[tokio::test]
async fn a_connection_is_proved_by_a_read_and_one_whose_packets_vanish_is_not() {
    let peers = peers();
    tokio::time::timeout(SOON, peers.pool.prove()).await.expect("it answers").unwrap();
    assert!(!format!("{:?}", peers.pool).contains(&peers.grant[0].to_string()), "keys are not shown");
    // There is no queue pair of that number, and no error says so.
    let unpaired = peers.fabric.begin().unwrap();
    let nobody = Endpoint { queue_pair: 0xff_fffe, ..unpaired.endpoint() };
    let lost = pool(&unpaired.join(nobody).unwrap(), &peers.landing, peers.grant);
    let proved = tokio::time::timeout(SOON, lost.prove()).await.expect("in bounded time");
    assert!(matches!(proved, Err(Broken::Failed(_))), "{proved:?}");
}

/// Switches between may let through less than both devices think: short packets come, and long ones vanish.
#[tokio::test]
async fn a_connection_is_proved_by_packets_as_long_as_those_that_follow() {
    let peers = peers();
    let [key, address, bytes] = peers.grant;
    let entry_end = RemoteLayout::new(POOL_BYTES, ENTRIES as u64).unwrap().entry_at(0) + ENTRY_BYTES as u64;
    // Only an entry's bytes are within reach there, and no whole packet.
    let short = pool(&peers.pair, &peers.landing, [key, address + bytes - entry_end, bytes]);
    assert_eq!(tokio::time::timeout(SOON, short.prove()).await.expect("it answers"), Err(REMOTE_ACCESS));
    // Only segments of frames find room there, and none of a payload's length.
    let frames = Fabric::open(None, Purpose::Frames).unwrap();
    for (long, short, well) in [(&peers.fabric, &frames, false), (&frames, &peers.fabric, true)] {
        let (from, to) = (long.begin().unwrap(), short.begin().unwrap());
        let (from_endpoint, to_endpoint) = (from.endpoint(), to.endpoint());
        let (from, _to) = (from.join(to_endpoint).unwrap(), to.join(from_endpoint).unwrap());
        let (_, mut writer) = from.split();
        let proved = tokio::time::timeout(SOON, writer.prove()).await.expect("in bounded time");
        assert_eq!(proved.is_ok(), well, "{proved:?}");
    }
}

#[tokio::test]
async fn an_owner_that_does_not_answer_leaves_room_for_reads_of_others() {
    let mut peers = peers();
    peers.owner.does("put 1 150000");
    let unpaired = peers.fabric.begin().unwrap();
    let nobody = Endpoint { queue_pair: 0xff_fffe, ..unpaired.endpoint() };
    let lost = pool(&unpaired.join(nobody).unwrap(), &peers.landing, peers.grant);
    // More than all that may be on the network at a time.
    let waiting = futures::future::join_all((0..200).map(|number| lost.read(number)));
    let reading = async {
        tokio::task::yield_now().await;
        assert!(lost.pair().is_read());
        assert!(read(&peers.pool, 1).await == Ok(Ok(bytes_of(1, 150_000))));
        assert_eq!(lost.pair().broken(), None, "it was not waited for");
    };
    let (waited, ()) =
        tokio::time::timeout(SOON, async { tokio::join!(waiting, reading) }).await.expect("no read hangs");
    assert!(waited.iter().all(Result::is_err));
    assert!(!lost.pair().is_read());
}

#[tokio::test]
async fn damage_and_another_generation_are_noticed_and_cost_no_connection() {
    let mut peers = peers();
    peers.owner.does("put 5 150000");
    assert!(read(&peers.pool, 5).await.unwrap().is_ok());
    peers.owner.does("damage 5");
    assert_eq!(read(&peers.pool, 5).await, Ok(Err(Unreadable::Damaged)));
    peers.owner.does("damage 5");
    assert!(read(&peers.pool, 5).await.unwrap().is_ok(), "the same bit twice is as before");
    // The entry's next number: what stood there is another generation.
    peers.owner.does("take 5");
    peers.owner.does(&format!("put {} 150000", 5 + ENTRIES));
    assert_eq!(read(&peers.pool, 5).await, Ok(Err(Unreadable::Absent)));
    assert!(read(&peers.pool, 5 + ENTRIES as u64).await == Ok(Ok(bytes_of(5 + ENTRIES as u64, 150_000))));
    assert_eq!(peers.pair.broken(), None);
}

#[tokio::test]
async fn a_key_that_was_taken_back_opens_nothing() {
    let mut peers = peers();
    peers.owner.does("put 1 1000");
    assert!(read(&peers.pool, 1).await.unwrap().is_ok());
    peers.owner.does("revoke 0");
    assert_eq!(read(&peers.pool, 1).await, Err(REMOTE_ACCESS));
    assert_eq!(peers.pair.broken(), Some(REMOTE_ACCESS));
    // A peer that still has access can read.
    let (pair, grant) = peers.owner.connect(&peers.fabric);
    assert!(read(&pool(&pair, &peers.landing, grant), 1).await.unwrap().is_ok());
}

#[tokio::test]
async fn a_key_is_good_on_its_own_connection_only() {
    let mut peers = peers();
    peers.owner.does("put 1 1000");
    let (other, _) = peers.owner.connect(&peers.fabric);
    let stolen = pool(&other, &peers.landing, peers.grant);
    assert_eq!(read(&stolen, 1).await, Err(REMOTE_ACCESS));
    assert!(read(&peers.pool, 1).await.unwrap().is_ok(), "its owner's goes on");
    // A key that was never granted.
    let guessed = pool(&peers.pair, &peers.landing, [peers.grant[0] ^ 0x5500, peers.grant[1], peers.grant[2]]);
    assert_eq!(read(&guessed, 1).await, Err(REMOTE_ACCESS));
}

#[tokio::test]
async fn what_lies_beyond_the_pool_is_out_of_reach() {
    let mut peers = peers();
    peers.owner.does("put 1 1000");
    let [key, address, bytes] = peers.grant;
    let beyond = pool(&peers.pair, &peers.landing, [key, address + bytes, bytes]);
    assert_eq!(read(&beyond, 1).await, Err(REMOTE_ACCESS));
}

#[tokio::test]
async fn when_the_owner_is_killed_reads_fail_in_bounded_time_and_nothing_wrong_comes() {
    let mut peers = peers();
    for number in 0..4 {
        peers.owner.does(&format!("put {number} 1000000"));
    }
    let expected: Vec<_> = (0..4).map(|number| bytes_of(number, 1_000_000)).collect();
    let reading = async {
        let mut whole = 0_u64;
        loop {
            for (number, expected) in (0..).zip(&expected) {
                match peers.pool.read(number).await {
                    Ok(Ok(bytes)) => assert!(bytes == *expected, "wrong bytes"),
                    Ok(Err(unreadable)) => panic!("{unreadable}"),
                    Err(broken) => return (whole, broken),
                }
                whole += 1;
            }
        }
    };
    let owner = &mut peers.owner;
    let killing = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        owner.kill();
        std::time::Instant::now()
    };
    let ((whole, broken), killed) = tokio::time::timeout(SOON, async { tokio::join!(reading, killing) }).await.unwrap();
    println!("{whole} reads before; {} ms from the kill to `{broken}`", killed.elapsed().as_millis());
    assert!(whole > 0, "it was read before");
    assert!(matches!(broken, Broken::Failed(_)), "{broken:?}");
    assert!(peers.pool.read(0).await.is_err());
    // Another connection of the device is not concerned.
    let mut other = Owner::start();
    let (pair, grant) = other.connect(&peers.fabric);
    other.does("put 9 5000");
    assert!(read(&pool(&pair, &peers.landing, grant), 9).await == Ok(Ok(bytes_of(9, 5000))));
}

#[tokio::test]
async fn who_ends_a_connection_waits_for_nothing() {
    let mut peers = peers();
    peers.owner.does("put 1 1000000");
    // One after the other, so that one is under way whenever the connection ends.
    let reading = async {
        loop {
            if let Err(broken) = peers.pool.read(1).await {
                return broken;
            }
        }
    };
    let ending = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        peers.pair.end();
    };
    let both = async { tokio::join!(reading, ending) };
    let (broken, ()) = tokio::time::timeout(SOON, both).await.expect("no read hangs");
    assert_eq!(broken, Broken::Ended);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_carries_more_than_its_buffers_both_ways_and_ends() {
    const BYTES: usize = 3 << 20;
    let mut peers = peers();
    peers.owner.does("echo 0");
    let (mut reader, mut writer) = peers.pair.split();
    let sent: Vec<u8> = (0..BYTES as u64).flat_map(|at| at.to_le_bytes()).take(BYTES).collect();
    let expected = sent.clone();
    let writing = tokio::spawn(async move {
        // Pieces of all sizes.
        let mut rest = &sent[..];
        for size in (1..).step_by(7919) {
            let (now, later) = rest.split_at(size.min(rest.len()));
            writer.write_all(now).await.unwrap();
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        writer.shutdown().await.unwrap();
    });
    let mut came = Vec::new();
    tokio::time::timeout(SOON, reader.read_to_end(&mut came)).await.expect("it ends").unwrap();
    writing.await.unwrap();
    assert!(came == expected, "{} bytes came", came.len());
    assert_eq!(peers.pair.broken(), None);
}

#[tokio::test]
async fn who_writes_to_a_process_that_was_killed_is_told() {
    let mut peers = peers();
    let (mut reader, mut writer) = peers.pair.split();
    peers.owner.kill();
    let write = async {
        while writer.write_all(&[0; 10_000]).await.is_ok() {}
        reader.read(&mut [0]).await
    };
    let write = tokio::time::timeout(SOON, write).await.expect("in bounded time");
    assert_eq!(write.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let error = Fabric::open(Some("mlx99"), Purpose::Payloads).unwrap_err();
    assert!(matches!(error, RdmaError::Port(_)), "{error}");
    assert!(error.to_string().contains("no RDMA device `mlx99`; there are rxe0"), "{error}");
}
