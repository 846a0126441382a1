//! The example client, which is a rank of a job.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// The example client. Cargo builds examples only if all targets are asked for.
pub(crate) fn client() -> &'static str {
    static CLIENT: OnceLock<String> = OnceLock::new();
    CLIENT.get_or_init(|| {
        let bin = Path::new(env!("CARGO_BIN_EXE_pmi-conform"));
        let example = bin.with_file_name("examples").join("pmi-client");
        if !example.exists() {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--quiet", "--package", "pmi-conform", "--example", "pmi-client"]);
            if !cfg!(debug_assertions) {
                cargo.arg("--release");
            }
            assert!(cargo.status().unwrap().success());
        }
        example.to_str().unwrap().to_owned()
    })
}
