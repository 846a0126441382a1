//! The fuzz target for `pmi_fuzz::messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi_fuzz::messages::run(data));
