//! The fuzz target for `pmi_fuzz::client_bytes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi_fuzz::client_bytes::run(data));
