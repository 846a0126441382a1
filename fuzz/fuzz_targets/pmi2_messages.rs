//! See `pmi_fuzz::pmi2_messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi_fuzz::pmi2_messages::run(data));
