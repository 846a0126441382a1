//! Plays a case against a server with the interpreter, and records the additional data that a campaign needs.

use std::time::Duration;

use pmi_judge::event::{Event, EventKind, SilenceProof};
use pmi_process::Memory;
use pmi_runner::interpret::{EventSink, RunWatcher, WatchedRun, watch};
use pmi_runner::party::proxy::UpstreamCommand;
use pmi_runner::party::{Party, ScenarioLimits};
use pmi_scenario::ast::Dialect;
use pmi_scenario::suite::Suite;

use crate::observe::message_kind::MessageWrites;
use crate::observe::observation::{MemoryGrowth, Observation};
use crate::observe::upstream_state::UpstreamState;
use crate::session::case::Case;

struct CasePlayer {
    sent: u64,
    writes: MessageWrites,
    upstream: UpstreamState,
    /// The memory of the server's processes when all ranks had started.
    initial_memory: Vec<Memory>,
    seen: Observation,
}

/// Plays a case within time limits. `ending` is the maximum time for the job to end after the last step.
pub(crate) fn play(
    case: &Case,
    suite: &Suite,
    party: &mut dyn Party,
    command: Vec<String>,
    limits: ScenarioLimits,
    ending: Duration,
) -> Observation {
    let dialect = case.scenario.dialect;
    let mut driver = CasePlayer::new(dialect);
    let fragments = |name: &str| suite.fragment(name);
    let WatchedRun { outcome, exit, steps_done, running_job_proof: stays } =
        watch(&case.scenario, &fragments, command, party, limits, ending, &mut driver);
    let CasePlayer { upstream, mut seen, .. } = driver;
    seen.findings = outcome.findings;
    seen.findings.retain(|f| upstream.counts_against_proxy(f));
    seen.unjudged = outcome.unjudged.map(|why| why.to_string());
    (seen.events, seen.crashed) = (outcome.events, outcome.crashed);
    (seen.exit, seen.scenario_events, seen.running_job) = (exit, steps_done, stays);
    seen.dialect = dialect;
    seen.segfaults = case.kills_by(signal_hook::consts::SIGSEGV);
    seen
}

impl CasePlayer {
    fn new(dialect: Dialect) -> Self {
        Self {
            sent: 0,
            writes: MessageWrites::new(dialect),
            upstream: UpstreamState::default(),
            initial_memory: Vec::new(),
            seen: Observation::default(),
        }
    }
}

impl EventSink for CasePlayer {
    fn event(&mut self, event: &Event) {
        self.upstream.observe(event.seq, &event.kind);
        match &event.kind {
            EventKind::ToServer { proc, bytes } => {
                self.sent += bytes.0.len() as u64;
                self.seen.requests += self.writes.write(*proc, &bytes.0).1;
            }
            EventKind::ToProxy { text, scripted: true, .. } => self.sent += text.0.len() as u64,
            EventKind::Flooded { .. } => self.seen.flood = true,
            _ => {}
        }
    }

    fn watcher(&mut self) -> Option<&mut dyn RunWatcher> {
        Some(self)
    }
}

impl RunWatcher for CasePlayer {
    fn started(&mut self, memory: Vec<Memory>) {
        self.initial_memory = memory;
    }

    fn exceeds_memory(&mut self, memory: Vec<Memory>) -> bool {
        let sent = self.sent;
        let growth = |now: Memory| {
            let then = self.initial_memory.iter().find(|then| then.pid == now.pid)?;
            Some(MemoryGrowth { name: now.name, bytes: now.bytes.saturating_sub(then.bytes), sent })
        };
        let grown: Vec<MemoryGrowth> = memory.into_iter().filter_map(growth).collect();
        self.seen.growth = self.seen.growth.take().into_iter().chain(grown).max_by_key(|g| g.bytes);
        self.seen.grows_dangerously()
    }

    fn received(&mut self, waited: Duration) {
        self.seen.slowest_response = self.seen.slowest_response.max(waited);
    }

    fn received_nothing(&mut self, proof: SilenceProof, waited: Duration) -> bool {
        if proof != SilenceProof::Timeout {
            self.seen.silences.push(waited);
        }
        !self.upstream.awaits_step()
    }

    fn ordered(&mut self, command: &UpstreamCommand) {
        if let UpstreamCommand::CorrectResponse(id) = command {
            self.upstream.record_default(*id);
        }
    }
}
