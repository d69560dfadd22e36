//! See `symphony_tests::fuzz_entries::grpc_answer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| symphony_tests::fuzz_entries::grpc_answer(bytes));
