//! Checks step by step whether an implementation can be judged on this machine. Each step needs only a few launches.

use std::collections::{BTreeMap, BTreeSet};

use pmi_judge::event::{Event, EventKind, Exit, SilenceProof};
use pmi_judge::offer::offering_option;
use pmi_judge::result::judged;
use pmi_judge::{Finding, ScenarioOutcome, Severity, UnjudgedReason};
use pmi_scenario::ast::{Capability, Dialect};
use pmi_scenario::suite::Suite;
use pmi_scenario::{ids, signature};
use pmi_wire::{ConnectionMethod, Proc, Version};
use serde::Serialize;

use crate::iut::{Iut, Prober};
use crate::optional_operations::{
    INIT_REMEDY, ProbeResult, failed_initialization, initialization, probe_connection, probe_operation,
};
use crate::party::ScenarioLimits;
use crate::party::library::{apis, exports};
use crate::versions::{ProbeResponse, command_of, exit_of, offered_version, reply, requests, send_requests};

/// The result of a step of the examination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepState {
    /// The feature works.
    Works,
    /// The feature is missing, or is excluded by the command line or the profile. Scenarios that need it do not apply.
    #[serde(rename = "lacks")]
    Missing,
    /// The feature works with restrictions or findings, or could not be examined. Other features can still be judged.
    #[serde(rename = "odd")]
    WorksWithFindings,
    /// The feature does not work, and nothing can be judged without it.
    Fails,
}

/// A step of the examination, with its result.
#[derive(Debug, Clone, Serialize)]
pub struct DoctorStep {
    /// Name of the examined feature.
    #[serde(rename = "what")]
    pub feature: &'static str,
    /// The result of the step.
    pub state: StepState,
    /// The observed behaviour.
    pub seen: String,
    /// Advice for the user, if the result can be improved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl DoctorStep {
    fn new(feature: &'static str, state: StepState, seen: impl Into<String>) -> Self {
        Self { feature, state, seen: seen.into(), remedy: None }
    }

    fn works(feature: &'static str, seen: impl Into<String>) -> Self {
        Self::new(feature, StepState::Works, seen)
    }

    fn missing(feature: &'static str, seen: impl Into<String>) -> Self {
        Self::new(feature, StepState::Missing, seen)
    }

    fn odd(feature: &'static str, seen: impl Into<String>) -> Self {
        Self::new(feature, StepState::WorksWithFindings, seen)
    }

    fn fails(feature: &'static str, seen: impl Into<String>) -> Self {
        Self::new(feature, StepState::Fails, seen)
    }

    fn with(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// The result of examining an implementation.
#[derive(Debug, Default, Serialize)]
pub struct Examination {
    /// The steps, in order. Steps that depend on a failed step are omitted.
    pub steps: Vec<DoctorStep>,
    /// The probed optional operations; the value is true if the implementation supports the operation.
    #[serde(skip)]
    pub operations: BTreeMap<Capability, bool>,
    /// True if a launch on two nodes succeeded.
    #[serde(skip)]
    pub two_nodes: bool,
    /// The dialect used to examine a process manager: the dialect of its profile, or the only dialect that the manager accepts.
    #[serde(skip)]
    pub dialect: Dialect,
}

impl Examination {
    /// Returns whether the implementation can be judged.
    pub fn is_fit(&self) -> bool {
        self.steps.iter().all(|step| step.state != StepState::Fails)
    }
}

/// A scenario in which every rank gets a value that rank 0 has put. It is played with two processes, or with one if the implementation
/// cannot start two.
const SESSION: &str = "\
use joined
0  send    put key=pmi-conform-doctor value=works
0  expect  ok
use barrier
*  send    get key=pmi-conform-doctor
*  expect  ok value=works
use finalized
";

/// A scenario in which a job on two nodes requests its process mapping.
const NODES: &str = "\
nodes 2

use joined
0  send    get-job-attribute key=PMI_process_mapping
0  expect  <one of>
     pass: cmd=<any>
     pass: <closes>
     pass: <silence>
use finalized
";

/// A scenario in which one process enters a barrier only after the other has observed silence.
const SILENCE_SCENARIO: &str = "\
use init
0  send    barrier
0  expect  <silence>
1  send    barrier
*  expect  ok
";

const FIRST_RANK: Proc = Proc { group: 0, rank: 0 };

/// Maximum number of reported lines of a launcher's output.
const MAX_OUTPUT_LINES: usize = 3;

/// The reason why a probe has no result.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    /// The probe could not be judged. Contains the last lines of the output.
    #[error("{why}{printed}")]
    Unjudged { why: UnjudgedReason, printed: String },
    /// The implementation could not be started at all, or not with the required number of processes.
    #[error("{0}")]
    NotStarted(String),
    #[error("the probe is invalid; please report this bug")]
    Mistaken,
}

/// Plays a scenario with the given body. Returns its outcome, or the reason why it has none.
fn probe(
    prober: Prober<'_>,
    (dialect, ranks): (Dialect, u32),
    body: &str,
) -> Result<ScenarioOutcome, ProbeError> {
    let text = format!(
        "# Probes whether the implementation can be judged.\nrequires rfc13.init.version-used\ndialect {dialect}\nranks {ranks}\n{body}"
    );
    match prober.play(&text) {
        Some(Ok((outcome, _))) => match &outcome.unjudged {
            // The outcome is useful even if no connection is offered, because the processes have reported their environment.
            Some(UnjudgedReason::NotOffered(_)) | None => Ok(outcome),
            Some(why) => Err(ProbeError::Unjudged { why: why.clone(), printed: printed(&outcome.events) }),
        },
        Some(Err((_, why))) => Err(ProbeError::NotStarted(why)),
        None => Err(ProbeError::Mistaken),
    }
}

/// Returns the last lines of the output, each preceded by a newline.
fn printed(events: &[Event]) -> String {
    let lines = events.iter().filter_map(|event| match &event.kind {
        EventKind::Output { line, .. } => Some(String::from_utf8_lossy(&line.0).trim_end().to_owned()),
        _ => None,
    });
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(MAX_OUTPUT_LINES)..];
    last.iter().map(|line| format!("\n{line}")).collect()
}

/// Describes the crash in a probe or, without a crash, the probe's most severe finding of at least severity `least`. Returns `None` if
/// there is neither.
fn worst_finding(suite: &Suite, outcome: &ScenarioOutcome, least: Severity) -> Option<String> {
    if let Some((name, signal)) = &outcome.crashed {
        return Some(format!("{name} died of signal {signal}"));
    }
    let severity = |finding: &Finding| judged(&suite.catalogue, finding.clone()).severity;
    let all = outcome.findings.iter().rev().filter(|finding| severity(finding) >= least);
    all.max_by_key(|finding| severity(finding))
        .map(|f| format!("{}: expected {}, seen {}", f.requirement, f.expected, f.seen))
}

/// Examines a process manager.
pub fn of_server(prober: Prober<'_>) -> Examination {
    let mut all = Examination::default();
    let Iut::Processes(implementation, _) = prober.iut else { return all };
    let room = if implementation.capacity_problem(2, 1).is_none() { 2 } else { 1 };
    all.dialect = implementation.dialect.unwrap_or_default();
    let mut session = match probe(prober, (all.dialect, room), SESSION) {
        Ok(outcome) => outcome,
        Err(why) => {
            let remedy = "run the command by hand with true in place of {agent}; check that each process inherits the descriptor in PMI_FD; if the launcher is slow, raise --start-timeout";
            let step = DoctorStep::fails("started", why.to_string());
            // If the command cannot be started, the error already names the cause, so no advice is added.
            let is_started = !matches!(why, ProbeError::NotStarted(_));
            all.steps.push(if is_started { step.with(remedy) } else { step });
            return all;
        }
    };
    started(&session, implementation.template(), prober.iut.connection_method(), &mut all.steps);
    if !all.is_fit() {
        return all;
    }
    let examined = all.dialect;
    all.steps.push(versions(prober, &mut all.dialect));
    if !all.is_fit() {
        return all;
    }
    if all.dialect != examined {
        session = match probe(prober, (all.dialect, room), SESSION) {
            Ok(outcome) => outcome,
            Err(why) => {
                all.steps.push(DoctorStep::fails("session", why.to_string()));
                return all;
            }
        };
    }
    let processes = if room == 1 { "one process" } else { "two processes" };
    all.steps.push(match (worst_finding(prober.suite, &session, Severity::Fail), session.unreached.len()) {
        (None, 0) if session.events.iter().any(|e| matches!(e.kind, EventKind::JobKeepsRunning { .. })) => {
            DoctorStep::odd("session", format!("{processes} finalized and exited, but the launcher keeps running"))
                .with("make the launcher exit once all of its processes have exited; otherwise, each scenario has to wait for it")
        }
        (None, 0) => DoctorStep::works("session", format!("{processes}: init, put, barrier, get, finalize")),
        (Some(finding), 0) => {
            DoctorStep::odd("session", format!("{processes} reached the last step; {finding}"))
                .with("the implementation can be tested; the run will report this finding")
        }
        (finding, n) => {
            let finding = finding.unwrap_or_else(|| "the session ended early".to_owned());
            DoctorStep::fails("session", format!("{finding}; steps not reached: {n}"))
                .with("most scenarios need these steps")
        }
    });
    if !all.is_fit() {
        return all;
    }
    nodes(prober, &mut all);
    for (feature, need) in [("spawn", Capability::Spawn), ("names", Capability::Names)] {
        if implementation.claimed_capabilities.get(&need) == Some(&false) {
            all.steps.push(DoctorStep::missing(feature, "not probed: excluded by the profile or --lacks"));
            all.operations.insert(need, false);
            continue;
        }
        let (step, offered) = optional(prober, all.dialect, feature, need);
        all.steps.push(step);
        all.operations.extend(offered.map(|offered| (need, offered)));
    }
    if room > 1 {
        all.steps.push(silence(prober, all.dialect));
    }
    all
}

/// Examines the started processes and their connections.
fn started(
    session: &ScenarioOutcome,
    command: &[String],
    connection_method: ConnectionMethod,
    steps: &mut Vec<DoctorStep>,
) {
    let mut number = 0;
    let (mut unconnected, mut ports) = (None, BTreeSet::new());
    for event in &session.events {
        if let EventKind::Started { env, bad_fd, .. } = &event.kind {
            number += 1;
            ports.extend(env.get("PMI_PORT").cloned());
            if let Some(why) = bad_fd {
                unconnected.get_or_insert_with(|| why.clone());
            }
        }
    }
    let by_port = session.events.iter().any(|event| matches!(event.kind, EventKind::Greeted { .. }));
    let agents = if number == 1 {
        "the agent ran and reported to pmi-conform"
    } else {
        "an agent ran for each rank and reported to pmi-conform"
    };
    steps.push(DoctorStep::works("started", agents));
    steps.push(match unconnected {
        None if by_port && connection_method != ConnectionMethod::Port => {
            DoctorStep::odd("connection", "PMI_PORT is set, but PMI_FD is not")
                .with("pass --connection port to test connections to PMI_PORT")
        }
        None if by_port => DoctorStep::works("connection", "PMI_PORT"),
        None => DoctorStep::works("connection", "PMI_FD"),
        Some(why) if !ports.is_empty() => {
            DoctorStep::fails("connection", format!("{why}, but PMI_PORT is set"))
                .with("pass --connection port to test connections to PMI_PORT")
        }
        Some(why) => {
            let remedy = offering_option(command).unwrap_or_else(|| {
                "some launchers offer the wire protocol only with an option; PMIx cannot be tested".to_owned()
            });
            DoctorStep::fails("connection", why).with(remedy)
        }
    });
}

/// Probes the supported versions. Changes `dialect` if the server accepts only a different dialect.
fn versions(prober: Prober<'_>, dialect: &mut Dialect) -> DoctorStep {
    let mut takes = BTreeSet::new();
    let (mut exceeds_offer, mut ends_with_cr) = (false, false);
    let answers_by_version = [Version::V1_1, Version::V1_2, Version::V2_0].map(|offer| {
        let line = format!("cmd=init pmi_version={} pmi_subversion={}", offer.version, offer.subversion);
        let answers = send_requests(prober, &[(0, &line)], false).unwrap_or_default();
        let answer = answers.first().unwrap_or(&ProbeResponse::NotSent);
        takes.extend(answer.version().map(Version::dialect));
        exceeds_offer |= answer.version().is_some_and(|version| version > offer);
        ends_with_cr |= answer.message().is_some_and(|message| message.text.ends_with(b"\r"));
        format!("to {offer}: {}", answer.describe())
    });
    let step = |state| DoctorStep::new("version", state, answers_by_version.join("; "));
    if exceeds_offer {
        let id = ids::RFC13_INIT_VERSION_USED;
        return step(StepState::WorksWithFindings)
            .with(format!("the server answers with a higher version than the client offers ({id})"));
    }
    if ends_with_cr {
        let id = ids::RFC13_WIRE_NEWLINE;
        return step(StepState::Fails).with(format!(
            "the responses end with a carriage return and a newline; end them with a newline alone ({id})"
        ));
    }
    if let [only] = takes.iter().collect::<Vec<_>>()[..]
        && only != dialect
    {
        *dialect = *only;
        let title = only.title();
        return step(StepState::Works)
            .with(format!("the server accepts only {title}; pass --dialect {only}"));
    }
    match takes.len() {
        0 => step(StepState::Fails).with("the server accepts none of the offered versions"),
        1 => step(StepState::Works),
        _ => step(StepState::Works).with("pass --dialect all to test both PMI-1 and PMI-2"),
    }
}

fn nodes(prober: Prober<'_>, all: &mut Examination) {
    let Iut::Processes(implementation, _) = prober.iut else { return };
    let feature = "two nodes";
    if let Some(why) = implementation.capacity_problem(2, 2) {
        let remedy = "pass --server-nodes 'CMD {hosts} {ranks} {agent}', or set command-nodes in the profile";
        all.steps.push(DoctorStep::missing(feature, why).with(remedy));
        return;
    }
    let done = probe(prober, (all.dialect, 2), NODES);
    all.two_nodes = done.is_ok();
    all.steps.push(match done {
        Ok(outcome) => {
            // The response with the mapping follows those to init, get_maxes and get_my_kvsname in PMI-1, or to init and fullinit in PMI-2.
            let before = all.dialect.pick([3, 2]);
            let answer = reply(&outcome.events, FIRST_RANK, before);
            match answer.message().and_then(|message| message.value("value")) {
                Some(mapping) => {
                    let mapping = format!("PMI_process_mapping={}", mapping.escape_ascii());
                    DoctorStep::works(feature, mapping)
                }
                None => DoctorStep::works(feature, "the processes started, but PMI_process_mapping is missing"),
            }
        }
        Err(why) => DoctorStep::odd(feature, why.to_string()).with(
            "scenarios on two nodes cannot be played: set their command with --server-nodes, or skip them with --max-nodes 1",
        ),
    });
}

/// Probes an optional operation. Returns the step and, if the probe was conclusive, whether the operation is supported.
fn optional(
    prober: Prober<'_>,
    dialect: Dialect,
    feature: &'static str,
    need: Capability,
) -> (DoctorStep, Option<bool>) {
    match probe_operation(prober, dialect, need) {
        None => (DoctorStep::odd(feature, "the probe gave no result"), None),
        Some((_, ProbeResult::Lacking(seen))) => {
            let remedy = format!(
                "to skip this probe, pass --lacks {feature}, or set lacks = [\"{feature}\"] in the profile"
            );
            (
                DoctorStep::missing(feature, format!("when probed, the server {seen}")).with(remedy),
                Some(false),
            )
        }
        Some((outcome, support)) => {
            let offered = (support == ProbeResult::Acknowledged).then_some(true);
            let step = match (worst_finding(prober.suite, &outcome, Severity::Fail), &outcome.unjudged) {
                (Some(trouble), _) => DoctorStep::odd(feature, format!("when probed: {trouble}"))
                    .with("the implementation can be tested; the run will report this finding"),
                (None, Some(why)) => DoctorStep::odd(feature, why.to_string()),
                (None, None) if offered.is_none() => DoctorStep::odd(feature, "the probe gave no result"),
                (None, None) => DoctorStep::works(feature, "the probe succeeded"),
            };
            (step, offered)
        }
    }
}

/// Examines whether the absence of a response can be proved.
fn silence(prober: Prober<'_>, dialect: Dialect) -> DoctorStep {
    let feature = "silence";
    // Allow more time, because the silence of a process manager that polls at long intervals is recognized only after several polls.
    let limits = ScenarioLimits { silence: prober.limits.step.max(prober.limits.silence), ..prober.limits };
    let prober = Prober { limits, ..prober };
    let outcome = match probe(prober, (dialect, 2), SILENCE_SCENARIO) {
        Ok(outcome) => outcome,
        Err(why) => return DoctorStep::odd(feature, why.to_string()),
    };
    if outcome.hung {
        let trouble = worst_finding(prober.suite, &outcome, Severity::Fail)
            .unwrap_or_else(|| "the server did not answer a request".to_owned());
        return DoctorStep::odd(feature, trouble);
    }
    let proof = outcome.events.iter().find_map(|event| match event.kind {
        EventKind::Silence { proof, .. } => Some(proof),
        _ => None,
    });
    match proof {
        Some(SilenceProof::Idle | SilenceProof::Unread) => {
            DoctorStep::works(feature, "can be proved: the server's processes are observed waiting")
        }
        Some(proof @ (SilenceProof::Polled | SilenceProof::Timeout)) => {
            let seen = match proof {
                SilenceProof::Polled => {
                    "cannot be proved: the server's processes wake periodically without sending anything"
                }
                _ if cfg!(target_os = "linux") => {
                    "cannot be proved: a process of the server waits with a time limit, is busy, or waits for another program"
                }
                _ => "cannot be proved: processes can be observed only on Linux",
            };
            let most = limits.step.as_secs_f64();
            let which = if proof == SilenceProof::Polled {
                "detecting a missing response"
            } else {
                "detecting a silence"
            };
            let remedy = format!(
                "{which} takes {most} s; --timeout 1 shortens this wait, and -j plays more scenarios in parallel"
            );
            DoctorStep::odd(feature, seen).with(remedy)
        }
        None => DoctorStep::odd(
            feature,
            "could not be examined: a barrier ended before all ranks had entered it; the run will report this",
        ),
    }
}

/// Examines a program, which is started under the reference process manager.
pub fn of_program(prober: Prober<'_>, ranks: u32) -> Examination {
    let mut all = Examination::default();
    let Iut::Client(program) = prober.iut else { return all };
    let interrupted = std::sync::atomic::AtomicBool::new(false);
    let dialect = crate::interpret::program::offered_dialect(program, prober.limits, &interrupted);
    let text = format!(
        "# Probes whether the implementation can be judged.\nrequires rfc13.init.version-used\ntests client\ndialect {dialect}\nranks {ranks}\n\n*  P: exits 0\n"
    );
    let outcome = match prober.play(&text) {
        Some(Ok((outcome, _))) => outcome,
        Some(Err((_, why))) => {
            all.steps.push(DoctorStep::fails("started", why));
            return all;
        }
        None => return all,
    };
    if let Some(why) = &outcome.unjudged {
        let step = DoctorStep::fails("speaks PMI", format!("{why}{}", printed(&outcome.events)));
        let is_started = !matches!(why, UnjudgedReason::Unplayable(_));
        let remedy = "link the program with a library that uses PMI-1 or PMI-2, and call MPI_Init";
        all.steps.push(if is_started { step.with(remedy) } else { step });
        return all;
    }
    let number =
        outcome.events.iter().filter(|event| matches!(event.kind, EventKind::Started { .. })).count();
    all.steps.push(DoctorStep::works(
        "started",
        format!(
            "{number} {} under the reference process manager",
            if number == 1 { "process" } else { "processes" }
        ),
    ));
    match offered_version(&outcome.events) {
        Some(version) => {
            all.steps.push(DoctorStep::works("version", format!("the program offers {version}")))
        }
        None => all.steps.push(DoctorStep::odd("version", "the program does not offer a valid version")),
    }
    let mut commands: Vec<String> = Vec::new();
    for word in requests(&outcome.events).iter().map(command_of) {
        if !commands.contains(&word) {
            commands.push(word);
        }
    }
    all.steps.push(DoctorStep::works("requests", commands.join(", ")).with(
        "scenarios about other operations are skipped; to test more, use a program that puts, gets and spawns",
    ));
    let end = exit_of(&outcome.events);
    all.steps.push(match (end, worst_finding(prober.suite, &outcome, Severity::Note)) {
        (Some(Exit::Code(0)), None) => DoctorStep::works("end", "exit status 0"),
        (Some(Exit::Code(0)), Some(finding)) => DoctorStep::odd("end", format!("exit status 0; {finding}"))
            .with("the implementation can be tested; the run will report this finding"),
        (end, finding) => {
            let end = end.map_or_else(|| "the program did not exit".to_owned(), |end| end.to_string());
            let finding = finding.map(|finding| format!("; {finding}")).unwrap_or_default();
            DoctorStep::fails("end", format!("{end}{finding}{}", printed(&outcome.events))).with(
                "the program must exit with status 0 under an ordinary server; only then can unusual cases be tested",
            )
        }
    });
    all
}

/// Examines a library, whose functions are called by a process of the harness.
pub fn of_library(prober: Prober<'_>) -> Examination {
    let mut all = Examination::default();
    let Iut::Library(library, ..) = prober.iut else { return all };
    let found = apis(&library.path);
    let titles = found.iter().map(|api| api.title()).collect::<Vec<_>>().join(" and ");
    let functions = exports(&library.path).len();
    all.steps.push(DoctorStep::works("functions", format!("{functions} functions of the C API of {titles}")));
    for api in found {
        let call = signature::init_call(api);
        let function = call.split('(').next().unwrap_or(call);
        let text = match &library.server {
            Some(_) => initialization(api, true).to_owned(),
            None => format!(
                "# Probes whether the implementation can be judged.\nrequires rfc13.init.version-used\ntests library\nranks 1\ndialect {api}\n\n0  A: {call} = any\n"
            ),
        };
        let Some(Ok((outcome, _))) = prober.play(&text) else { continue };
        if let Some(why) = &outcome.unjudged {
            all.steps.push(DoctorStep::fails(function, format!("{why}{}", printed(&outcome.events))));
            continue;
        }
        let version = offered_version(&outcome.events);
        let printed = printed(&outcome.events);
        let returned = outcome.events.iter().any(|event| matches!(event.kind, EventKind::Returned { .. }));
        let failed = failed_initialization(&outcome.events);
        let apart = library.server.as_ref().and_then(|_| probe_connection(prober, api, &outcome.events));
        if outcome.crashed.is_some() || outcome.hung || failed.is_none() && !returned {
            let why = worst_finding(prober.suite, &outcome, Severity::Fail)
                .unwrap_or_else(|| "the call does not return".to_owned());
            all.steps.push(DoctorStep::fails(function, why + &printed));
            continue;
        }
        all.steps.push(match (version, failed, &library.server) {
            (_, None, Some(server)) if let Some(apart) = apart => {
                let seen = format!("the library's processes are singletons under {}: {apart}{printed}", server.label);
                let other = || "if the library uses a different process manager, pass it with --server".to_owned();
                DoctorStep::fails(function, seen).with(server.offering_option().unwrap_or_else(other))
            }
            (_, Some(failed), Some(server)) => {
                DoctorStep::fails(function, format!("the call fails under {}: {failed}{printed}", server.label))
            }
            (None, Some(failed), None) => {
                let seen = format!("the call fails without sending a message on PMI_FD: {failed}{printed}");
                DoctorStep::fails(function, seen).with(INIT_REMEDY)
            }
            (Some(version), Some(failed), None) => {
                DoctorStep::odd(function, format!("the call offers {version} and fails: {failed}{printed}"))
                    .with("the implementation can be tested; the run will report this finding")
            }
            (_, None, Some(server)) => {
                DoctorStep::works(function, format!("the call succeeds under {}", server.label))
            }
            (Some(version), None, None) => {
                DoctorStep::works(function, format!("the call offers {version} and returns"))
            }
            (None, None, None) => DoctorStep::odd(function, "the call returns without sending a message on PMI_FD")
                .with("only the library's calls can be tested; if the library uses a different process manager, pass it with --server"),
        });
    }
    all
}
