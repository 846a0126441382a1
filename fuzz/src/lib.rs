//! The bodies of the fuzz targets, one module each, and their shared code. See `README.md`.

pub mod client_bytes;
pub mod dictionary;
pub mod external;
pub mod frames;
pub mod hashes;
pub mod hydra;
pub mod judge;
pub mod mapping;
pub mod messages;
pub mod pmi2_bytes;
pub mod scenario;
pub mod server_bytes;
pub mod server_ops;
pub mod spawn;
pub mod stream;

mod counters;
mod input;
mod memory;
mod planted;
mod spell;

#[cfg(test)]
mod replay;

/// A function that runs a target on a single input.
pub type TargetBody = fn(&[u8]);

/// The name and the body of each target. Each target has a module, a file in `fuzz_targets/` and a `[[bin]]` section.
pub const TARGETS: &[(&str, TargetBody)] = &[
    ("client_bytes", client_bytes::run),
    ("external", external::run),
    ("frames", frames::run),
    ("hydra", hydra::run),
    ("judge", judge::run),
    ("mapping", mapping::run),
    ("messages", messages::run),
    ("pmi2_bytes", pmi2_bytes::run),
    ("scenario", scenario::run),
    ("server_bytes", server_bytes::run),
    ("server_ops", server_ops::run),
    ("spawn", spawn::run),
    ("stream", stream::run),
];
