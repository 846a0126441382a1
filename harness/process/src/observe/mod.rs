//! Observation of processes from outside.
//!
//! - [`edges`]: the control-flow edges that a started program executes, if it was compiled to count them
//! - [`idle`]: the proof that processes wait only for the harness
//! - [`procfs`]: files of `/proc`
//! - [`tcp`]: the other end of a TCP connection on this host
//! - [`tree`]: the descendants of this process, and the orphans that become its children

pub mod edges;
pub mod idle;
pub mod procfs;
pub mod tcp;
pub mod tree;
