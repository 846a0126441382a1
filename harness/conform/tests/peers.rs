//! Tests of real process managers. Each process manager is judged twice with its recorded deviations.
//!
//! `ci/install-peers DIR` installs them, and `PMI_CONFORM_PEERS=DIR cargo test -- --ignored` judges them.

mod common;

use std::path::Path;

use common::conform;
use pmi_test_programs::peers;
use rstest::rstest;
use tempfile::TempDir;

#[rstest]
#[ignore = "needs PMI_CONFORM_PEERS, a folder made by ci/install-peers"]
fn peer_deviates_as_recorded(#[values("debian-mpich-4.0.2", "mpich-4.3.2", "mpich-5.0.2")] name: &str) {
    let launcher = peers().join(name).join("bin/mpiexec.hydra");
    assert!(launcher.is_file(), "{}: no such file; see ci/install-peers", launcher.display());
    let deviations =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name).join("deviations.toml");
    let scratch = TempDir::new().unwrap();
    let (launcher, deviations) = (launcher.to_str().unwrap(), deviations.to_str().unwrap());
    // Exit status 0 means that the findings are exactly the recorded ones. Findings that Hydra shows only in some runs are recorded as
    // `sometimes`.
    for _ in 0..2 {
        let ran = conform(scratch.path(), &["--server", launcher, "--deviations", deviations, "-q"]);
        assert_eq!(ran.status, 0, "{name}\n{}", ran.whole());
    }
}
