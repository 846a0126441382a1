//! The text output of `doctor`.

use std::fmt::Write;

use super::text;
use pmi_runner::doctor::{Examination, StepState};

/// Formats the steps with their advice, the suggested profile, and the command line that judges the implementation.
pub(crate) fn doctor_text(label: &str, of: &Examination, profile: Option<&str>, next: &str) -> String {
    let mut out = format!("{}\n\n", text::clean(label));
    for step in &of.steps {
        let state = match step.state {
            StepState::Works => "ok",
            StepState::Missing => "lacks",
            StepState::WorksWithFindings => "!",
            StepState::Fails => "FAILS",
        };
        let mut lines = step.seen.lines();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{state:>5}  {:10}  {}",
            step.feature,
            text::clean(lines.next().unwrap_or_default())
        );
        for line in lines {
            let _ = writeln!(out, "                   {}", text::clean(line));
        }
        if let Some(remedy) = &step.remedy {
            let _ = writeln!(out, "                   - {}", text::clean(remedy));
        }
    }
    if !of.is_fit() {
        return out + "\nThis implementation cannot be tested until the steps marked FAILS succeed.\n";
    }
    if let Some(profile) = profile {
        out += "\nProfile for this implementation (save it as NAME.toml and use --server @NAME; pmi-conform init writes one):\n\n";
        profile.lines().for_each(|line| out += &format!("    {}\n", text::clean(line)));
    }
    out + &format!("\nThis implementation can be tested. To test it, run: {}\n", text::clean(next))
}
