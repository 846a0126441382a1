//! Progress on standard error, for commands that print their result only at the end.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use pmi_judge::event::Event;
use pmi_judge::verdict::{RunHeader, ScenarioResult};
use pmi_runner::run::Observer;

/// Maximum number of progress lines if standard error is not a terminal.
const MAX_LINES: u64 = 10;

/// The progress display of a command: a bar on a terminal, otherwise a line for each tenth of the steps.
pub(super) struct RunProgress {
    bar: ProgressBar,
    noun: &'static str,
    activity: String,
}

impl RunProgress {
    /// Creates a progress display for an activity. `noun` is the plural noun for its steps.
    pub(super) fn new(activity: impl Into<String>, noun: &'static str) -> Self {
        Self { bar: ProgressBar::hidden(), noun, activity: activity.into() }
    }

    pub(super) fn start(&mut self, steps: usize) {
        self.write(&format!("{}: {steps} {}", self.activity, self.noun));
        self.bar = if io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
        self.bar.set_length(steps as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}") {
            self.bar.set_style(style);
        }
    }

    pub(super) fn step(&mut self, name: &str) {
        self.bar.set_message(name.escape_default().to_string());
        self.bar.inc(1);
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
        let is_tenth = done * MAX_LINES / all.max(1) > (done - 1) * MAX_LINES / all.max(1);
        if self.bar.is_hidden() && all >= MAX_LINES && is_tenth && done < all {
            self.write(&format!("  {done} of {all}"));
        }
        if done >= all {
            self.bar.finish_and_clear();
        }
    }

    fn write(&self, text: &str) {
        // A failure to write to standard error is ignored, because it cannot be reported anywhere.
        let _ = writeln!(anstream::stderr(), "{text}");
    }
}

impl Observer for RunProgress {
    fn begin(&mut self, header: &RunHeader) {
        self.start(header.selected);
    }
    fn event(&mut self, _: &str, _: &Event) {}
    fn result(&mut self, result: &ScenarioResult) {
        self.step(&result.scenario);
    }
}
