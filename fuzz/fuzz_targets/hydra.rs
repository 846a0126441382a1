//! The fuzz target for `pmi_fuzz::hydra`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi_fuzz::hydra::run(data));
