//! What an implementation under test offers of what nobody has to have, and how that is known: by what the user says, else by asking once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pmi_reference::Config;

use crate::iut::Iut;
use crate::party::Limits;
use crate::party::library::apis;
use pmi_judge::event::{Event, What};
use pmi_judge::{LINE_LIMIT, Outcome};
use pmi_scenario::ast::{Action, Dialect, Kind, Need, Piece, ProcessAction, Role, Scenario, Step, Template};
use pmi_scenario::signature;
use pmi_scenario::suite::Suite;
use pmi_wire::pmi2::{self, Semicolons};
use pmi_wire::{
    Body, Connection, Direction, Framed, Framing, HEADER, Message as Line, Proc, Response, ValueReading,
    Version, WayIn,
};

/// What the implementation offers, and how that is known.
#[derive(Default)]
pub(crate) struct Offers {
    /// Optional operations, by the dialect in which they are asked for.
    needs: BTreeMap<(Dialect, Need), (bool, String)>,
    /// Why what is said in a dialect does not apply.
    unspoken: BTreeMap<Dialect, String>,
    /// Why a library cannot be judged by what we say to it: it does not speak the wire protocol.
    wireless: Option<String>,
}

impl Offers {
    /// Why a scenario does not apply to what is under test, if it does not.
    pub(crate) fn excuse(&self, suite: &Suite, scenario: &Scenario, iut: &Iut) -> Option<String> {
        if let Some(why) = self.unspoken.get(&scenario.dialect) {
            return Some(why.clone());
        }
        for need in &scenario.needs {
            if let Some((false, why)) = self.needs.get(&(scenario.dialect, need.value)) {
                return Some(why.clone());
            }
        }
        match (&self.wireless, iut) {
            (Some(why), Iut::Library(library, ..))
                if wants_wire(suite, scenario, library.server.is_some()) =>
            {
                Some(why.clone())
            }
            _ => None,
        }
    }
}

/// Finds out which optional operations there are: by what is claimed, else by asking for one.
pub(crate) fn offers(suite: &Suite, selected: &[Arc<Scenario>], iut: &Iut, limits: Limits) -> Offers {
    let mut offers = Offers::default();
    let needs: BTreeSet<(Dialect, Need)> =
        selected.iter().flat_map(|s| s.needs.iter().map(|n| (s.dialect, n.value))).collect();
    let upstream = matches!(iut, Iut::Processes(implementation, _) if implementation.has_upstream());
    let way_in = iut.way_in();
    let why = "it needs a proxy whose upstream we play (--server ./hydra_pmi_proxy)".to_owned();
    for (_, dialect) in Dialect::NAMES {
        offers.needs.insert((dialect, Need::Upstream), (upstream, why.clone()));
        let is = match way_in {
            WayIn::Fd => "its processes have PMI_FD",
            WayIn::Port => "its processes have PMI_PORT",
            WayIn::Singleton => "it serves a process that it has not started",
        };
        let ways = [
            (Need::Fd, WayIn::Fd, "fd"),
            (Need::Port, WayIn::Port, "port"),
            (Need::Singleton, WayIn::Singleton, "singleton"),
        ];
        for (need, way, word) in ways {
            offers.needs.insert((dialect, need), (way == way_in, format!("{is} (--connection {word})")));
        }
    }
    let claims = match iut {
        Iut::Memory(_) | Iut::Client(_) => return offers,
        Iut::Processes(implementation, _) => &implementation.claims,
        Iut::Library(_, claims, _) => claims,
    };
    if let Iut::Library(library, ..) = iut
        && let Some(server) = &library.server
    {
        let why = format!("what the process manager says is not ours to arrange: it is {}", server.label);
        offers.wireless = Some(why);
    } else if let Iut::Library(library, ..) = iut
        && is_wireless(suite, apis(&library.path).first().copied().unwrap_or_default(), iut, limits)
    {
        offers.wireless = Some(
            "it does not speak the wire protocol: it initializes itself, enters a barrier and says nothing on PMI_FD; so \
             there is no process manager for it here"
                .to_owned(),
        );
    }
    let both = dialects(selected).len() > 1;
    if both
        && matches!(iut, Iut::Processes(..))
        && let Some(seen) = speaks_no_pmi2(suite, iut, limits)
    {
        let why = format!(
            "it does not speak PMI-2: offered version 2.0, it answered {seen}; --dialect pmi-2 makes it a duty"
        );
        offers.unspoken.insert(Dialect::Pmi2, why);
    }
    for (dialect, need) in needs {
        if offers.unspoken.contains_key(&dialect) {
            continue;
        }
        if need.is_way_in() {
            continue;
        }
        let word = need.word();
        let offer = match claims.get(&need) {
            Some(true) | None if need == Need::Spawn && loses_spawned(suite, dialect, iut, limits) => {
                (false, LOST.to_owned())
            }
            Some(true) => (true, String::new()),
            Some(false) => (false, format!("it is said to lack {word}")),
            None if upstream && need.is_extra() => (false, PASSED_ON.to_owned()),
            None => match lacking(suite, dialect, need, iut, limits) {
                None => (true, String::new()),
                Some(seen) if need.is_extra() => (
                    false,
                    format!(
                        "it does not offer {word}: asked once, it answered {seen}; --has {word} makes it a duty"
                    ),
                ),
                Some(seen) => (
                    false,
                    format!("it lacks {word}: asked once, it answered {seen}; --has {word} makes it a duty"),
                ),
            },
        };
        offers.needs.insert((dialect, need), offer);
    }
    offers
}

/// Spawns, names and PMI-1.2, as far as a server offers them in a protocol: what it claims, else what it does
/// where it is asked once.
pub fn offered_operations(suite: &Suite, dialect: Dialect, iut: &Iut, limits: Limits) -> BTreeSet<Need> {
    let Iut::Processes(implementation, _) = iut else { return BTreeSet::new() };
    let offers = |need: &Need| match implementation.claims.get(need) {
        _ if *need == Need::Spawn && loses_spawned(suite, dialect, iut, limits) => false,
        Some(offered) => *offered,
        None if implementation.has_upstream() => false,
        None => asked_for(suite, dialect, *need, iut, limits).is_some_and(|(outcome, refused)| {
            // What comes to no answer is as good as refused: every session that asks for it would be about that.
            let went_wrong = outcome.hung || outcome.unreached > 0 || outcome.crashed.is_some();
            refused.is_none() && !went_wrong && outcome.unjudged.is_none()
        }),
    };
    let wanted = |need: &Need| match need {
        Need::Spawn | Need::Names => true,
        Need::Pmi12 => dialect == Dialect::Pmi1,
        _ => false,
    };
    Need::NAMES.into_iter().map(|(_, need)| need).filter(wanted).filter(offers).collect()
}

/// Asks for an optional operation; how it was refused, if it was.
fn lacking(suite: &Suite, dialect: Dialect, need: Need, iut: &Iut, limits: Limits) -> Option<String> {
    asked_for(suite, dialect, need, iut, limits)?.1
}

/// Asks for an optional operation: what became of that, and how it was refused, if it was. `None` where it cannot be asked for.
pub(crate) fn asked_for(
    suite: &Suite,
    dialect: Dialect,
    need: Need,
    iut: &Iut,
    limits: Limits,
) -> Option<(Outcome, Option<String>)> {
    let (text, request): (_, &[u8]) = match (iut, need, dialect) {
        // Known without asking.
        (_, Need::Upstream | Need::Fd | Need::Port | Need::Singleton, _) => return None,
        // What a library under a process manager of its own spawns is judged in no scenario.
        (Iut::Library(library, ..), Need::Spawn | Need::Alone, _) if library.server.is_some() => {
            return None;
        }
        (Iut::Library(..), Need::Names, Dialect::Pmi1) => {
            (include_str!("probes/library-names.pmi"), b"cmd=publish_name")
        }
        (Iut::Library(..), Need::Spawn, Dialect::Pmi1) => {
            (include_str!("probes/library-spawn.pmi"), b"mcmd=spawn")
        }
        (Iut::Library(..), Need::Names, Dialect::Pmi2) => {
            (include_str!("probes/library-pmi2-names.pmi"), b"cmd=name-publish")
        }
        (Iut::Library(..), Need::Spawn, Dialect::Pmi2) => {
            (include_str!("probes/library-pmi2-spawn.pmi"), b"cmd=spawn")
        }
        (_, Need::Names, Dialect::Pmi1) => (include_str!("probes/names.pmi"), b"cmd=publish_name"),
        (_, Need::Spawn, Dialect::Pmi1) => (include_str!("probes/spawn.pmi"), b"mcmd=spawn"),
        (_, Need::Names, Dialect::Pmi2) => (include_str!("probes/pmi2-names.pmi"), b"cmd=name-publish"),
        (_, Need::Spawn, Dialect::Pmi2) => (include_str!("probes/pmi2-spawn.pmi"), b"cmd=spawn"),
        (Iut::Library(..), Need::Alone, Dialect::Pmi1) => {
            (include_str!("probes/library-alone.pmi"), b"cmd=init")
        }
        (Iut::Library(..), Need::Alone, Dialect::Pmi2) => {
            (include_str!("probes/library-pmi2-alone.pmi"), b"cmd=init")
        }
        (_, Need::Alone, _) => return None,
        // What a library may ask for is told by what it exports.
        (Iut::Library(..), Need::Pmi12 | Need::KeyvalSpaces, _) => return None,
        (_, Need::Pmi12, _) => (include_str!("probes/pmi12.pmi"), b"cmd=init"),
        (_, Need::KeyvalSpaces, _) => (include_str!("probes/keyval-spaces.pmi"), b"cmd=create_kvs"),
    };
    // What cannot be asked is told by the scenarios themselves. But a process that was not started in time, or a launcher that dies now
    // and then, must not make a duty of what nobody has to have: it is asked once more, and that counts.
    let ask = || Some(iut.probe(suite, text, limits)?.ok()?.0);
    let came_to_something = |outcome: &Outcome| outcome.crashed.is_none() && outcome.unjudged.is_none();
    let outcome = ask().filter(came_to_something).or_else(ask)?;
    let refused = match iut {
        // Who asks the process manager has it. One that asks nothing has no say in how that is done.
        Iut::Library(..) => failed_call(&outcome).filter(|_| !asks(&outcome, request)),
        _ => refusal(&outcome, need, request),
    };
    Some((outcome, refused))
}

/// Why a bare proxy is not asked for what no specification has.
const PASSED_ON: &str =
    "a proxy passes on what it does not know, and the upstream that would answer is played by us";

/// Why spawns are not judged where processes relay their connections and none that is spawned finds its way to us.
const LOST: &str = "not judged here: asked once, the server takes a spawn, and no spawned process comes to the address that is told to it by its \
     environment and its program's path";

/// Whether a server that relays takes a request to spawn, and no process comes of it: whether it started one cannot be seen.
fn loses_spawned(suite: &Suite, dialect: Dialect, iut: &Iut, limits: Limits) -> bool {
    iut.is_relayed()
        && asked_for(suite, dialect, Need::Spawn, iut, limits).is_some_and(|(outcome, refused)| {
            let comes = |e: &Event| matches!(e.what, What::Started { proc, .. } if proc.group > 0);
            refused.is_none() && outcome.crashed.is_none() && !outcome.events.iter().any(comes)
        })
}

/// How a server answered an offer of PMI-2, if not by taking it.
fn speaks_no_pmi2(suite: &Suite, iut: &Iut, limits: Limits) -> Option<String> {
    let (outcome, _) = iut.probe(suite, include_str!("probes/pmi2.pmi"), limits)?.ok()?;
    refusal(&outcome, Need::Spawn, b"cmd=init")
}

/// Whether a request that begins like this was sent.
fn asks(outcome: &Outcome, request: &[u8]) -> bool {
    let begins = |bytes: &[u8]| {
        bytes.starts_with(request) || bytes.get(HEADER..).is_some_and(|body| body.starts_with(request))
    };
    let is_asked = |event: &Event| matches!(&event.what, What::ToServer { bytes, .. } if begins(&bytes.0));
    outcome.events.iter().any(is_asked)
}

/// How a server refused the request that begins like this: by an answer that is no success, or by ending the connection.
/// Silence, a crash, and a promise that is not kept are no refusals; but of what nobody has to have, silence is one.
fn refusal(outcome: &Outcome, need: Need, request: &[u8]) -> Option<String> {
    let mut connections: BTreeMap<Proc, Connection> = BTreeMap::new();
    let mut asked = None;
    for event in &outcome.events {
        let (proc, direction, bytes) = match &event.what {
            What::ToServer { proc, bytes } => (*proc, Direction::ToServer, &bytes.0),
            What::FromServer { proc, bytes } => (*proc, Direction::FromServer, &bytes.0),
            What::ClosedByServer { proc } | What::Ended { proc, ours: false }
                if asked == Some(*proc) && outcome.crashed.is_none() =>
            {
                return Some("the end of the connection".to_owned());
            }
            What::NoAnswer { proc, .. } if asked == Some(*proc) && need.is_extra() => {
                return Some("nothing".to_owned());
            }
            _ => continue,
        };
        let connection = connections.entry(proc).or_insert_with(|| Connection::new(LINE_LIMIT));
        connection.push(direction, bytes);
        while let Some(message) = connection.next(direction) {
            let Ok(Framed { framing, text }) = message else { continue };
            match direction {
                Direction::ToServer if text.starts_with(request) => asked = Some(proc),
                Direction::FromServer if asked == Some(proc) => {
                    let granted = match framing {
                        Framing::Lines if need == Need::KeyvalSpaces => {
                            Line::parse(text, ValueReading::ToEndOfLine)
                                .is_ok_and(|m| m.cmd() == Some(b"newkvs") && m.get("kvsname").is_some())
                        }
                        Framing::Lines => Response::parse(text, ValueReading::ToEndOfLine)
                            .is_ok_and(|r| r.is_success() && takes_offer(need, request, &r)),
                        Framing::Frames => {
                            pmi2::Response::parse(text, Semicolons::Plain).is_ok_and(|r| r.is_success())
                        }
                    };
                    return (!granted).then(|| format!("\"{}\"", text.escape_ascii()));
                }
                _ => {}
            }
        }
    }
    None
}

/// Whether an answer to init takes the version that was offered; answers to other requests offer nothing.
fn takes_offer(need: Need, request: &[u8], response: &Response<'_>) -> bool {
    match &response.body {
        Body::Init(used) if need == Need::Pmi12 => used.is_some_and(Version::has_group_barriers),
        Body::Init(used) if request == b"cmd=init" => used.is_some_and(|version| version.version == 2),
        _ => true,
    }
}

/// What the last call returned, if that was an error.
fn failed_call(outcome: &Outcome) -> Option<String> {
    let returned = outcome.events.iter().rev().find_map(|event| match &event.what {
        What::Returned { function, returned, .. } => Some((function, returned.result)),
        _ => None,
    });
    let (function, result) = returned.filter(|(_, result)| *result != 0)?;
    let code = signature::function(function).map_or_else(|| result.to_string(), |f| f.result_name(result));
    Some(format!("{code} from {function}"))
}

/// Whether a library does its work without a word on its PMI_FD. One that crashes, hangs or fails is no such library.
fn is_wireless(suite: &Suite, api: Dialect, iut: &Iut, limits: Limits) -> bool {
    let probe = match api {
        Dialect::Pmi1 => include_str!("probes/library-wire.pmi"),
        Dialect::Pmi2 => include_str!("probes/library-pmi2-wire.pmi"),
    };
    let done = iut.probe(suite, probe, limits);
    matches!(done, Some(Ok((outcome, _))) if outcome.crashed.is_none()
        && outcome.unjudged.is_none()
        && outcome.findings.is_empty()
        && !outcome.events.iter().any(|e| matches!(e.what, What::ToServer { .. })))
}

/// What the scenarios test that are about whether a library speaks the wire protocol.
const WIRE: [&str; 2] = ["rfc13.api.wire", "pmi2.common.api.wire"];

/// Whether a library's scenario can only be played where the library talks to us: it has ranks that have to find each other,
/// or says what the process manager does. That there is no wire is for the scenario to find that tests for it.
fn wants_wire(suite: &Suite, scenario: &Scenario, served: bool) -> bool {
    // That there is no process manager needs none.
    let removed =
        |value: &Template| !served && matches!(value.pieces.as_slice(), [Piece::Typed(Kind::Absent)]);
    let arranged = |step: &Step| {
        matches!(step.role, Role::Client | Role::Server)
            || matches!(&step.action, Action::Process(ProcessAction::Env(_, value)) if !removed(value))
    };
    let tested = !served && scenario.requires.iter().any(|r| WIRE.contains(&r.value.as_str()));
    !tested && (!served && scenario.ranks > 1 || suite.steps(&scenario.body).any(arranged))
}

/// Whether the reference server, as it is set up, lacks an optional operation.
pub(crate) fn lacks(suite: &Suite, need: Need, config: &Config, limits: Limits) -> bool {
    lacking(suite, Dialect::Pmi1, need, &Iut::Memory(config.clone()), limits).is_some()
}

/// The dialects of these scenarios.
pub(crate) fn dialects(selected: &[Arc<Scenario>]) -> BTreeSet<Dialect> {
    selected.iter().map(|s| s.dialect).collect()
}
