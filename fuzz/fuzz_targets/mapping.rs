//! The fuzz target for `pmi_fuzz::mapping`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi_fuzz::mapping::run(data));
