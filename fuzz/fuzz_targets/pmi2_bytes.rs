//! The fuzz target for `pmi_fuzz::pmi2_bytes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi_fuzz::pmi2_bytes::run(data));
