use bytes::Bytes;
use symphony_types::{ModelId, Token};
use tokio::sync::oneshot;

use super::*;
use crate::pictures::test_pictures;
use crate::requests::request_table::{Ending, OpenRequest, Payload};

const MODEL: ModelId = ModelId::new(4);
const SUBCLUSTER: SubclusterId = SubclusterId::new(1);

/// A cluster, and the commands to its link to the sub-cluster's leader.
fn cluster() -> (Arc<Cluster>, mpsc::UnboundedReceiver<LeaderCommand>) {
    let identity = FrontendIdentity {
        name: "f".into(),
        boot: BootId::new(3),
        console_addr: String::new(),
        ledger: Arc::default(),
        ended: CancellationToken::new(),
        news: watch::Sender::default(),
        forgotten: watch::Sender::default(),
    };
    let cluster = Cluster::showing(FrontendId::new(2), &identity, View::default());
    let (commands, received) = mpsc::unbounded_channel();
    cluster.links.lock().unwrap().insert(SUBCLUSTER, LeaderHandle { commands, suspended: Arc::default() });
    (cluster, received)
}

/// A request whose input is not there yet.
fn submit(cluster: &Arc<Cluster>, withheld: bool) -> (u64, oneshot::Receiver<Ending>) {
    let (waiter, ending) = oneshot::channel();
    let pending = OpenRequest {
        model: MODEL,
        subcluster: SUBCLUSTER,
        items: 1,
        weight: symphony_types::RequestValue::ONE,
        payload: Payload::Pending(Vec::new()),
        shared: None,
        deadline: std::time::Instant::now(),
        withheld,
        announced: Token::default(),
        attempt: 0,
        panics: 0,
        read: false,
        is_stage: false,
        hop: None,
        waiter,
    };
    (cluster.submit(pending).1, ending)
}

fn received(commands: &mut mpsc::UnboundedReceiver<LeaderCommand>) -> Vec<LeaderCommand> {
    std::iter::from_fn(|| commands.try_recv().ok()).collect()
}

#[tokio::test]
async fn a_request_that_was_withheld_has_its_input_before_anybody_can_hear_of_it() {
    let (cluster, mut commands) = cluster();
    let (sequence, _ending) = submit(&cluster, true);
    let info = Arc::new(test_pictures::model(1, 0, 0));
    let route = Route {
        model: MODEL,
        subcluster: SUBCLUSTER,
        info,
        profiles: Arc::from([]),
        gpu_time_per_item: symphony_types::Nanos::ZERO,
    };
    // As long as this is locked, every task that has something for a leader waits.
    let links = cluster.links.lock().unwrap();
    let announces = Arc::clone(&cluster);
    let announcing = std::thread::spawn(move || {
        announces.announce_withheld(sequence, &route, Some(&Bytes::from_static(b"picture")))
    });
    while !cluster.table.waits_for(SUBCLUSTER) {
        std::thread::yield_now();
    }
    // From here on it would be announced to a new leader.
    assert_eq!(cluster.table.payload(sequence).as_deref(), Some(&b"picture"[..]));
    drop(links);
    announcing.join().unwrap();
    assert_eq!(received(&mut commands), [LeaderCommand::Announce(sequence)]);
}

#[tokio::test]
async fn leaders_hear_the_end_of_those_requests_that_they_may_have_heard_of() {
    let (cluster, mut commands) = cluster();
    let ((withheld, mut withheld_ends), (announced, mut announced_ends)) =
        (submit(&cluster, true), submit(&cluster, false));
    assert_eq!(cluster.withdraw_unread(MODEL), 2, "both may go to another cluster");
    for ending in [&mut withheld_ends, &mut announced_ends] {
        assert!(matches!(ending.try_recv(), Ok(Ending::NotHere)));
    }
    assert_eq!(
        received(&mut commands),
        [LeaderCommand::Announce(announced), LeaderCommand::Cancel(announced, MODEL.get())]
    );
    cluster.withdraw(withheld);
    assert_eq!(received(&mut commands), [], "it had its end");

    let ((withheld, _withheld_ends), (announced, _announced_ends)) = (submit(&cluster, true), submit(&cluster, false));
    cluster.withdraw(withheld);
    cluster.withdraw(announced);
    assert_eq!(
        received(&mut commands),
        [LeaderCommand::Announce(announced), LeaderCommand::Cancel(announced, MODEL.get())]
    );
    assert_eq!(cluster.table.len(), 0);
}

#[test]
fn a_metrics_port_on_all_addresses_is_told_to_others_by_the_host_of_the_data_port() {
    for (metrics, data, expected) in [
        ("0.0.0.0:8002", "10.0.3.1:7201", "10.0.3.1:8002"),
        ("[::]:8002", "[2001:db8::1]:7201", "[2001:db8::1]:8002"),
        ("0.0.0.0:8002", "frontend-1.internal:7201", "frontend-1.internal:8002"),
        ("10.0.9.9:8002", "10.0.3.1:7201", "10.0.9.9:8002"),
        ("127.0.0.1:8002", "127.0.0.1:7201", "127.0.0.1:8002"),
    ] {
        assert_eq!(reachable(metrics, data), expected, "{metrics}, {data}");
    }
}
