//! Runs the built command as a user would.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Returns the whole output, for snapshots.
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

pub(crate) fn conform(folder: &Path, args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_pmi-conform"))
        .args(args)
        .current_dir(folder)
        // The developer's settings must not affect the tests.
        .env_remove("PMI_CONFORM_SERVER")
        .env_remove("PMI_CONFORM_TIMEOUT")
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .output()
        .expect("the built command runs");
    for log in args.iter().filter_map(|arg| arg.strip_prefix("ndjson=")) {
        judge_again(&folder.join(log), args);
    }
    if let ["record", "-o", session, ..] = args {
        judge_again(&folder.join(session).join("session.ndjson"), &[]);
    }
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    Ran {
        status: output.status.code().expect("the command is not killed"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// Returns the results in a log. Most lines of a log are long events, which are skipped.
pub(crate) fn results(log: &str) -> Vec<Value> {
    let may_be_one = log.lines().filter(|line| line.contains("\"result\""));
    let lines = may_be_one.map(|line| serde_json::from_str(line).expect("every line of a log is JSON"));
    lines.filter(|line: &Value| line["type"] == "result").collect()
}

/// Judges a log again, and asserts that the results are the same.
fn judge_again(log: &Path, args: &[&str]) {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    if text.is_empty() {
        return;
    }
    let at = args.iter().position(|arg| *arg == "--deviations");
    let deviations = at.map(|at| &args[at..at + 2]).unwrap_or_default();
    let output = Command::new(env!("CARGO_BIN_EXE_pmi-conform"))
        .args(["report", "judge", "--format", "ndjson"])
        .arg(log)
        .args(deviations)
        .current_dir(log.parent().expect("a log has a parent folder"))
        .output()
        .expect("the built command runs");
    let after = String::from_utf8(output.stdout).expect("output is UTF-8");
    let (after, before) = (results(&after), results(&text));
    assert_eq!(after.len(), before.len(), "{}", String::from_utf8_lossy(&output.stderr));
    for (after, before) in after.iter().zip(&before) {
        assert_eq!(after, before);
    }
}
