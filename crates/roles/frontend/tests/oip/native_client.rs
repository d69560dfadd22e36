//! The client of this repository against the real surface: what it promises about deadlines, retries and leaving.

use std::collections::BTreeSet;
use std::time::Duration;

use symphony_client::{
    Answer, Availability, Balance, Client, ClientBuilder, ElementType, Error, Refusal, Request, Tensor,
};
use symphony_frontend::oip::Limits;
use symphony_types::{DataType, Nanos};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use super::fake::{BATCH_MAX, IN_FLIGHT_MAX, Running, every_type, refusals};

/// How long something may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);

fn to(running: &[&Running]) -> ClientBuilder {
    running.iter().fold(Client::builder(), |builder, running| builder.frontend(running.grpc.to_string()))
}

async fn connected(builder: ClientBuilder) -> Client {
    let client = builder.build().unwrap();
    client.connected(SOON).await.unwrap();
    client
}

/// Waits until the client counts this many frontends as ready.
async fn ready_are(client: &Client, count: usize) {
    let look = async {
        while client.frontends().iter().filter(|frontend| frontend.availability == Availability::Ready).count() != count
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, look).await.unwrap();
}

/// One item for a model with input `x`.
fn one(model: &str) -> Request {
    Request::new(model).input(Tensor::new("x", &[1, 2, 2], &[1.0_f32, 2.0, 3.0, 4.0]).unwrap())
}

fn doubled(answer: &Answer) -> Vec<f32> {
    answer.output("y").unwrap().values().unwrap()
}

fn refusal(result: Result<Answer, Error>) -> Refusal {
    result.unwrap_err().refusal().unwrap().clone()
}

#[tokio::test]
async fn tensors_of_every_type_come_back_as_they_went() {
    let running = Running::start().await;
    let client = connected(to(&[&running])).await;
    let answer = client.infer(one("double").id("mine")).await.unwrap();
    assert_eq!((doubled(&answer), answer.id.as_str()), (vec![2.0, 4.0, 6.0, 8.0], "mine"));
    assert_eq!((answer.batch, answer.execution), (Some(2), Some(Duration::from_micros(1500))));
    assert_eq!((answer.request_id.as_deref(), answer.late), (Some("f3/ab/1"), false));

    let mut request = Request::new("every-type");
    for spec in every_type() {
        let element = ElementType::Fixed(spec.data_type);
        let data = vec![u8::from(spec.data_type == DataType::Bool); spec.item_bytes()].into();
        request = request.input(Tensor::raw(spec.name, element, &[1, 2], data).unwrap());
    }
    let answer = client.infer(request.clone().output("int64").output("bool")).await.unwrap();
    assert_eq!(answer.outputs.iter().map(Tensor::name).collect::<Vec<_>>(), ["int64", "bool"]);
    assert_eq!(answer.output("bool").unwrap().values::<bool>().unwrap(), [true, true]);
    assert_eq!(client.infer(request).await.unwrap().outputs.len(), every_type().len());
}

#[tokio::test]
async fn servers_and_models_say_what_they_are() {
    let running = Running::start().await;
    let client = connected(to(&[&running])).await;
    assert!(client.server_live().await.unwrap() && client.server_ready().await.unwrap());
    let server = client.server_metadata().await.unwrap();
    assert_eq!((server.name.as_str(), server.version.as_str()), ("fake", "7"));
    let model = client.model_metadata("double").await.unwrap();
    assert_eq!(
        (model.inputs[0].element, model.inputs[0].shape.as_slice()),
        (ElementType::Fixed(DataType::Fp32), [-1, 2, 2].as_slice())
    );
    assert_eq!(model.outputs[0].name, "y");
    let config = client.model_config("double").await.unwrap();
    assert_eq!((config.batch_max, config.slo), (BATCH_MAX, Some(Duration::from_millis(50))));
    for (name, expected) in [("double", true), ("loading", false), ("nope", false)] {
        assert_eq!(client.model_ready(name).await.unwrap(), expected, "{name}");
    }
    let nope = client.model_metadata("nope").await.unwrap_err();
    assert_eq!(nope.refusal().unwrap().reason, "unknown_model");
}

#[tokio::test]
async fn deadlines_travel_and_leave_room_for_the_frontends_own_word() {
    let running = Running::start().await;
    let client = connected(to(&[&running]).answer_grace(Duration::from_secs(7)).metadata("x-slo-ms", "40")).await;
    client.infer(one("double").within(Duration::from_secs(20))).await.unwrap();
    let deadline = running.service.last().deadline;
    let (timeout, grpc) = (deadline.timeout.unwrap(), deadline.grpc.unwrap());
    assert!(timeout <= Nanos::from_millis(20_000) && timeout > Nanos::from_millis(10_000), "{timeout:?}");
    assert!(grpc > timeout && grpc <= Nanos::from_millis(27_000), "{grpc:?} after {timeout:?}");
    assert_eq!((deadline.slo, deadline.exceed_slo), (Some(Nanos::from_millis(40)), false));
    client.infer(one("double").within(Duration::from_secs(20)).exceed_slo()).await.unwrap();
    assert!(running.service.last().deadline.exceed_slo);
    client.infer(one("double")).await.unwrap();
    assert_eq!(running.service.last().deadline.timeout, None, "the model's SLO holds");

    // A late answer is an error, unless it is wanted.
    assert_eq!(refusal(client.infer(one("late")).await).reason, "late");
    let answer = client.infer(one("late").accept_late()).await.unwrap();
    assert!(answer.late && doubled(&answer).len() == 4);
}

#[tokio::test]
async fn an_answer_that_never_comes_ends_by_the_clients_clock_and_is_withdrawn() {
    let running = Running::start().await;
    let client = connected(to(&[&running]).answer_grace(Duration::from_millis(50))).await;
    let error = client.infer(one("stuck").within(Duration::from_millis(50))).await.unwrap_err();
    // Whose clock was first is a matter of chance.
    let passed = error.refusal().is_some_and(|refusal| refusal.reason == "deadline_passed");
    assert!(passed || matches!(error, Error::NoAnswer { .. }), "{error:?}");
    assert!(!error.was_not_accepted());
    running.service.stuck_is(0).await;
}

#[tokio::test]
async fn who_stops_waiting_withdraws_the_request_and_frees_its_place() {
    let running = Running::start().await;
    let client = connected(to(&[&running]).in_flight_max(1)).await;
    let other = client.clone();
    let waiting = tokio::spawn(async move { other.infer(one("stuck")).await });
    running.service.stuck_is(1).await;
    let error = client.infer(one("double")).await.unwrap_err();
    assert!(matches!(error, Error::TooManyInFlight { in_flight_max: 1 }) && error.was_not_accepted(), "{error}");
    waiting.abort();
    running.service.stuck_is(0).await;
    let _ = waiting.await;
    client.infer(one("double")).await.unwrap();
}

#[tokio::test]
async fn what_was_accepted_is_not_sent_again_whatever_became_of_it() {
    let (first, second) = (Running::start().await, Running::start().await);
    let client = connected(to(&[&first, &second])).await;
    ready_are(&client, 2).await;
    for (model, error) in refusals() {
        let before = first.service.count() + second.service.count();
        let refusal = refusal(client.infer(one(&model)).await);
        let status = error.error_status();
        assert_eq!(
            (refusal.code, refusal.reason.as_str(), refusal.message),
            (status.grpc, status.reason, error.to_string())
        );
        assert_eq!(refusal.retry_after.is_some(), status.retry.after().is_some(), "{model}");
        assert!(refusal.request_id.is_some(), "{model}");
        assert_eq!(first.service.count() + second.service.count(), before + 1, "{model}");
    }
}

#[tokio::test]
async fn what_was_refused_before_it_was_accepted_goes_to_another_frontend() {
    let full = Running::start_for(1).await;
    let free = Running::start().await;
    let alone = connected(to(&[&full])).await;
    let held = tokio::spawn({
        let client = alone.clone();
        async move { client.infer(one("stuck")).await }
    });
    full.service.stuck_is(1).await;

    // There is no other frontend, or none would take it: the refusal is the answer.
    let refused = refusal(alone.infer(one("double")).await);
    assert_eq!((refused.reason.as_str(), refused.was_not_accepted()), ("too_many_requests", true));
    let client = connected(to(&[&full, &free]).balance(Balance::RoundRobin)).await;
    ready_are(&client, 2).await;
    let before = free.service.count();
    assert_eq!(refusal(client.infer(one("loading")).await).reason, "model_not_ready");

    // With a frontend that is free every request is served, once each.
    for _ in 0..4 {
        client.infer(one("double")).await.unwrap();
    }
    assert_eq!((full.service.count(), free.service.count() - before), (1, 5), "four, and the one that is loading");
    // What would fail anywhere is not tried elsewhere.
    let before = free.service.count() + full.service.count();
    let wrong = Request::new("double").input(Tensor::new("x", &[1, 2], &[1.0_f32, 2.0]).unwrap());
    let reasons: BTreeSet<_> =
        [refusal(client.infer(wrong.clone()).await).reason, refusal(client.infer(wrong).await).reason].into();
    assert!(reasons.contains("invalid_request"), "{reasons:?}");
    assert_eq!(free.service.count() + full.service.count(), before);
    held.abort();
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_is_no_reason_to_ask_again() {
    // Takes a request, and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    let reads = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = vec![0; 1 << 16];
        // The preface and, sooner or later, the message.
        let (mut read, word) = (0, b"double");
        while !bytes[..read].windows(word.len()).any(|window| window == word) {
            read += stream.read(&mut bytes[read..]).await.unwrap();
        }
    });
    let running = Running::start().await;
    let client = Client::builder().frontend(silent).frontend(running.grpc.to_string());
    let client = client.balance(Balance::RoundRobin).unwatched().build().unwrap();
    let error = client.infer(one("double")).await.unwrap_err();
    assert!(matches!(&error, Error::Lost { .. }) && !error.was_not_accepted(), "{error:?}");
    reads.await.unwrap();
    assert_eq!(running.service.count(), 0);
}

#[tokio::test]
async fn frontends_that_go_are_gone_around_and_those_that_come_back_are_found() {
    let (first, second) = (Running::start().await, Running::start().await);
    let client = connected(to(&[&first, &second])).await;
    ready_are(&client, 2).await;

    // Phase 1: one drains, and gets nothing more.
    first.service.drain();
    ready_are(&client, 1).await;
    for _ in 0..4 {
        client.infer(one("double")).await.unwrap();
    }
    assert_eq!((first.service.count(), second.service.count()), (0, 4));

    // Phase 2: the other one is gone; the one that drains says so best.
    let address = second.grpc;
    second.stop().await;
    ready_are(&client, 0).await;
    client.infer(one("double")).await.unwrap();
    assert_eq!(first.service.count(), 1, "nobody else is left, and it is the frontend that decides");

    // Phase 3: a frontend is back under the address of the one that had gone.
    let back = Running::start_at(address, Limits::default(), IN_FLIGHT_MAX).await;
    ready_are(&client, 1).await;
    client.infer(one("double")).await.unwrap();
    assert_eq!((first.service.count(), back.service.count()), (1, 1));
    // The client ends, and so do its connections: else this would not end.
    drop(client);
    back.stop().await;
    first.stop().await;
}

#[tokio::test]
async fn where_nobody_serves_nothing_is_sent_and_the_reason_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    for builder in [Client::builder(), Client::builder().unwatched()] {
        let client = builder.frontend(&address).wait_for_frontend(Duration::from_millis(20)).build().unwrap();
        for error in [client.infer(one("double")).await.unwrap_err(), client.server_live().await.unwrap_err()] {
            assert!(matches!(error, Error::Unreachable(_)) && error.was_not_accepted(), "{error:?}");
            assert!(error.to_string().contains(&address), "{error}");
        }
    }
    let client = Client::builder().frontend(&address).build().unwrap();
    let error = client.connected(SOON).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}
