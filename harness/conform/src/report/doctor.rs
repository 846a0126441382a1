//! What `doctor` shows.

use std::fmt::Write;

use super::text;
use pmi_runner::doctor::{Examination, State};

/// The steps, each with what to do; the profile that fits, and the command that judges.
pub(crate) fn doctor_text(label: &str, of: &Examination, profile: Option<&str>, next: &str) -> String {
    let mut out = format!("{}\n\n", text::clean(label));
    for step in &of.steps {
        let state = match step.state {
            State::Works => "ok",
            State::Lacks => "lacks",
            State::Odd => "!",
            State::Fails => "FAILS",
        };
        let mut lines = step.seen.lines();
        // Cannot fail: it is a string.
        let _ =
            writeln!(out, "{state:>5}  {:10}  {}", step.what, text::clean(lines.next().unwrap_or_default()));
        for line in lines {
            let _ = writeln!(out, "                   {}", text::clean(line));
        }
        if let Some(remedy) = &step.remedy {
            let _ = writeln!(out, "                   - {}", text::clean(remedy));
        }
    }
    if !of.is_fit() {
        return out + "\nIt cannot be judged like this.\n";
    }
    if let Some(profile) = profile {
        out += "\nA profile for it, to be kept as NAME.toml and given as --server @NAME (pmi-conform init writes one):\n\n";
        profile.lines().for_each(|line| out += &format!("    {}\n", text::clean(line)));
    }
    out + &format!("\nIt can be judged: {}\n", text::clean(next))
}
