//! A run as recorded in its log; the input of every report.

use std::collections::BTreeMap;

use pmi_judge::event::Event;
use pmi_judge::result::end_at;
use pmi_judge::verdict::{RunEnd, RunHeader, ScenarioResult, Strictness};
use pmi_wire::ConnectionMethod;

use super::text;

/// A run, which may have been cut short.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Run {
    pub(crate) header: RunHeader,
    /// The results, in the order of the suite.
    pub(crate) results: Vec<ScenarioResult>,
    /// Events by scenario, if they were kept.
    pub(crate) events: BTreeMap<String, Vec<Event>>,
    /// For each scenario, the number of events that were dropped between its first and last events.
    pub(crate) left_out: BTreeMap<String, usize>,
    /// Scenarios that started but have no result.
    pub(crate) cut: Vec<String>,
    /// The end of the run; `None` if the command was killed before it wrote the last line of the log.
    pub(crate) end: Option<RunEnd>,
}

/// A problem that makes the run red and does not belong to a scenario.
pub(super) struct RunProblem {
    pub(super) name: String,
    pub(super) text: String,
    /// The file and the line of the problem, if known.
    pub(super) place: Option<(String, usize)>,
    /// An identifier that is the same in every run with this problem.
    pub(super) key: String,
}

impl RunProblem {
    fn new(name: &str, text: String) -> Self {
        let name = text::clean(name);
        Self { key: name.clone(), name, text, place: None }
    }
}

impl Run {
    /// Judges the run again with a different strictness.
    pub(crate) fn set_strict(&mut self, strict: Strictness) {
        self.header.strict = strict;
        self.results = std::mem::take(&mut self.results).into_iter().map(|r| r.at(strict)).collect();
        self.end = self.end.take().map(|end| end_at(end, &self.results, strict));
    }

    /// Returns the results by the names of their scenarios.
    pub(super) fn by_scenario(&self) -> BTreeMap<&str, &ScenarioResult> {
        self.results.iter().map(|result| (result.scenario.as_str(), result)).collect()
    }

    /// Returns the number of selected scenarios without a result.
    pub(super) fn unfinished(&self) -> usize {
        let missing = self.header.selected.saturating_sub(self.results.len());
        self.end.as_ref().map_or(missing, |end| end.unfinished.max(missing)).max(self.cut.len())
    }

    /// Returns the problems with the run as a whole. In formats whose readers count test cases, each problem needs a test case. Otherwise,
    /// CI would show a red run as green.
    pub(super) fn problems(&self) -> Vec<RunProblem> {
        let mut all = Vec::new();
        for stale in self.end.iter().flat_map(|end| &end.stale) {
            let key = text::clean(&format!("{}/{}", stale.requirement, stale.kept.join("/")));
            let place = Some((stale.file.clone(), stale.line));
            let complaint = RunProblem::new("stale deviation", text::clean(&stale.to_string()));
            all.push(RunProblem { place, key, ..complaint });
        }
        for name in &self.cut {
            all.push(RunProblem::new(name, "started but has no result".to_owned()));
        }
        let others = self.unfinished().saturating_sub(self.cut.len());
        if others > 0 {
            let text =
                format!("{} without a result: the run was interrupted", text::count(others, "scenario"));
            all.push(RunProblem::new("unfinished scenarios", text));
        } else if self.results.is_empty() && all.is_empty() {
            all.push(RunProblem::new("empty run", "no scenario was played".to_owned()));
        }
        all
    }

    pub(super) fn title(&self) -> String {
        let version = text::clean(&self.header.version);
        format!("pmi-conform {version}, {}: {}", protocol(&self.header), subject(&self.header))
    }
}

/// A note about the limits of observation when connections are relayed.
pub(crate) const RELAYED_NOTE: &str = "the agents relay the connections of their processes: on other machines, only processes with a connection are observed, and silence is detected only by waiting";

/// Returns the name of the implementation under test, with its version unless the name contains it.
pub(super) fn subject(header: &RunHeader) -> String {
    let server = text::clean(&header.server);
    match header.implementation_version.as_deref().map(text::clean) {
        Some(version) if !server.contains(&version) => format!("{server} {version}"),
        _ => server,
    }
}

/// Returns the protocol, and the connection method unless it is the default.
pub(super) fn protocol(header: &RunHeader) -> String {
    let dialect = text::clean(&header.dialect);
    let by = match header.connection {
        ConnectionMethod::Fd => "",
        ConnectionMethod::Port => " through PMI_PORT",
        ConnectionMethod::Singleton => " through singleton init",
    };
    format!("{dialect}{by}{}", if header.relayed { ", relayed" } else { "" })
}

#[derive(Debug)]
pub(crate) struct NamedRun {
    pub(crate) name: String,
    pub(crate) run: Run,
}
