//! The fuzz target for `pmi_fuzz::server_ops`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi_fuzz::server_ops::run(data));
