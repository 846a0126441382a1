//! The fuzz target for `pmi_fuzz::spawn`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi_fuzz::spawn::run(data));
