use proptest::prelude::*;

use super::*;

type Words = Vec<AtomicU64>;
type Ends = (RingSender<Words>, RingReceiver<Words>);

const BYTES: usize = RING_BYTES_MIN;

/// Two processes: what the first sends the second receives, and the other way.
fn two() -> (Ends, Ends) {
    let (one, other) = (Arc::new(blank_ring(BYTES)), Arc::new(blank_ring(BYTES)));
    (ends(Arc::clone(&one), Arc::clone(&other)).unwrap(), ends(other, one).unwrap())
}

fn take(receiver: &mut RingReceiver<Words>, count: usize) -> Vec<u8> {
    let mut into = vec![0; count];
    let moved = receiver.receive(&mut into).unwrap();
    into.truncate(moved.bytes);
    into
}

#[test]
fn bytes_come_out_in_order_each_way_and_never_more_than_there_is_room_for() {
    let ((mut a, mut a_in), (mut b, mut b_in)) = two();
    assert_eq!(a_in.available(), Ok(Available::Bytes(0)));
    assert_eq!(b.send(b"other way").unwrap().bytes, 9);
    assert_eq!(take(&mut a_in, 5), b"other");
    assert_eq!(take(&mut a_in, 100), b" way");
    let bytes: Vec<_> = (0..3 * BYTES).map(|n| (n * 7) as u8).collect();
    assert_eq!(a.send(&bytes).unwrap().bytes, BYTES);
    assert_eq!(a.send(&bytes).unwrap().bytes, 0, "full");
    assert_eq!(take(&mut b_in, 13), bytes[..13]);
    assert_eq!(a.send(&bytes[BYTES..]).unwrap().bytes, 13);
    assert_eq!(take(&mut b_in, 2 * BYTES), bytes[13..BYTES + 13]);
    assert_eq!(b_in.available(), Ok(Available::Bytes(0)));
}

#[test]
fn what_was_written_before_the_end_is_received_before_it() {
    let ((mut a, _), (_, mut b_in)) = two();
    let _ = a.send(b"last words").unwrap();
    a.end();
    assert_eq!(b_in.available(), Ok(Available::Bytes(10)));
    assert!(!b_in.sleeps().unwrap());
    assert_eq!(take(&mut b_in, 100), b"last words");
    assert_eq!(b_in.available(), Ok(Available::End));
    assert!(!b_in.sleeps().unwrap(), "nobody waits for what never comes");
    assert_eq!(take(&mut b_in, 100), b"");
}

#[test]
fn a_sleeping_side_is_woken_once_and_one_that_is_awake_never() {
    let ((mut a, _), (_, mut b_in)) = two();
    assert!(!a.send(b"1").unwrap().wake);
    assert!(!b_in.sleeps().unwrap(), "something came before it slept");
    assert!(a.send(b"2").unwrap().wake, "but it had said so, and may have looked too early");
    assert_eq!(take(&mut b_in, 100), b"12");
    assert!(!a.send(b"3").unwrap().wake, "it is awake");
    assert_eq!(take(&mut b_in, 100), b"3");
    assert!(b_in.sleeps().unwrap());
    assert!(!a.send(b"4").unwrap().wake, "the earlier wake-up was not handled yet, and wakes it");
    b_in.woken();
    assert_eq!(take(&mut b_in, 100), b"4");
    for _ in 0..3 {
        assert!(b_in.sleeps().unwrap());
        assert!(b_in.sleeps().unwrap(), "asking again is the same sleep");
        assert!(a.send(b"x").unwrap().wake);
        assert!(!a.send(b"y").unwrap().wake, "it was woken for this sleep");
        b_in.woken();
        assert_eq!(take(&mut b_in, 100), b"xy");
    }
    assert!(b_in.sleeps().unwrap());
    b_in.woken();
    assert!(b_in.sleeps().unwrap(), "woken for nothing, it sleeps anew");
    assert!(a.send(b"z").unwrap().wake, "and is woken anew");
    b_in.woken();
    assert_eq!(take(&mut b_in, 100), b"z");
    assert!(b_in.sleeps().unwrap());
    assert!(a.end(), "the end wakes it as well");
}

/// Sleeps that are given up at once, because something arrived in the last moment: they leave one unhandled wake-up and
/// not one each.
#[test]
fn unhandled_wake_ups_do_not_pile_up() {
    let ((mut a, _), (_, mut b_in)) = two();
    let mut wake_ups = 0;
    for _ in 0..1000 {
        assert!(b_in.sleeps().unwrap());
        wake_ups += u32::from(a.send(b"x").unwrap().wake);
        assert_eq!(take(&mut b_in, 100), b"x");
    }
    assert_eq!(wake_ups, 1);
}

#[test]
fn a_writer_without_room_is_woken_once_half_is_free() {
    let ((mut a, _), (_, mut b_in)) = two();
    assert_eq!(a.send(&[1; BYTES]).unwrap().bytes, BYTES);
    assert!(a.sleeps().unwrap());
    let mut piece = [0; BYTES / 4];
    assert!(!b_in.receive(&mut piece).unwrap().wake);
    assert!(b_in.receive(&mut piece).unwrap().wake);
    assert!(!b_in.receive(&mut piece).unwrap().wake, "it was woken for this sleep");
    assert!(!a.sleeps().unwrap(), "there is room");
    assert_eq!(a.send(&[2; BYTES]).unwrap().bytes, 3 * BYTES / 4);
}

#[test]
fn a_peer_that_counts_wrong_is_found_out() {
    let (mine, theirs) = (Arc::new(blank_ring(BYTES)), Arc::new(blank_ring(BYTES)));
    let (mut sender, mut receiver) = ends(Arc::clone(&mine), Arc::clone(&theirs)).unwrap();
    for lie in [BYTES as u64 + 1, u64::MAX] {
        theirs[WRITTEN].store(lie, Ordering::Relaxed);
        assert!(matches!(receiver.receive(&mut [0; 8]), Err(RingError::Written { .. })));
        theirs[WRITTEN].store(0, Ordering::Relaxed);
    }
    assert_eq!(sender.send(&[0; BYTES]).unwrap().bytes, BYTES);
    for lie in [BYTES as u64 + 1, u64::MAX] {
        theirs[TAKEN].store(lie, Ordering::Relaxed);
        assert!(matches!(sender.send(&[0; 1]), Err(RingError::Taken { .. })));
        assert!(matches!(sender.sleeps(), Err(RingError::Taken { .. })));
    }
    // Less than before: that harms only the peer itself.
    theirs[TAKEN].store(8, Ordering::Relaxed);
    assert_eq!(sender.send(&[0; BYTES]).unwrap().bytes, 8);
    theirs[TAKEN].store(0, Ordering::Relaxed);
    assert!(matches!(sender.sleeps(), Err(RingError::Taken { .. })));
    // A reader that has taken something is not taken back.
    theirs[WRITTEN].store(16, Ordering::Relaxed);
    assert_eq!(take(&mut receiver, 16).len(), 16);
    theirs[WRITTEN].store(8, Ordering::Relaxed);
    assert!(matches!(receiver.available(), Err(RingError::Written { .. })));
}

#[test]
fn no_impossible_ring_is_believed() {
    let good = || Arc::new(blank_ring(BYTES));
    for words in [0, 1, RING_HEAD_WORDS, RING_HEAD_WORDS + BYTES / 16, RING_HEAD_WORDS + BYTES / 8 + 1] {
        let odd = Arc::new((0..words).map(|_| AtomicU64::new(MAGIC)).collect::<Words>());
        assert!(ends(good(), Arc::clone(&odd)).is_err() && ends(odd, good()).is_err(), "{words} words");
    }
    let other = good();
    other[0].store(MAGIC + 1, Ordering::Relaxed);
    assert!(ends(good(), other).is_err());
    for bytes in [0, 4095, BYTES + 8, 2 * RING_BYTES_MAX, usize::MAX & !7] {
        assert!(RingMemory::create(bytes).is_err(), "{bytes} bytes");
    }
}

#[test]
fn two_mappings_are_one_stream() {
    let (one, other) = (RingMemory::create(BYTES).unwrap(), RingMemory::create(2 * BYTES).unwrap());
    let (one_fd, other_fd) =
        (one.descriptor().try_clone_to_owned().unwrap(), other.descriptor().try_clone_to_owned().unwrap());
    let (mut a, mut a_in) = one.join(&other_fd).unwrap();
    let (mut b, mut b_in) = other.join(&one_fd).unwrap();
    drop((one_fd, other_fd));
    assert_eq!(a.send(&[1; 3 * BYTES]).unwrap().bytes, BYTES);
    assert_eq!(b.send(&[2; 3 * BYTES]).unwrap().bytes, 2 * BYTES);
    let mut into = vec![0; 4 * BYTES];
    assert_eq!((a_in.receive(&mut into).unwrap().bytes, into[2 * BYTES - 1]), (2 * BYTES, 2));
    assert_eq!((b_in.receive(&mut into).unwrap().bytes, into[BYTES - 1]), (BYTES, 1));
    let not_a_ring = crate::Pool::create(RING_BYTES_MAX as u64, 1).unwrap();
    assert!(RingMemory::create(BYTES).unwrap().join(not_a_ring.descriptor()).is_err());
}

/// Two threads, each of which sleeps whenever it finds nothing to do, by the other's signals alone: a wake-up that is
/// lost hangs the test.
#[test]
fn no_wake_up_is_lost() {
    use std::sync::mpsc;
    const TOTAL: usize = 40 << 20;
    let ((mut sender, _), (_, mut receiver)) = two();
    let ((wake_reader, reader_woken), (wake_writer, writer_woken)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    let soon = std::time::Duration::from_secs(30);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut sent, mut step) = (0_usize, 1);
            while sent < TOTAL {
                step = step * 31 % 9973;
                let bytes: Vec<_> = (sent..TOTAL.min(sent + step % 3000 + 1)).map(|n| (n % 251) as u8).collect();
                let mut left = &bytes[..];
                while !left.is_empty() {
                    let moved = sender.send(left).unwrap();
                    left = &left[moved.bytes..];
                    if moved.wake {
                        wake_reader.send(()).unwrap();
                    }
                    if moved.bytes == 0 && sender.sleeps().unwrap() {
                        writer_woken.recv_timeout(soon).expect("room was made and no wake-up came");
                        sender.woken();
                    }
                }
                sent += bytes.len();
            }
            if sender.end() {
                let _ = wake_reader.send(());
            }
        });
        let (mut taken, mut sleeps) = (0, 0);
        let mut into = [0; 1500];
        loop {
            match receiver.available().unwrap() {
                Available::End => break,
                Available::Bytes(0) => {
                    if receiver.sleeps().unwrap() {
                        sleeps += 1;
                        reader_woken.recv_timeout(soon).expect("bytes came and no wake-up");
                        receiver.woken();
                    }
                }
                Available::Bytes(_) => {
                    let moved = receiver.receive(&mut into).unwrap();
                    assert!(into[..moved.bytes].iter().enumerate().all(|(n, &byte)| byte == ((taken + n) % 251) as u8));
                    taken += moved.bytes;
                    if moved.wake {
                        let _ = wake_writer.send(());
                    }
                }
            }
        }
        assert_eq!(taken, TOTAL);
        assert!(sleeps > 0, "nobody ever slept");
    });
}

proptest! {
    #[test]
    fn pieces_of_any_length_at_any_place_are_one_stream(
        steps in prop::collection::vec((any::<bool>(), 0_usize..3 * BYTES / 2), 0..200),
    ) {
        let ((mut a, _), (_, mut b_in)) = two();
        let (mut sent, mut taken) = (0_usize, 0_usize);
        let byte = |n: usize| (n * 31 % 255) as u8;
        for (sends, count) in steps {
            if sends {
                let bytes: Vec<_> = (sent..sent + count).map(byte).collect();
                let moved = a.send(&bytes).unwrap();
                prop_assert_eq!(moved.bytes, count.min(BYTES - (sent - taken)));
                sent += moved.bytes;
            } else {
                let came = take(&mut b_in, count);
                prop_assert_eq!(came.len(), count.min(sent - taken));
                prop_assert!(came.iter().enumerate().all(|(n, &is)| is == byte(taken + n)));
                taken += came.len();
            }
        }
    }

    /// A peer that stores anything anywhere at any time: nothing panics, no more comes than its ring holds, and what is
    /// written here stays within bounds.
    #[test]
    fn garbage_neither_crashes_nor_overruns(
        steps in prop::collection::vec((0_usize..RING_HEAD_WORDS + 8, prop_oneof![any::<u64>(), 0_u64..3 * BYTES as u64], 0_usize..2 * BYTES), 0..100),
    ) {
        let (mine, theirs) = (Arc::new(blank_ring(BYTES)), Arc::new(blank_ring(BYTES)));
        let (mut sender, mut receiver) = ends(mine, Arc::clone(&theirs)).unwrap();
        for (at, value, count) in steps {
            theirs[at].store(value, Ordering::Relaxed);
            if let Ok(moved) = sender.send(&vec![1; count]) {
                prop_assert!(moved.bytes <= count.min(BYTES));
            }
            let mut into = vec![0; count];
            if let Ok(moved) = receiver.receive(&mut into) {
                prop_assert!(moved.bytes <= count.min(BYTES));
            }
            let _ = (sender.sleeps(), receiver.sleeps(), receiver.available());
        }
    }
}
