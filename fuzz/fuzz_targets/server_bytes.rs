//! The fuzz target for `pmi_fuzz::server_bytes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi_fuzz::server_bytes::run(data));
