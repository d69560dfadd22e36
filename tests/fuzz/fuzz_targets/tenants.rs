//! See `symphony_tests::fuzz_entries::tenants`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| symphony_tests::fuzz_entries::tenants(bytes));
