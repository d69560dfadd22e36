//! What every link promises, whatever carries its frames: one suite, run for each carrier.

mod fabrics;
mod pipes;
#[cfg(feature = "rdma")]
mod processes;
mod promises;
mod required;
mod subjects;

/// The suite for one carrier.
macro_rules! keeps_its_promises {
    ($($name:ident: $subject:ty;)*) => {$(
        mod $name {
            use super::{promises, subjects};

            keeps_its_promises!(@each $subject:
                frames_arrive_in_order_with_their_tails
                the_largest_frame_arrives
                both_directions_at_once_do_not_mix
                a_receive_given_up_at_any_time_loses_nothing
                a_receive_given_up_between_any_two_bytes_loses_nothing
                a_peer_that_does_not_read_fills_the_queue_and_the_sender_is_told
                a_closed_link_ends_for_all_its_senders_after_what_was_sent
                a_frame_that_cannot_be_sent_ends_the_link_after_what_was_sent_before
                a_peer_that_is_gone_ends_both_directions
                a_link_moves_while_its_peer_receives_and_is_stuck_when_it_does_no_more
                rubbish_ends_the_link_with_a_reason
                a_message_of_another_link_is_refused
            );
        }
    )*};
    (@each $subject:ty: $($promise:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $promise() {
            promises::$promise::<$subject>().await;
        }
    )*};
}

keeps_its_promises! {
    tcp: subjects::Tcp;
    tcp_secured: subjects::TcpSecured;
    shared_memory: subjects::SharedMemory;
    shared_memory_that_spins: subjects::SharedMemorySpinning;
    shared_memory_once_in_use: subjects::SharedMemoryInUse;
    fabric: subjects::Pipes;
    fabric_once_in_use: subjects::PipesInUse;
}

#[cfg(feature = "rdma")]
keeps_its_promises! {
    rdma: subjects::Rdma;
    rdma_once_in_use: subjects::RdmaInUse;
}
