//! The fuzz target for `pmi_fuzz::external`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: pmi_fuzz::external::be_agent(), |data: &[u8]| pmi_fuzz::external::run(data));
