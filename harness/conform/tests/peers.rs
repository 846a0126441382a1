//! Real process managers, each judged twice with the deviations that are recorded for it.
//!
//! `ci/install-peers DIR` installs them, `PMI_CONFORM_PEERS=DIR cargo test -- --ignored` judges them.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::conform;
use rstest::rstest;
use serde_json::Value;
use tempfile::TempDir;

/// What was found in each scenario. Only requirements: a bystander may see the end of the connection or its own answer
/// first, and both are true.
fn found(log: &Path) -> BTreeMap<String, (String, Vec<String>)> {
    let text = fs::read_to_string(log).unwrap();
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["type"] == "result")
        .map(|result| {
            let findings = result["findings"].as_array().unwrap();
            let mut ids: Vec<String> =
                findings.iter().map(|f| f["finding"]["requirement"].as_str().unwrap().to_owned()).collect();
            ids.sort();
            ids.dedup();
            let verdict = result["verdict"].as_str().unwrap().to_owned();
            (result["scenario"].as_str().unwrap().to_owned(), (verdict, ids))
        })
        .collect()
}

#[rstest]
#[ignore = "needs PMI_CONFORM_PEERS, a folder made by ci/install-peers"]
fn deviates_as_recorded(#[values("debian-mpich-4.0.2", "mpich-4.3.2", "mpich-5.0.2")] name: &str) {
    let peers =
        PathBuf::from(std::env::var_os("PMI_CONFORM_PEERS").expect("PMI_CONFORM_PEERS names a folder"));
    let launcher = peers.join(name).join("bin/mpiexec.hydra");
    assert!(launcher.is_file(), "{} is not there: see ci/install-peers", launcher.display());
    let deviations = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name).join("deviations.toml");
    let scratch = TempDir::new().unwrap();
    let runs = ["1.ndjson", "2.ndjson"].map(|log| {
        let report = format!("ndjson={log}");
        let args = [
            "--server",
            launcher.to_str().unwrap(),
            "--deviations",
            deviations.to_str().unwrap(),
            "--report",
            &report,
            "-q",
        ];
        let ran = conform(scratch.path(), &args);
        assert_eq!(ran.status, 0, "{name}\n{}", ran.whole());
        found(&scratch.path().join(log))
    });
    let [first, second] = runs;
    assert_eq!(first, second, "{name}: two runs differ");
}
