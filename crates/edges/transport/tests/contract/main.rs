//! What every transport of payloads promises: one suite, run for each of them.

mod large;
mod promises;
mod skeleton;
mod subjects;
mod test_frontend;
#[cfg(feature = "rdma")]
mod vanishing_rdma;

/// The suite for one transport.
macro_rules! keeps_its_promises {
    ($($name:ident: $subject:ty;)*) => {$(
        mod $name {
            use super::promises;

            keeps_its_promises!(@each $subject:
                inputs_arrive_whole_and_in_the_order_asked
                a_former_boot_is_not_read_from
                what_has_its_outcome_is_none_and_the_others_come
                a_frontend_that_is_gone_costs_its_own_requests_only
                a_batch_that_no_frame_holds_arrives
                reads_at_a_time_do_not_mix
                an_input_that_ends_while_it_is_read_is_whole_or_none
                results_are_delivered_once
                more_results_than_there_is_room_for_arrive
                finish_drains_and_nothing_is_delivered_afterwards
                a_result_for_nobody_hangs_nobody
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
    in_process: crate::subjects::InProcess;
    tcp: crate::subjects::Tcp;
    tcp_secured: crate::subjects::TcpSecured;
    shared_memory: crate::subjects::SharedMemory;
    smallest: crate::skeleton::Smallest;
}

#[cfg(feature = "rdma")]
keeps_its_promises! {
    rdma: crate::subjects::Rdma;
}
