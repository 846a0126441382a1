//! A table of offered versions, answered versions and the behaviour after the answer. Each row shows how a server reacts to an offer, or
//! how a program or library reacts to a response.

use pmi_judge::LINE_LIMIT;
use pmi_judge::event::{Event, EventKind, Exit};
use pmi_scenario::ids;
use pmi_scenario::signature;
use pmi_wire::{Connection, Decoded, Direction, Framing, FramingError, Proc, Version};
use serde::Serialize;

use crate::interpret::program::offered_dialect;
use crate::iut::{Iut, Prober};
use crate::party::library::apis;

/// A row of the version table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VersionRow {
    /// The client's offer.
    pub offered: String,
    /// The server's response.
    pub answered: String,
    /// The behaviour after the response.
    #[serde(rename = "then")]
    pub reaction: String,
}

/// The response to a request of the table, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProbeResponse {
    Message(Framing, Vec<u8>),
    Closed,
    JobEnds,
    /// An incomplete message.
    Incomplete(Framing, Vec<u8>),
    Silence,
    /// The request was not sent, because its connection had already ended.
    NotSent,
}

impl ProbeResponse {
    /// Returns the version in a successful response to init.
    pub(crate) fn version(&self) -> Option<Version> {
        let message = self.message().filter(Decoded::is_success)?;
        message.version()
    }

    /// Returns the complete message.
    pub(crate) fn message(&self) -> Option<Decoded<'_>> {
        match self {
            Self::Message(framing, text) => Some(Decoded::new(Direction::FromServer, *framing, text)),
            _ => None,
        }
    }

    fn is_refusal(&self) -> bool {
        self.message().is_some_and(|message| message.is_refusal())
    }

    /// Describes the message as the response to an offer.
    pub(crate) fn describe(&self) -> String {
        let Some(message) = self.message() else { return self.describe_follow_up() };
        match message.version().filter(|_| message.is_success()) {
            Some(version) => version.to_string(),
            None if message.is_refusal() => {
                format!("refused (rc={})", message.value("rc").unwrap_or_default().escape_ascii())
            }
            None => shown(message.text),
        }
    }

    /// Describes the message as the response to the request after an offer.
    fn describe_follow_up(&self) -> String {
        match self {
            Self::Message(..) if self.is_refusal() => "refused".to_owned(),
            Self::Message(..) => "goes on".to_owned(),
            Self::Closed => "closed".to_owned(),
            Self::JobEnds => "job ends".to_owned(),
            Self::Incomplete(Framing::Lines, text) => {
                format!("{} without a newline ({})", shown(text), ids::RFC13_WIRE_NEWLINE)
            }
            Self::Incomplete(Framing::Frames, bytes) => {
                format!("{}, part of a frame ({})", shown(bytes), ids::PMI2_COMMON_FRAME)
            }
            Self::Silence => "silent".to_owned(),
            Self::NotSent => "-".to_owned(),
        }
    }
}

/// Returns the beginning of a message, in quotation marks.
fn shown(text: &[u8]) -> String {
    format!("\"{}\"", text[..text.len().min(60)].escape_ascii())
}

/// An offer to a server, and its name in the table.
struct VersionOffer {
    name: &'static str,
    /// The lines of the offer in sending order, each with the rank that sends it.
    lines: &'static [(u32, &'static str)],
}

const V1_1: &str = "cmd=init pmi_version=1 pmi_subversion=1";
const V1_2: &str = "cmd=init pmi_version=1 pmi_subversion=2";
const V2_0: &str = "cmd=init pmi_version=2 pmi_subversion=0";
const V3_0: &str = "cmd=init pmi_version=3 pmi_subversion=0";
const HUGE: &str = "cmd=init pmi_version=99999999999999999999 pmi_subversion=0";

/// Text that the table shows instead of a response if the request was not sent because it would cause harm.
const NOT_SENT: &str = "not asked";

/// Name of the offer of two versions in one message. This offer kills slurmstepd.
const TWO_VERSIONS: &str = "1.1 and 2.0 in one";

const OFFERS: &[VersionOffer] = &[
    VersionOffer { name: "none", lines: &[] },
    VersionOffer { name: "0.0", lines: &[(0, "cmd=init pmi_version=0 pmi_subversion=0")] },
    VersionOffer { name: "0.9", lines: &[(0, "cmd=init pmi_version=0 pmi_subversion=9")] },
    VersionOffer { name: "1.0", lines: &[(0, "cmd=init pmi_version=1 pmi_subversion=0")] },
    VersionOffer { name: "1.1", lines: &[(0, V1_1)] },
    VersionOffer { name: "1.2", lines: &[(0, V1_2)] },
    VersionOffer { name: "1.9", lines: &[(0, "cmd=init pmi_version=1 pmi_subversion=9")] },
    VersionOffer { name: "2.0", lines: &[(0, V2_0)] },
    VersionOffer { name: "2.1", lines: &[(0, "cmd=init pmi_version=2 pmi_subversion=1")] },
    VersionOffer { name: "3.0", lines: &[(0, V3_0)] },
    VersionOffer { name: "huge", lines: &[(0, HUGE)] },
    VersionOffer { name: "negative", lines: &[(0, "cmd=init pmi_version=-1 pmi_subversion=1")] },
    VersionOffer { name: "words", lines: &[(0, "cmd=init pmi_version=one pmi_subversion=two")] },
    VersionOffer { name: "no version", lines: &[(0, "cmd=init pmi_subversion=1")] },
    VersionOffer { name: "no subversion", lines: &[(0, "cmd=init pmi_version=1")] },
    VersionOffer { name: "neither", lines: &[(0, "cmd=init")] },
    VersionOffer {
        name: TWO_VERSIONS,
        lines: &[(0, "cmd=init pmi_version=1 pmi_version=2 pmi_subversion=1 pmi_subversion=0")],
    },
    VersionOffer { name: "1.1, and 1.1 again", lines: &[(0, V1_1), (0, V1_1)] },
    VersionOffer { name: "3.0, then 1.1", lines: &[(0, V3_0), (0, V1_1)] },
    VersionOffer { name: "1.1, then 1.2 by rank 1", lines: &[(0, V1_1), (1, V1_2)] },
    VersionOffer { name: "1.1, then 2.0 by rank 1", lines: &[(0, V1_1), (1, V2_0)] },
    VersionOffer { name: "2.0, then 1.1 by rank 1", lines: &[(0, V2_0), (1, V1_1)] },
    VersionOffer { name: "1.1, then 3.0 by rank 1", lines: &[(0, V1_1), (1, V3_0)] },
    VersionOffer { name: "rank 1 first: 1.2, then 1.1", lines: &[(1, V1_2), (0, V1_1)] },
    VersionOffer { name: "rank 1 first: 2.0, then 1.1", lines: &[(1, V2_0), (0, V1_1)] },
];

/// A function that is called after each row of a table, with the name of the row and the number of rows.
pub type RowCallback<'a> = &'a mut dyn FnMut(&str, usize);

/// Returns the table of a server, or `None` if a launch failed.
fn of_server(prober: Prober<'_>, step: RowCallback<'_>) -> Option<Vec<VersionRow>> {
    OFFERS
        .iter()
        .map(|offer| {
            let mut lines: Vec<(u32, &str)> = offer.lines.to_vec();
            // A request after a refused init kills slurmstepd, and the job step keeps running until the allocation ends, so no such request
            // is sent.
            let spares =
                matches!(prober.iut, Iut::Processes(implementation, _) if implementation.starts_steps());
            if spares && lines.len() > 1 && lines[0].0 == lines[1].0 {
                let first = send_requests(prober, &lines[..1], false)?;
                lines.truncate(if first.iter().all(|response| response.version().is_none()) {
                    1
                } else {
                    lines.len()
                });
            }
            if spares && offer.name == TWO_VERSIONS {
                lines.clear();
            }
            let answers = send_requests(prober, &lines, false)?;
            let mut descriptions: Vec<String> = answers.iter().map(ProbeResponse::describe).collect();
            descriptions.resize(offer.lines.len(), NOT_SENT.to_owned());
            let answered = if descriptions.is_empty() { "-".to_owned() } else { descriptions.join(", ") };
            let then = match (lines.last(), answers.last()) {
                (None, _) if offer.name == TWO_VERSIONS => Some(NOT_SENT.to_owned()),
                (_, Some(last @ ProbeResponse::Message(..))) if spares && last.version().is_none() => {
                    Some(NOT_SENT.to_owned())
                }
                // Without an offer, the row shows the response to get_maxes.
                (None, _) => {
                    let answers = send_requests(prober, &[(0, "cmd=get_maxes")], false)?;
                    answers.last().map(ProbeResponse::describe_follow_up)
                }
                (Some((rank, _)), Some(last @ ProbeResponse::Message(..))) => {
                    let frames = last.version().is_some_and(|version| version.version == 2);
                    let request = if frames {
                        "cmd=fullinit pmijobid=job pmirank=$rank threaded=FALSE"
                    } else {
                        "cmd=get_maxes"
                    };
                    let mut request_lines = lines.clone();
                    request_lines.push((*rank, request));
                    let answers = send_requests(prober, &request_lines, frames)?;
                    answers
                        .last()
                        .filter(|_| answers.len() == request_lines.len())
                        .map(ProbeResponse::describe_follow_up)
                }
                (Some(_), _) => Some("-".to_owned()),
            };
            let then = then.unwrap_or_else(|| "-".to_owned());
            step(offer.name, OFFERS.len());
            Some(VersionRow { offered: offer.name.to_owned(), answered, reaction: then })
        })
        .collect()
}

/// Sends each request of `lines` after the response to the previous request, and returns the responses.
pub(crate) fn send_requests(
    prober: Prober<'_>,
    lines: &[(u32, &str)],
    frames: bool,
) -> Option<Vec<ProbeResponse>> {
    let text = probe_scenario(lines, frames);
    let outcome = prober.outcome(&text)?;
    let replies = lines.iter().enumerate().map(|(at, (rank, _))| {
        let before = lines[..at].iter().filter(|(other, _)| other == rank).count();
        reply(&outcome.events, Proc { group: 0, rank: *rank }, before)
    });
    let mut replies: Vec<ProbeResponse> = replies.collect();
    if let Some(end) = replies.iter().position(|response| *response == ProbeResponse::Closed) {
        if ends_job(prober, &lines[..=end], frames) {
            replies[end] = ProbeResponse::JobEnds;
        }
        replies[end + 1..].fill(ProbeResponse::NotSent);
    }
    Some(replies)
}

/// Returns whether the whole job ends if the connection ends after the offers in `lines`. To find out, an additional process, which has
/// sent no data yet, makes a request.
fn ends_job(prober: Prober<'_>, lines: &[(u32, &str)], frames: bool) -> bool {
    let witness = 1 + lines.iter().map(|(rank, _)| *rank).max().unwrap_or(0);
    let mut request_lines = lines.to_vec();
    request_lines.push((witness, V1_1));
    let Some(outcome) = prober.outcome(&probe_scenario(&request_lines, frames)) else { return false };
    !matches!(reply(&outcome.events, Proc { group: 0, rank: witness }, 0), ProbeResponse::Message(..))
}

/// Returns the scenario that sends the requests in `lines`.
fn probe_scenario(lines: &[(u32, &str)], frames: bool) -> String {
    use std::fmt::Write;
    let ranks = 1 + lines.iter().map(|(rank, _)| *rank).max().unwrap_or(0);
    let mut text =
        format!("# How does a server answer an offer?\nrequires rfc13.init.version-used\nranks {ranks}\n");
    text.push_str(if frames { "dialect pmi-2\n" } else { "" });
    for (rank, line) in lines {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n{rank}  send    {line}\n{rank}  expect  <one of>\n     pass: cmd=<any>\n     pass: <empty>\n     pass: <closes>\n     pass: <silence>\n"
        );
    }
    text
}

/// Returns the response to the request that process `p` sent after its first `before` requests.
pub(crate) fn reply(events: &[Event], p: Proc, before: usize) -> ProbeResponse {
    let mut connection = Connection::new(LINE_LIMIT);
    let (mut sent, mut answers) = (0, 0);
    for event in events {
        match &event.kind {
            EventKind::ToServer { proc, bytes } if *proc == p => {
                sent += 1;
                connection.read(Direction::ToServer, &bytes.0);
            }
            EventKind::FromServer { proc, bytes } if *proc == p => {
                let arrivals = connection.read(Direction::FromServer, &bytes.0).into_iter();
                for arrival in arrivals.filter(|arrival| arrival.direction == Direction::FromServer) {
                    let Ok((framing, text)) = arrival.message else { return ProbeResponse::NotSent };
                    if answers == before {
                        return ProbeResponse::Message(framing, text.into_owned());
                    }
                    answers += 1;
                }
            }
            EventKind::ClosedByServer { proc } | EventKind::Ended { proc, ours: false } if *proc == p => {
                return if sent > before { ProbeResponse::Closed } else { ProbeResponse::NotSent };
            }
            _ => {}
        }
    }
    // The scenario has waited until no further message could arrive, so no response will follow.
    match connection.partial(Direction::FromServer) {
        _ if sent <= before => ProbeResponse::NotSent,
        [] => ProbeResponse::Silence,
        partial => ProbeResponse::Incomplete(connection.framing(), partial.to_vec()),
    }
}

/// Placeholder for a response that is not sent.
const NO_RESPONSE: &str = "<nothing>";

/// Returns the responses that programs and libraries receive, each with its name. Some of the versions in them depend on the offered
/// version.
fn program_responses(offered: Version) -> Vec<(String, String)> {
    let takes = |version: u64, subversion: u64| {
        let name = Version { version, subversion }.to_string();
        (name, format!("cmd=response_to_init rc=0 pmi_version={version} pmi_subversion={subversion}"))
    };
    let Version { version, subversion } = offered;
    let mut all = vec![takes(version, subversion)];
    all.extend(subversion.checked_sub(1).map(|lower| takes(version, lower)));
    all.extend([takes(version, subversion + 1), takes(version, subversion + 8)]);
    all.push(if version == 1 { takes(2, 0) } else { takes(1, 1) });
    all.push(takes(0, 9));
    all.push(takes(3, 0));
    let others = [
        ("refused (rc=-1)", "cmd=response_to_init rc=-1"),
        ("no version", "cmd=response_to_init rc=0"),
        ("words", "cmd=response_to_init rc=0 pmi_version=one pmi_subversion=two"),
        ("another command", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024"),
        ("no answer", NO_RESPONSE),
        ("closed", "<close>"),
    ];
    all.extend(others.map(|(name, line)| (name.to_owned(), line.to_owned())));
    all
}

/// Returns the table of a program or a library, or `None` if it sends no valid offer. `scenario` returns the scenario that sends the given
/// response, or the scenario without a scripted response if its argument is `None`. `reaction` describes the behaviour after the response.
fn of_responses(
    prober: Prober<'_>,
    step: RowCallback<'_>,
    scenario: impl Fn(Option<&str>) -> String,
    reaction: fn(&[Event]) -> String,
) -> Option<Vec<VersionRow>> {
    let offer = offered_version(&prober.outcome(&scenario(None))?.events)?;
    let answers = program_responses(offer);
    let all = answers.len();
    let rows = answers.into_iter().map(|(answered, line)| {
        let outcome = prober.outcome(&scenario(Some(&line)))?;
        step(&answered, all);
        Some(VersionRow { offered: offer.to_string(), answered, reaction: reaction(&outcome.events) })
    });
    rows.collect()
}

/// Returns the table of a program, which is started under the reference server.
fn of_program(prober: Prober<'_>, step: RowCallback<'_>) -> Option<Vec<VersionRow>> {
    let Iut::Client(program) = prober.iut else { return None };
    let interrupted = std::sync::atomic::AtomicBool::new(false);
    let dialect = offered_dialect(program, prober.limits, &interrupted);
    let scenario = |answer: Option<&str>| {
        // A scenario for programs has no step for a missing response, so a fault of the server is used.
        let (fault, steps) = match answer {
            None => ("", String::new()),
            Some(NO_RESPONSE) => ("fault init-no-answer\n", String::new()),
            Some(line) => ("", format!("*  expect  cmd=init\n*  send    {line}\n")),
        };
        format!(
            "# How does a program react to an answer?\nrequires rfc13.init.version-used\ntests client\nranks 1\n\
             dialect {dialect}\n{fault}\n{steps}*  P: ends\n"
        )
    };
    of_responses(prober, step, scenario, after_answer)
}

/// Returns the table of a library, whose functions the runner calls.
fn of_library(prober: Prober<'_>, step: RowCallback<'_>) -> Option<Vec<VersionRow>> {
    let Iut::Library(library, ..) = prober.iut else { return None };
    let api = apis(&library.path).first().copied().unwrap_or_default();
    let call = signature::init_call(api);
    let scenario = |answer: Option<&str>| {
        let steps = answer.map_or(String::new(), |line| format!("0  expect  cmd=init\n0  send    {line}\n"));
        format!(
            "# How does a library react to an answer?\nrequires rfc13.init.version-used\ntests library\nranks 1\n\
             dialect {api}\n\n{steps}0  A: {call} = any\n"
        )
    };
    of_responses(prober, step, scenario, after_call)
}

/// Describes the behaviour of a library after the response to its offer.
fn after_call(events: &[Event]) -> String {
    let returned = events.iter().find_map(|event| match &event.kind {
        EventKind::Returned { function, returned, .. } => {
            let name = signature::function(function)
                .map_or_else(|| returned.result.to_string(), |f| f.result_name(returned.result));
            Some(format!("{function} returns {name}"))
        }
        _ => None,
    });
    let end = returned.unwrap_or_else(|| {
        let end = exit_of(events).map(|exit| format!("ends the process with {exit}"));
        end.unwrap_or_else(|| "does not return".to_owned())
    });
    match requests(events).get(1).map(command_of) {
        Some(command) => format!("goes on ({command}), {end}"),
        None => end,
    }
}

/// Returns the first version that is offered in `events`.
pub(crate) fn offered_version(events: &[Event]) -> Option<Version> {
    let requests = requests(events).into_iter();
    requests.filter_map(|(framing, text)| Decoded::new(Direction::ToServer, framing, &text).version()).next()
}

/// Returns the requests from the first process, each with its framing.
pub(crate) fn requests(events: &[Event]) -> Vec<(Framing, Vec<u8>)> {
    let p = Proc { group: 0, rank: 0 };
    let mut connection = Connection::new(LINE_LIMIT);
    let mut all = Vec::new();
    for event in events {
        let Some((_, direction, bytes)) = event.kind.message_bytes().filter(|(proc, ..)| *proc == p) else {
            continue;
        };
        let arrivals = connection.read(direction, bytes).into_iter();
        for arrival in arrivals.filter(|arrival| arrival.direction == Direction::ToServer) {
            all.push(match arrival.message {
                Ok((framing, text)) => (framing, text.into_owned()),
                // Describe a message that does not use the negotiated framing.
                Err(FramingError::FrameForLine) => (Framing::Frames, b"a frame of PMI-2".to_vec()),
                Err(FramingError::LineForFrame) => (Framing::Lines, b"a line".to_vec()),
                Err(_) => break,
            });
        }
    }
    all
}

/// Returns the command of a request or, if it has no command, the request itself. The result is truncated to 40 bytes.
pub(crate) fn command_of((framing, text): &(Framing, Vec<u8>)) -> String {
    let end = if *framing == Framing::Lines { b' ' } else { b';' };
    let first = text.split(|byte| *byte == end).next().unwrap_or_default();
    let word = first.strip_prefix(b"cmd=").or_else(|| first.strip_prefix(b"mcmd=")).unwrap_or(text);
    word[..word.len().min(40)].escape_ascii().to_string()
}

/// Returns the exit of the first process, or `None` if the process did not end on its own.
pub(crate) fn exit_of(events: &[Event]) -> Option<Exit> {
    events.iter().find_map(|event| match &event.kind {
        EventKind::Exited { proc, exit } if *proc == (Proc { group: 0, rank: 0 }) => Some(*exit),
        _ => None,
    })
}

/// Describes the behaviour of a process after the response to its offer.
fn after_answer(events: &[Event]) -> String {
    let next_request = requests(events).get(1).map(command_of);
    let prints = events
        .iter()
        .any(|event| matches!(&event.kind, EventKind::Output { line, .. } if !line.0.is_empty()));
    let ended = exit_of(events);
    let crashed = events.iter().find_map(|event| match &event.kind {
        EventKind::Crashed { signal, .. } => Some(*signal),
        _ => None,
    });
    let hangs = events.iter().any(|event| matches!(event.kind, EventKind::StillRunning { .. }));
    let end = match ended {
        _ if hangs => "waits forever".to_owned(),
        _ if crashed.is_some() => format!("dies of signal {}", crashed.unwrap_or_default()),
        Some(Exit::Code(0)) => "ends with status 0".to_owned(),
        Some(Exit::Signal(signal)) => format!("dies of signal {signal}"),
        Some(exit) => {
            format!("ends with {exit}{}", if prints { " after a message" } else { " without a message" })
        }
        None => "waits".to_owned(),
    };
    match next_request.as_deref() {
        // The reference server kills the process after an abort, so the end of the process shows nothing about the program.
        Some("abort") => "aborts".to_owned(),
        Some(next_request) => format!("goes on ({next_request}), {end}"),
        None => end,
    }
}

/// Returns the table of the implementation under test. `step` is called after each row, with the name of the row and the number of rows.
pub fn version_table(prober: Prober<'_>, step: RowCallback<'_>) -> Option<Vec<VersionRow>> {
    match prober.iut {
        Iut::Memory(_) | Iut::Processes(..) => of_server(prober, step),
        Iut::Client(_) => of_program(prober, step),
        Iut::Library(..) => of_library(prober, step),
    }
}
