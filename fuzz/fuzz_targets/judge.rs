//! The fuzz target for `pmi_fuzz::judge`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi_fuzz::judge::run(data));
