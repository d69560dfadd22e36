//! See `symphony_tests::fuzz_entries::split`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| symphony_tests::fuzz_entries::split(bytes));
