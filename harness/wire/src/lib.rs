#![forbid(unsafe_code)]
//! The PMI-1 wire protocol.
