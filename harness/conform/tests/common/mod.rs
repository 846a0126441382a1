//! Runs the built command as a user would.

use std::path::Path;
use std::process::{Command, Stdio};

/// What a run of the command came to.
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// All of it, for snapshots.
    pub(crate) fn whole(&self) -> String {
        let mut text = format!("exit status {}\n", self.status);
        for (name, stream) in [("stdout", &self.out), ("stderr", &self.err)] {
            if !stream.is_empty() {
                text += &format!("--- {name}\n{stream}");
            }
        }
        text
    }
}

/// Runs `pmi-conform` in a folder.
pub(crate) fn conform(folder: &Path, args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_pmi-conform"))
        .args(args)
        .current_dir(folder)
        // Nothing of what the developer has set may change what the tests see.
        .env_remove("PMI_CONFORM_SERVER")
        .env_remove("PMI_CONFORM_TIMEOUT")
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .output()
        .expect("the built command runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    Ran {
        status: output.status.code().expect("the command is not killed"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}
