use std::time::Duration;

use super::*;
use crate::pictures::test_pictures::{cut_off, model, picture, pictures};

const SOON: Duration = Duration::from_secs(30);

/// Decoders of this many threads and this much room, and enough memory.
fn decoders(threads: u32, waiting_max: u32) -> (Decoders, Registry) {
    let registry = Registry::new("frontend");
    let config = ImagesConfig { threads, waiting_max, pixels_max: 1 << 20, decoded_mb_max: 1 };
    (Decoders::new(&config, ImageLimits::default(), &registry), registry)
}

/// Begins with pictures behind two bytes of other inputs.
fn begin(decoders: &Decoders, payload: &'static str, encoded: Vec<Bytes>) -> Result<Decoding, InferError> {
    decoders.begin(&model(2, 1, 0), Bytes::from_static(payload.as_bytes()), pictures(encoded, 2))
}

/// The whole payload.
async fn made(decoding: &mut Decoding) -> Result<Bytes, InferError> {
    loop {
        if let Progress::Made(made) = decoding.next().await {
            return made;
        }
    }
}

#[tokio::test]
async fn pictures_take_their_place_among_the_other_inputs_in_their_order() {
    let (decoders, _) = decoders(2, 8);
    let encoded = (0..4).map(|n| picture(&[n, 100 + n])).collect();
    let mut decoding = begin(&decoders, "ab!", encoded).unwrap();
    assert!(matches!(decoding.next().await, Progress::Begun));
    let whole = made(&mut decoding).await.unwrap();
    assert_eq!(&whole[..], [b'a', b'b', 0, 100, 1, 101, 2, 102, 3, 103, b'!']);
}

#[tokio::test]
async fn one_that_cannot_be_decoded_is_named() {
    let (decoders, registry) = decoders(1, 8);
    let good = picture(&[1, 2]);
    let mut decoding = begin(&decoders, "ab", vec![good.clone(), cut_off(&good)]).unwrap();
    let error = made(&mut decoding).await.unwrap_err();
    assert!(
        matches!(&error, InferError::BadPicture(reason) if reason.starts_with("input `x`, picture 1: it cannot be decoded")),
        "{error}"
    );
    let page = registry.encode();
    for expected in [
        "symphony_frontend_pictures_total{outcome=\"decoded\"} 1",
        "symphony_frontend_pictures_total{outcome=\"undecodable\"} 1",
        "symphony_frontend_picture_decode_seconds_count 2",
        "symphony_frontend_picture_wait_seconds_count 2",
    ] {
        assert!(page.contains(expected), "{page}");
    }
}

#[tokio::test]
async fn a_request_is_announced_when_its_last_picture_has_a_thread_and_a_full_pool_refuses() {
    let (decoders, registry) = decoders(1, 3);
    // The only thread is busy with something else.
    let busy = Arc::clone(&decoders.threads).acquire_owned().await.unwrap();
    let begin = |count: usize| begin(&decoders, "ab", vec![picture(&[1, 2]); count]);
    let mut waits = begin(2).unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(20), waits.next()).await.is_err());
    assert!(waits.is_waiting());
    assert_eq!(begin(2).unwrap_err(), InferError::DecodersBusy { waiting_max: 3 });
    let gives_up = begin(1).unwrap();
    assert_eq!(decoders.room.available_permits(), 0);

    // A client that leaves makes room.
    drop(gives_up);
    let room = async {
        while decoders.room.available_permits() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, room).await.unwrap();
    assert!(registry.encode().contains("symphony_frontend_pictures_total{outcome=\"abandoned\"} 1"));
    drop(busy);
    let begun = tokio::time::timeout(SOON, waits.next()).await.unwrap();
    assert!(matches!(begun, Progress::Begun) && !waits.is_waiting());
    assert_eq!(&made(&mut waits).await.unwrap()[..], [b'a', b'b', 1, 2, 1, 2]);
    assert_eq!(decoders.room.available_permits(), 3);
}

#[tokio::test]
async fn one_that_takes_long_is_not_told_of_before_it_is_there() {
    let (decoders, _) = decoders(1, 3);
    let slow = Pictures { quick: false, ..pictures(vec![picture(&[1, 2])], 0) };
    let mut decoding = decoders.begin(&model(2, 0, 0), Bytes::new(), slow).unwrap();
    let busy = Arc::clone(&decoders.threads).acquire_owned().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(20), decoding.next()).await.is_err());
    assert!(decoding.is_waiting(), "also once it was asked for");
    drop(busy);
    let next = tokio::time::timeout(SOON, decoding.next()).await.unwrap();
    assert!(matches!(&next, Progress::Made(Ok(input)) if input[..] == [1, 2]), "{next:?}");
}

#[tokio::test]
async fn what_pictures_become_is_bounded_in_bytes_and_counted_until_the_last_who_has_it_is_gone() {
    const MIB: u64 = 1 << 20;
    let (decoders, registry) = decoders(1, 1024);
    let shows = |bytes: u64| registry.encode().contains(&format!("symphony_frontend_pictures_decoded_bytes {bytes}\n"));
    // Half of the memory: 128 pictures of 4 KiB.
    let model = model(4096, 0, 0);
    let begin = |count: usize| decoders.begin(&model, Bytes::new(), pictures(vec![picture(&[1]); count], 0));
    let busy = Arc::clone(&decoders.threads).acquire_owned().await.unwrap();
    let (mut one, other) = (begin(128).unwrap(), begin(128).unwrap());
    let full = begin(1).unwrap_err();
    assert_eq!(
        (&full, full.error_status().reason),
        (&InferError::DecodedFull { bytes_max: MIB }, "decoded_pictures_full")
    );
    assert_eq!(decoders.room.available_permits(), 1024 - 2 * 128, "nothing was taken for it");
    assert!(shows(MIB), "{}", registry.encode());

    // A client that leaves gives it back.
    drop(other);
    drop(busy);
    let given_back = async {
        while !shows(MIB / 2) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, given_back).await.unwrap();
    // It is made. Its request has it, and a backend that does not take it as fast as it is sent.
    let input = made(&mut one).await.unwrap();
    drop(one);
    assert_eq!(input.len() as u64, MIB / 2);
    let _another = begin(128).unwrap();
    assert_eq!(begin(1).unwrap_err(), full);
    let queued = input.slice(..1);
    drop(input);
    assert_eq!(begin(1).unwrap_err(), full, "its request has ended, and its bytes are still here");
    drop(queued);
    begin(128).unwrap();
}

#[tokio::test]
async fn regions_of_a_picture_become_items_and_are_counted_as_long_as_one_of_them_is_there() {
    let (decoders, registry) = decoders(1, 1);
    let (detector, digit) = (model(4, 0, 0), model(2, 0, 0));
    let boxes = vec![[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]];
    let crops = |picture| Crops { picture, seen_by: &detector, model: &digit, boxes: boxes.clone() };
    let waiting = decoders.crop(crops(picture(&[1, 2, 3, 4]))).unwrap();
    let refused = decoders.crop(crops(picture(&[1, 2, 3, 4]))).err();
    assert_eq!(refused, Some(InferError::DecodersBusy { waiting_max: 1 }), "one picture at a time");
    let mut items = waiting.await.unwrap();
    assert_eq!((&items[0][..], &items[1][..]), (&[1, 2][..], &[3, 4][..]));
    let held = || registry.encode().contains("symphony_frontend_pictures_decoded_bytes 4\n");
    items.pop();
    assert!(held(), "{}", registry.encode());
    drop(items);
    assert!(!held());
    let bad = decoders.crop(crops(cut_off(&picture(&[1, 2, 3, 4])))).unwrap().await.unwrap_err();
    assert!(matches!(&bad, InferError::BadPicture(reason) if reason.starts_with("input `x`: it cannot be")), "{bad}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn regions_that_are_cut_sooner_than_a_thread_wakes_wait_for_none() {
    let (decoders, _) = decoders(1, 4);
    let detector = model(4, 0, 0);
    let crop = async |width: u32| {
        let taker = model(width, 0, 0);
        let boxes = vec![[0.0, 0.0, 1.0, 1.0]; 2];
        let crops = Crops { picture: picture(&[1, 2, 3, 4]), seen_by: &detector, model: &taker, boxes };
        let mut cut = Box::pin(decoders.crop(crops).unwrap());
        let at_once = futures::FutureExt::now_or_never(&mut cut);
        let is_at_once = at_once.is_some();
        let items = match at_once {
            Some(items) => items,
            None => cut.await,
        };
        assert_eq!(items.unwrap().len(), 2);
        is_at_once
    };
    assert!(crop(2).await && crop(4_000).await);
    // Also then as many at a time as there are threads.
    let busy = Arc::clone(&decoders.threads).acquire_owned().await.unwrap();
    let waits = tokio::time::timeout(Duration::from_millis(20), crop(2)).await;
    assert!(waits.is_err());
    drop(busy);
}
