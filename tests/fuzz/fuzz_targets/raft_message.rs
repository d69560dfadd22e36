//! See `symphony_tests::fuzz_entries::raft_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| symphony_tests::fuzz_entries::raft_message(bytes));
