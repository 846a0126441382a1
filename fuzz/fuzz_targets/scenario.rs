//! The fuzz target for `pmi_fuzz::scenario`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi_fuzz::scenario::run(data));
