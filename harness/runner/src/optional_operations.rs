//! Optional operations of the implementation, as declared by the user or detected by a one-time probe.

use pmi_scenario::ids;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pmi_faults::Config;

use crate::iut::{Iut, Prober};
use crate::party::ScenarioLimits;
use crate::party::library::Library;
use crate::party::server::Implementation;
use pmi_judge::ScenarioOutcome;
use pmi_judge::connections::Connections;
use pmi_judge::event::{Event, EventKind};
use pmi_judge::library::api::OutputValue;
use pmi_judge::verdict::Verdict;
use pmi_scenario::ast::{
    Capability, Dialect, Piece, ProcessAction, Role, Scenario, Spanned, Statement, Step, StepAction,
    Template, ValueType,
};
use pmi_scenario::scope::FIRST_ARGUMENT;
use pmi_scenario::suite::Suite;
use pmi_scenario::{signature, visit};
use pmi_wire::{ConnectionMethod, Decoded, Direction, Framing, HEADER, Operation, Proc, Version, protocol};

/// The optional operations of an implementation, with a reason for each missing operation.
#[derive(Default)]
pub(crate) struct OptionalOperations {
    /// For each optional operation in a dialect: whether it is supported, and the reason if it is not.
    capabilities: BTreeMap<(Dialect, Capability), (bool, String)>,
    /// For each excluded dialect, the reason why its scenarios do not apply.
    dialect_exclusions: BTreeMap<Dialect, String>,
    /// For each dialect, the reason why scenarios that need the wire protocol do not apply to a library.
    no_wire_reasons: BTreeMap<Dialect, String>,
    /// True if the server forwards the arguments of a spawn only if they are numbered from one.
    one_based_arguments: bool,
    /// For each dialect, the reason why scenarios that need an initialized library cannot be judged: the library's initialization fails, or
    /// its processes do not find their process manager.
    init_failure_reasons: BTreeMap<Dialect, String>,
}

impl OptionalOperations {
    /// Returns the verdict and the reason for a scenario that is not played against this implementation, or `None` if the scenario is
    /// played.
    pub(crate) fn exclusion(
        &self,
        suite: &Suite,
        scenario: &Scenario,
        iut: &Iut,
    ) -> Option<(Verdict, String)> {
        if let Some(why) = self.init_failure_reasons.get(&scenario.dialect)
            && needs_initialization(suite, scenario)
        {
            return Some((Verdict::Unjudged, why.clone()));
        }
        let unneeded =
            |need: &Spanned<Capability>| match self.capabilities.get(&(scenario.dialect, need.value)) {
                Some((false, why)) => Some(why),
                _ => None,
            };
        let unspoken = self.dialect_exclusions.get(&scenario.dialect);
        let why = unspoken.or_else(|| scenario.needs.iter().find_map(unneeded)).or_else(|| match iut {
            Iut::Library(library, ..) if needs_wire(suite, scenario, library.server.is_some()) => {
                self.no_wire_reasons.get(&scenario.dialect)
            }
            _ => None,
        });
        why.map(|why| (Verdict::NotApplicable, why.clone()))
    }
}

impl OptionalOperations {
    /// Returns the scenario with values bound to the names that depend on the server.
    pub(crate) fn bind(&self, scenario: &Arc<Scenario>) -> Arc<Scenario> {
        if !self.one_based_arguments || !names_first_argument(scenario) {
            return Arc::clone(scenario);
        }
        let mut bound = Scenario::clone(scenario);
        let first = Statement::Let { name: FIRST_ARGUMENT.to_owned().into(), value: Template::value(b"1") };
        bound.body.insert(0, first);
        Arc::new(bound)
    }
}

/// Returns whether the scenario refers to the number of the first argument, directly or in the spelling of an operation.
fn names_first_argument(scenario: &Scenario) -> bool {
    visit::names(&scenario.body, FIRST_ARGUMENT)
}

/// Returns whether a server forwards the arguments of a spawned program if they are numbered from one, but not if they are numbered from
/// zero.
fn accepts_only_one_based_arguments(prober: Prober<'_>) -> bool {
    let takes = |text: &str| {
        let comes = |event: &Event| matches!(&event.kind, EventKind::Started { args, .. } if args.iter().any(|arg| arg.0 == b"first"));
        prober.outcome(text).is_some_and(|outcome| outcome.events.iter().any(comes))
    };
    let from_zero = include_str!("probes/spawn-arguments.pmi");
    !takes(from_zero) && takes(&from_zero.replace("arg0=", "arg1="))
}

/// Determines which optional operations are supported: from the user's claims or, for each operation without a claim, with a probe.
pub(crate) fn offers(prober: Prober<'_>, selected: &[Arc<Scenario>]) -> OptionalOperations {
    let iut = prober.iut;
    let mut operations = OptionalOperations::default();
    let needs: BTreeSet<(Dialect, Capability)> =
        selected.iter().flat_map(|s| s.needs.iter().map(|n| (s.dialect, n.value))).collect();
    let upstream = matches!(iut, Iut::Processes(implementation, _) if implementation.has_upstream());
    let connection_method = iut.connection_method();
    let why = "this scenario needs a bare proxy (--server ./hydra_pmi_proxy)".to_owned();
    for dialect in Dialect::ALL {
        operations.capabilities.insert((dialect, Capability::Upstream), (upstream, why.clone()));
        let is = match connection_method {
            ConnectionMethod::Fd => "the processes under test have PMI_FD",
            ConnectionMethod::Port => "the processes under test have PMI_PORT",
            ConnectionMethod::Singleton => "the process manager serves a process that it did not start",
        };
        let ways = [
            (Capability::Fd, ConnectionMethod::Fd, "fd"),
            (Capability::Port, ConnectionMethod::Port, "port"),
            (Capability::Singleton, ConnectionMethod::Singleton, "singleton"),
        ];
        for (need, way, word) in ways {
            operations
                .capabilities
                .insert((dialect, need), (way == connection_method, format!("{is} (--connection {word})")));
        }
    }
    let claims = match iut {
        Iut::Memory(_) | Iut::Client(_) => return operations,
        Iut::Processes(implementation, _) => &implementation.claimed_capabilities,
        Iut::Library(_, claims, _) => claims,
    };
    if let Iut::Library(library, ..) = iut {
        for api in dialects(selected) {
            let (wireless, uninitialized) = match &library.server {
                Some(server) => (
                    Some(format!(
                        "the responses of {} cannot be scripted; omit --server to test with scripted responses",
                        server.label
                    )),
                    fails_under_its_manager(prober, api, server),
                ),
                None => match probe_wire_use(prober, api) {
                    None => (None, None),
                    Some(None) => (Some(NO_WIRE_REASON.to_owned()), None),
                    Some(Some(failed)) => {
                        let why = "the library sends nothing on PMI_FD, and its initialization fails";
                        (None, Some(format!("{why} ({failed}): {INIT_REMEDY}")))
                    }
                },
            };
            operations.no_wire_reasons.extend(wireless.map(|why| (api, why)));
            operations.init_failure_reasons.extend(uninitialized.map(|why| (api, why)));
        }
    }
    let both = dialects(selected).len() > 1;
    if both
        && matches!(iut, Iut::Processes(..))
        && let Some(seen) = speaks_no_pmi2(prober)
    {
        let why = format!(
            "the server does not support PMI-2: when offered version 2.0, it {seen}; to require PMI-2, pass --dialect pmi-2"
        );
        operations.dialect_exclusions.insert(Dialect::Pmi2, why);
    }
    for (dialect, need) in needs {
        if operations.dialect_exclusions.contains_key(&dialect) {
            continue;
        }
        if need.is_connection_method() {
            continue;
        }
        let word = need.word();
        let offer = match claims.get(&need) {
            Some(true) | None if need == Capability::Spawn && loses_spawned(prober, dialect) => {
                (false, LOST_SPAWN_REASON.to_owned())
            }
            Some(true) => (true, String::new()),
            Some(false) => (false, format!("--lacks {word}")),
            None if upstream && need.is_extension() => (false, BARE_PROXY_REASON.to_owned()),
            None => match lacking(prober, dialect, need) {
                None => (true, String::new()),
                Some(seen) => {
                    let subject = if matches!(iut, Iut::Library(..)) { "the library" } else { "the server" };
                    let lacks = if need.is_extension() { "does not offer" } else { "lacks" };
                    // By default, findings about extensions are only notes, so the text also suggests the option that makes them red.
                    let strict = match need {
                        Capability::Pmi12 => " --against mpich-1.2",
                        _ if need.is_extension() => " --strict=de-facto",
                        _ => "",
                    };
                    let why = format!(
                        "{subject} {lacks} {word}: when probed, it {seen}; to require this operation, pass --has {word}{strict}"
                    );
                    (false, why)
                }
            },
        };
        operations.capabilities.insert((dialect, need), offer);
    }
    let spawns =
        matches!(operations.capabilities.get(&(Dialect::default(), Capability::Spawn)), Some((true, _)));
    operations.one_based_arguments = spawns
        && selected.iter().any(|scenario| names_first_argument(scenario))
        && accepts_only_one_based_arguments(prober);
    operations
}

/// Returns which of the operations spawn, names and PMI-1.2 a server supports in a dialect. Operations without a claim are probed, except
/// that a bare proxy counts as lacking them. Campaigns use the returned operations.
pub fn offered_operations(prober: Prober<'_>, dialect: Dialect) -> BTreeSet<Capability> {
    let Iut::Processes(implementation, _) = prober.iut else { return BTreeSet::new() };
    let offers = |need: &Capability| match implementation.claimed_capabilities.get(need) {
        _ if *need == Capability::Spawn && loses_spawned(prober, dialect) => false,
        Some(offered) => *offered,
        None if implementation.has_upstream() => false,
        None => probe_operation(prober, dialect, *need).is_some_and(|(outcome, support)| {
            // An operation that makes the server crash or hang does not count as offered. Otherwise, every session that uses the operation
            // would show only that failure.
            let failed = outcome.hung || !outcome.unreached.is_empty() || outcome.crashed.is_some();
            support == ProbeResult::Acknowledged && !failed && outcome.unjudged.is_none()
        }),
    };
    let wanted = |need: &Capability| match need {
        Capability::Spawn | Capability::Names => true,
        Capability::Pmi12 => !dialect.switches_framing(),
        _ => false,
    };
    Capability::NAMES.into_iter().map(|(_, need)| need).filter(wanted).filter(offers).collect()
}

/// The result of a single request for an optional operation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// The server acknowledged the request, or the library under test sent the request or returned success.
    Acknowledged,
    /// The request was refused or not answered, or the call to the library failed. The text completes a sentence that begins with "it".
    Lacking(String),
    /// The probe was inconclusive: for example, the implementation crashed or never reached the request.
    Unknown,
}

/// Probes an optional operation. Returns the evidence if the implementation lacks it.
fn lacking(prober: Prober<'_>, dialect: Dialect, need: Capability) -> Option<String> {
    match probe_operation(prober, dialect, need)?.1 {
        ProbeResult::Lacking(seen) => Some(seen),
        ProbeResult::Acknowledged | ProbeResult::Unknown => None,
    }
}

/// Probes an optional operation. Returns `None` if it cannot be probed.
pub(crate) fn probe_operation(
    prober: Prober<'_>,
    dialect: Dialect,
    need: Capability,
) -> Option<(ScenarioOutcome, ProbeResult)> {
    // The PMI-1 and PMI-2 versions of the probe, and the operation that the probe requests.
    let (texts, operation) = match (prober.iut, need) {
        // These capabilities are known without a probe.
        (_, Capability::Upstream | Capability::Fd | Capability::Port | Capability::Singleton) => return None,
        // No scenario judges how a library spawns processes under its own process manager.
        (Iut::Library(library, ..), Capability::Spawn | Capability::Standalone)
            if library.server.is_some() =>
        {
            return None;
        }
        (Iut::Library(..), Capability::Names) => (
            [include_str!("probes/library-names.pmi"), include_str!("probes/library-pmi2-names.pmi")],
            "publish",
        ),
        (Iut::Library(..), Capability::Spawn) => (
            [include_str!("probes/library-spawn.pmi"), include_str!("probes/library-pmi2-spawn.pmi")],
            "spawn",
        ),
        (Iut::Library(..), Capability::Standalone) => (
            [include_str!("probes/library-alone.pmi"), include_str!("probes/library-pmi2-alone.pmi")],
            "init",
        ),
        (_, Capability::Names) => {
            ([include_str!("probes/names.pmi"), include_str!("probes/pmi2-names.pmi")], "publish")
        }
        (_, Capability::Spawn) => {
            ([include_str!("probes/spawn.pmi"), include_str!("probes/pmi2-spawn.pmi")], "spawn")
        }
        (_, Capability::Standalone) => return None,
        // The exports of a library show whether it supports these operations.
        (Iut::Library(..), Capability::Pmi12 | Capability::KeyvalSpaces) => return None,
        (_, Capability::Pmi12) => ([include_str!("probes/pmi12.pmi"); 2], "init"),
        (_, Capability::KeyvalSpaces) => ([include_str!("probes/keyval-spaces.pmi"); 2], "kvs-create"),
    };
    let text = dialect.pick(texts);
    // Init is always sent as a line, and only the line protocol can create further keyval spaces.
    let is_line = matches!(operation, "init" | "kvs-create");
    let framing = if is_line { Framing::Lines } else { dialect.framing() };
    let row = protocol::exchanges(framing).find(|row| row.operation == operation)?;
    let request = format!("{}={}", row.command_key(), row.request).into_bytes();
    // If the probe has no result, the scenarios report the failure themselves. However, a late process, or a launcher that fails
    // occasionally, must not cause an optional operation to be required. A failed probe is therefore repeated once, and the second result
    // counts.
    let ask = || prober.outcome(text);
    let came_to_something =
        |outcome: &ScenarioOutcome| outcome.crashed.is_none() && outcome.unjudged.is_none() && !outcome.hung;
    let outcome = ask().filter(came_to_something).or_else(ask)?;
    let support = match prober.iut {
        // A library that sends the request supports the operation.
        Iut::Library(..) if has_sent(&outcome, &request) => ProbeResult::Acknowledged,
        Iut::Library(..) => failed_call(&outcome).map_or(ProbeResult::Acknowledged, ProbeResult::Lacking),
        _ => support(&outcome, need, &request),
    };
    Some((outcome, support))
}

/// The reason why a bare proxy is not probed for operations beyond the specifications.
const BARE_PROXY_REASON: &str =
    "a proxy forwards this request to its upstream, and pmi-conform plays the upstream";

/// The reason why spawns are not judged if connections are relayed and no spawned process reaches the runner.
const LOST_SPAWN_REASON: &str = "not judged: the server accepted a spawn, but no spawned process connected to the address in its environment or its \
     program's path";

/// Returns whether a server with relayed connections accepts a spawn, but no spawned process reports to the runner. In this case, the
/// runner cannot see whether a process was started.
fn loses_spawned(prober: Prober<'_>, dialect: Dialect) -> bool {
    prober.iut.is_relayed()
        && probe_operation(prober, dialect, Capability::Spawn).is_some_and(|(outcome, support)| {
            let comes = |e: &Event| matches!(e.kind, EventKind::Started { proc, .. } if proc.group > 0);
            support == ProbeResult::Acknowledged && !outcome.events.iter().any(comes)
        })
}

/// Returns the evidence, if any, that a server does not accept an offer of version 2.0.
fn speaks_no_pmi2(prober: Prober<'_>) -> Option<String> {
    let outcome = prober.outcome(include_str!("probes/pmi2.pmi"))?;
    match support(&outcome, Capability::Spawn, b"cmd=init") {
        ProbeResult::Lacking(seen) => Some(seen),
        ProbeResult::Acknowledged | ProbeResult::Unknown => None,
    }
}

/// Returns whether a request that begins with `request` was sent.
fn has_sent(outcome: &ScenarioOutcome, request: &[u8]) -> bool {
    let begins = |bytes: &[u8]| {
        bytes.starts_with(request) || bytes.get(HEADER..).is_some_and(|body| body.starts_with(request))
    };
    let is_asked =
        |event: &Event| matches!(&event.kind, EventKind::ToServer { bytes, .. } if begins(&bytes.0));
    outcome.events.iter().any(is_asked)
}

/// Evaluates a server's response to the first request that begins with `request`. A successful response counts as support, even if the
/// operation then has no effect. A missing response counts as a lack of support. The scenarios named `answered-when-not-served` report the
/// silence itself.
fn support(outcome: &ScenarioOutcome, need: Capability, request: &[u8]) -> ProbeResult {
    let mut connections = Connections::default();
    let mut requester = None;
    for event in &outcome.events {
        match &event.kind {
            EventKind::ClosedByServer { proc } | EventKind::Ended { proc, ours: false }
                if requester == Some(*proc) =>
            {
                // A server that lacks the operation may refuse these requests as invalid or as too new. The scenario `init/first-offer`
                // reports the refusal and any crash after it. The scenarios that need the operation would only repeat that report.
                let may_be_refused = need.is_extension() || request == b"cmd=init";
                return match &outcome.crashed {
                    None => ProbeResult::Lacking("closed the connection".to_owned()),
                    Some((name, signal)) if may_be_refused => ProbeResult::Lacking(format!(
                        "closed the connection, and {name} died of signal {signal}"
                    )),
                    Some(_) => ProbeResult::Unknown,
                };
            }
            EventKind::NoResponse { proc, .. } if requester == Some(*proc) => {
                return match connections.partial(*proc, Direction::FromServer) {
                    [] => ProbeResult::Lacking("did not answer".to_owned()),
                    // The scenarios report an incomplete response.
                    _ => ProbeResult::Unknown,
                };
            }
            _ => {}
        }
        let arrivals = connections.read(event);
        let Some((proc, ..)) = event.kind.message_bytes() else { continue };
        for message in arrivals.iter().filter_map(|arrival| arrival.decode().ok()) {
            match message.direction {
                Direction::ToServer if message.text.starts_with(request) => requester = Some(proc),
                Direction::FromServer if requester == Some(proc) => {
                    let is_granted = match need {
                        Capability::KeyvalSpaces => {
                            message.command() == Some(b"newkvs") && message.value("kvsname").is_some()
                        }
                        _ => message.is_success() && accepts_offer(need, request, &message),
                    };
                    return match is_granted {
                        true => ProbeResult::Acknowledged,
                        false => {
                            ProbeResult::Lacking(format!("answered \"{}\"", message.text.escape_ascii()))
                        }
                    };
                }
                _ => {}
            }
        }
    }
    ProbeResult::Unknown
}

/// Returns whether a response to init accepts the offered version. Returns true for responses to other requests, which contain no version.
fn accepts_offer(need: Capability, request: &[u8], response: &Decoded<'_>) -> bool {
    match (response.framing, response.operation()) {
        (Framing::Lines, Some(Operation::Init)) if need == Capability::Pmi12 => {
            response.version().is_some_and(Version::has_group_barriers)
        }
        (Framing::Lines, Some(Operation::Init)) if request == b"cmd=init" => {
            response.version().is_some_and(|version| version.version == 2)
        }
        _ => true,
    }
}

/// Returns the error of the last call, or `None` if the call succeeded.
fn failed_call(outcome: &ScenarioOutcome) -> Option<String> {
    let returned = outcome.events.iter().rev().find_map(|event| match &event.kind {
        EventKind::Returned { function, returned, .. } => Some((function, returned.result)),
        _ => None,
    });
    returned.and_then(|(function, result)| failure(function, result)).map(|error| format!("returned {error}"))
}

/// Returns the error of a call, or `None` if the call succeeded.
fn failure(function: &str, result: i32) -> Option<String> {
    let code = || signature::function(function).map_or_else(|| result.to_string(), |f| f.result_name(result));
    (result != 0).then(|| format!("{} from {function}", code()))
}

/// Returns the probe that initializes a library: alone, or as two ranks under its own process manager.
pub(crate) fn initialization(api: Dialect, served: bool) -> &'static str {
    api.pick(match served {
        false => [include_str!("probes/library-wire.pmi"), include_str!("probes/library-pmi2-wire.pmi")],
        true => [include_str!("probes/library-served.pmi"), include_str!("probes/library-pmi2-served.pmi")],
    })
}

/// Probes whether a library sends nothing on its PMI_FD. Returns `None` if the library sends bytes, crashes or hangs, or if the probe
/// cannot be judged. Otherwise, the inner value is the error of the library's initialization, or `None` if the initialization succeeded.
fn probe_wire_use(prober: Prober<'_>, api: Dialect) -> Option<Option<String>> {
    let outcome = prober.outcome(initialization(api, false))?;
    let is_silent = !outcome.events.iter().any(|e| matches!(e.kind, EventKind::ToServer { .. }));
    if !is_silent || outcome.crashed.is_some() || outcome.hung {
        return None;
    }
    let failed = failed_initialization(&outcome.events);
    let is_judged = outcome.unjudged.is_none_or(|why| why.verdict() != Verdict::Unjudged);
    (failed.is_some() || is_judged).then_some(failed)
}

/// Returns the reason why a library cannot be judged under its own process manager, or `None` if no such reason was found.
fn fails_under_its_manager(prober: Prober<'_>, api: Dialect, server: &Implementation) -> Option<String> {
    let outcome = prober.outcome(initialization(api, true))?;
    if outcome.crashed.is_some() || outcome.hung {
        return None;
    }
    if let Some(failed) = failed_initialization(&outcome.events) {
        return Some(format!(
            "the library's initialization fails under {} ({failed}): {MANAGER_REMEDY}",
            server.label
        ));
    }
    let apart = probe_connection(prober, api, &outcome.events)?;
    let option = server.offering_option().map(|option| format!("; {option}")).unwrap_or_default();
    Some(format!("the library's processes are singletons under {}: {apart}{option}", server.label))
}

/// Returns the error if the initialization failed: the first call of a process failed, or the process ended during that call.
pub(crate) fn failed_initialization(events: &[Event]) -> Option<String> {
    // The processes that have begun their first call and have not returned from it.
    let mut initializing = BTreeSet::new();
    let mut called = BTreeSet::new();
    events.iter().find_map(|event| match &event.kind {
        EventKind::Called { proc, .. } if called.insert(*proc) => {
            initializing.insert(*proc);
            None
        }
        EventKind::Returned { proc, function, returned } if initializing.remove(proc) => {
            failure(function, returned.result)
        }
        EventKind::Exited { proc, exit } if initializing.remove(proc) => {
            Some(format!("the process ended with {exit}"))
        }
        EventKind::Ended { proc, ours: false } if initializing.remove(proc) => {
            Some("the process manager killed the process".to_owned())
        }
        _ => None,
    })
}

/// Returns the evidence, if any, that the processes of a library have found neither their process manager nor each other. A process that
/// passes the barrier alone counts as evidence only if the library sends nothing on the runner's PMI_FD. Otherwise, a finding reports
/// that process.
pub(crate) fn probe_connection(prober: Prober<'_>, api: Dialect, events: &[Event]) -> Option<String> {
    if let Some(evidence) = singletons(events) {
        return Some(evidence);
    }
    let evidence = passes_alone(events)?;
    let Iut::Library(library, claims, interrupted) = prober.iut else { return None };
    let Library { path, binary, env, .. } = &**library;
    let unserved = Library { path: path.clone(), binary: binary.clone(), env: env.clone(), server: None };
    let unserved = Iut::Library(Box::new(unserved), claims.clone(), Arc::clone(interrupted));
    probe_wire_use(Prober { iut: &unserved, ..prober }, api)
        .map(|_| format!("{evidence}, and the library sends nothing on PMI_FD"))
}

/// Returns the evidence, if any, that each of several processes considers itself the only process.
fn singletons(events: &[Event]) -> Option<String> {
    let mut reported: BTreeMap<Proc, (Option<i32>, Option<i32>)> = BTreeMap::new();
    for event in events {
        let EventKind::Returned { proc, returned, .. } = &event.kind else { continue };
        let (rank, size) = reported.entry(*proc).or_default();
        for (name, held) in &returned.outs {
            match (name.as_str(), held) {
                ("rank", OutputValue::Int(number)) => *rank = *number,
                ("size", OutputValue::Int(number)) => *size = *number,
                _ => {}
            }
        }
    }
    let claims_only_process =
        reported.len() > 1 && reported.values().all(|reported| *reported == (Some(0), Some(1)));
    claims_only_process.then(|| format!("each of the {} processes is rank 0 of 1", reported.len()))
}

/// Returns the evidence, if any, that a process passes the barrier of the probe before the other process enters it.
fn passes_alone(events: &[Event]) -> Option<String> {
    let mut called = 0;
    events.iter().find_map(|event| match &event.kind {
        EventKind::Called { function, .. } if BARRIERS.contains(&function.as_str()) => {
            called += 1;
            None
        }
        EventKind::Returned { proc, function, returned }
            if called == 1 && returned.result == 0 && BARRIERS.contains(&function.as_str()) =>
        {
            Some(format!("{function} returns on rank {proc} before the other rank has called it"))
        }
        _ => None,
    })
}

/// The barrier functions of both APIs.
const BARRIERS: [&str; 2] = ["PMI_Barrier", "PMI2_KVS_Fence"];

/// The reason why scenarios that need the wire protocol do not apply to a library.
const NO_WIRE_REASON: &str = "the library does not use the wire protocol: it completes its initialization and a barrier but sends nothing on PMI_FD, so it cannot be tested without its own process manager";

/// The remedy for a library that cannot be initialized under a process manager.
pub(crate) const MANAGER_REMEDY: &str = "run doctor with --library and --server to see what the library's process prints, or record a program that uses the library to see its messages";

/// The remedy for a library that cannot be initialized.
pub(crate) const INIT_REMEDY: &str = "if the library uses a different process manager, pass it with --server; otherwise, the library does not use PMI_FD";

/// Requirements of the scenarios that test whether a library speaks the wire protocol.
const WIRE_REQUIREMENTS: [&str; 2] = [ids::RFC13_API_WIRE, ids::PMI2_COMMON_API_WIRE];

/// Returns whether a scenario for a library needs the wire protocol: either its ranks must find each other, or the scenario defines the
/// process manager's behaviour. If `served` is true, the library has its own process manager, through which the ranks find each other.
/// Otherwise, scenarios that test the wire protocol itself do not count, because they must be played to report its absence.
fn needs_wire(suite: &Suite, scenario: &Scenario, served: bool) -> bool {
    // A step that only removes a variable does not need a process manager.
    let removed =
        |value: &Template| !served && matches!(value.pieces.as_slice(), [Piece::Typed(ValueType::Absent)]);
    let arranged = |step: &Step| {
        matches!(step.role, Role::Client | Role::Server)
            || matches!(&step.action, StepAction::Process(ProcessAction::Env(_, value)) if !removed(value))
    };
    let tested = !served && tests_wire(scenario);
    let varied = !scenario.server_setup.variations.is_empty();
    let needs_manager = if served { varied } else { scenario.ranks > 1 };
    !tested && (needs_manager || suite.steps(&scenario.body).any(arranged))
}

/// Returns true if a scenario tests that a library supports the wire protocol.
fn tests_wire(scenario: &Scenario) -> bool {
    scenario.requires.iter().any(|r| WIRE_REQUIREMENTS.contains(&r.value.as_str()))
}

/// Returns whether a scenario needs an initialized library. Returns false for scenarios that test the wire protocol itself, because they
/// must be played to report its absence, and for scenarios that need [`Capability::Standalone`].
fn needs_initialization(suite: &Suite, scenario: &Scenario) -> bool {
    let initializes = |step: &Step| match &step.action {
        StepAction::Call(call) => {
            let begins = call.function.as_ref().is_some_and(|function| function.value.ends_with("_Init"));
            begins && call.result.as_ref().is_none_or(|result| result.value != "any")
        }
        _ => false,
    };
    let alone = scenario.needs.iter().any(|need| need.value == Capability::Standalone);
    !alone
        && !tests_wire(scenario)
        && (needs_wire(suite, scenario, false) || suite.steps(&scenario.body).any(initializes))
}

/// Returns whether the reference server, with this configuration, lacks an optional operation.
pub(crate) fn lacks(suite: &Suite, need: Capability, config: &Config, limits: ScenarioLimits) -> bool {
    let iut = Iut::Memory(config.clone());
    lacking(Prober { suite, iut: &iut, limits }, Dialect::Pmi1, need).is_some()
}

pub(crate) fn dialects(selected: &[Arc<Scenario>]) -> BTreeSet<Dialect> {
    selected.iter().map(|s| s.dialect).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_judge::event::Exit;

    const P: Proc = Proc { group: 0, rank: 0 };

    fn called() -> EventKind {
        EventKind::Called { proc: P, function: "PMI_Init".into(), arguments: Vec::new(), held: false }
    }

    /// The end of a process during its first call is a failure of that call, unless the runner killed the process.
    #[rstest::rstest]
    #[case::ended_by_the_manager(vec![called(), EventKind::Ended { proc: P, ours: false }], true)]
    #[case::exits(vec![called(), EventKind::Exited { proc: P, exit: Exit::Code(1) }], true)]
    #[case::never_called(vec![EventKind::Ended { proc: P, ours: false }], false)]
    #[case::ended_by_us(vec![called(), EventKind::Ended { proc: P, ours: true }], false)]
    fn exit_during_the_first_call_counts_as_failure(#[case] kinds: Vec<EventKind>, #[case] fails: bool) {
        let events: Vec<Event> =
            kinds.into_iter().zip(0..).map(|(kind, seq)| Event::new(seq, kind)).collect();
        assert_eq!(failed_initialization(&events).is_some(), fails);
    }
}
