//! Observation of processes from outside.
//!
//! - [`edges`]: the control-flow edges that a started program executes, if it was compiled to count them
//! - [`idle`]: whether processes wait for something that only we can do
//! - [`procfs`]: files of `/proc`
//! - [`tcp`]: the other end of a TCP connection on this host
//! - [`tree`]: our descendants, and the orphans that become our children

pub mod edges;
pub mod idle;
pub mod procfs;
pub mod tcp;
pub mod tree;
