//! The compatibility of a client and a server, message by message, determined from separate logs without running the two together. A
//! response field is *required* if it is in every response after which the client continued, and missing from a response after which the
//! client stopped. A request field is *required* if it is in every request that the server accepted, and missing from a refused request.
//! The logs of a library or program under test contain responses without some fields, so they show which fields are required. A recording
//! shows only which fields were present.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pmi_scenario::ast::Dialect;
use pmi_wire::{Decoded, Direction, Framing, Operation, Proc, ResponseOutcome, SpawnAssembler, grammar};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::connections::{CompletedMessage, Connections, decode};
use crate::crash::SignalCause;
use crate::event::{Event, EventKind, Exit};

/// The field names of a message, except for numbered fields.
type FieldNames = BTreeSet<String>;

/// The field of fullinit that a client can send only if its environment contains the id of its job.
const JOBID: &str = "pmijobid";

#[derive(Debug, Clone, Copy, Default)]
struct OutcomeCounts {
    successes: usize,
    failures: usize,
    /// True if any of these requests came from a process whose environment contained the id of its job.
    has_job_id: bool,
}

impl OutcomeCounts {
    fn count(&mut self, succeeded: bool) {
        *(if succeeded { &mut self.successes } else { &mut self.failures }) += 1;
    }
}

/// The form of a response. `threaded` is true if the request contained a `thrid`, which the response should repeat.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ResponseForm {
    threaded: bool,
    outcome: ResponseOutcome,
    fields: FieldNames,
}

/// The observed requests with a particular command, and their responses.
#[derive(Debug, Clone, Default)]
struct CommandExchanges {
    /// For each set of fields, the numbers of accepted and refused requests.
    requests: BTreeMap<FieldNames, OutcomeCounts>,
    /// For each form of response, the numbers of times that the client continued and stopped after a response of this form. Both numbers
    /// are zero if the logs do not show whether the client continued.
    responses: BTreeMap<ResponseForm, OutcomeCounts>,
}

/// Observations about a client or a server, collected from its logs.
#[derive(Debug, Clone, Default)]
pub struct Observations {
    commands: BTreeMap<(Dialect, String), CommandExchanges>,
    /// For each offered version, the versions in the responses; `None` means a refusal.
    versions: BTreeMap<String, BTreeSet<Option<String>>>,
}

/// A request that has not been answered yet.
#[derive(Debug)]
struct UnansweredRequest {
    dialect: Dialect,
    command: String,
    fields: FieldNames,
    /// The version that the request offers, if the request is an init.
    offer: Option<String>,
    /// True if the environment of the process contained the id of its job. The process could then send the id.
    has_job_id: bool,
}

#[derive(Default)]
struct ObservedConnection {
    pending: VecDeque<UnansweredRequest>,
    /// The last response, kept until the log shows whether the client continued after this response.
    read: Option<((Dialect, String), ResponseForm)>,
    /// True while a spawn request is incomplete.
    in_block: bool,
    /// True if the environment of the process contains PMI_JOBID.
    has_job_id: bool,
}

/// A message of either dialect.
struct ParsedMessage {
    command: String,
    fields: FieldNames,
    rc: Option<i64>,
    found: bool,
    version: Option<String>,
}

fn read(message: &Decoded<'_>) -> Option<ParsedMessage> {
    let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let pairs: Vec<(String, &[u8])> = message.tuples().map(|tuple| (shown(tuple.key), tuple.value)).collect();
    let get = |key: &str| pairs.iter().find(|(name, _)| name == key).map(|(_, value)| *value);
    let flag = get("found").or_else(|| get("flag"));
    let version = get("pmi_version").zip(get("pmi_subversion"));
    Some(ParsedMessage {
        command: shown(get("cmd")?),
        rc: get("rc").map(|rc| grammar::parse_int(rc).unwrap_or(-1)),
        found: flag.is_none_or(|flag| !flag.eq_ignore_ascii_case(b"false")),
        version: version.map(|(major, minor)| format!("{}.{}", shown(major), shown(minor))),
        fields: pairs
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| name != "cmd" && !name.ends_with(|c: char| c.is_ascii_digit()))
            .collect(),
    })
}

impl ObservedConnection {
    /// Returns the request that a message contains or completes, if any.
    fn request(&mut self, message: &Decoded<'_>) -> Option<UnansweredRequest> {
        let Decoded { framing, text, .. } = message;
        let dialect = Dialect::of(*framing);
        if *framing == Framing::Lines && (self.in_block || SpawnAssembler::is_spawn_start(text)) {
            self.in_block = *text != b"endcmd";
            let pending = UnansweredRequest {
                dialect,
                command: "spawn".to_owned(),
                fields: FieldNames::new(),
                offer: None,
                has_job_id: self.has_job_id,
            };
            return (!self.in_block).then_some(pending);
        }
        let read = read(message)?;
        let offer = read.version.filter(|_| read.command == "init");
        Some(UnansweredRequest {
            dialect,
            command: read.command,
            fields: read.fields,
            offer,
            has_job_id: self.has_job_id,
        })
    }
}

impl Observations {
    /// Reads the events of a scenario or of a recorded session.
    pub fn read(&mut self, events: &[Event]) {
        let mut links: BTreeMap<Proc, ObservedConnection> = BTreeMap::new();
        let mut connections = Connections::default();
        for event in events {
            match &event.kind {
                EventKind::ToServer { proc, .. } | EventKind::FromServer { proc, .. }
                    if proc.group != Proc::PROXY_GROUP =>
                {
                    let arrivals = connections.read(event);
                    self.record_messages(links.entry(*proc).or_default(), &decode(&arrivals));
                }
                EventKind::ClosedByServer { proc } | EventKind::NoResponse { proc, .. }
                    if proc.group != Proc::PROXY_GROUP =>
                {
                    let link = links.entry(*proc).or_default();
                    // If the client ends now, the closed connection may be the cause, rather than the previous response.
                    // The previous response is therefore not counted.
                    self.record_continuation(link, None);
                    // If several requests are pending, the log does not show which one the server rejects, so none is counted.
                    if let [request] = link.pending.make_contiguous() {
                        self.request(request, false);
                    }
                    link.pending.clear();
                }
                EventKind::Returned { proc, returned, .. } => {
                    let continued = returned.result == 0;
                    self.record_continuation(links.entry(*proc).or_default(), Some(continued));
                }
                EventKind::Started { proc, env, .. } => {
                    links.entry(*proc).or_default().has_job_id = env.contains_key("PMI_JOBID");
                }
                EventKind::Exited { proc, exit } => {
                    let link = links.entry(*proc).or_default();
                    // No request follows finalize, so exit status 0 means that the client accepted the response.
                    let finalized = link.read.as_ref().is_some_and(|((_, command), _)| command == "finalize");
                    let continued = match exit {
                        Exit::Code(0) => finalized.then_some(true),
                        Exit::Code(_) => Some(false),
                        Exit::Signal(signal) => {
                            (!SignalCause::of(*signal).is_from_outside()).then_some(false)
                        }
                    };
                    self.record_continuation(link, continued);
                }
                _ => {}
            }
        }
    }

    fn record_messages(&mut self, link: &mut ObservedConnection, messages: &[CompletedMessage<'_>]) {
        for (direction, message) in messages {
            match (direction, message) {
                (Direction::FromServer, message) => {
                    match message.as_ref().ok().and_then(|message| Some((message, read(message)?))) {
                        Some((message, read)) => self.answer(link, message, read),
                        None => self.record_continuation(link, None),
                    }
                }
                (Direction::ToServer, Ok(message)) => {
                    let Some(request) = link.request(message) else { continue };
                    self.record_continuation(link, Some(request.command != "abort"));
                    // An abort is not stored, because its response is at most an empty line, which shows nothing.
                    if request.command != "abort" {
                        link.pending.push_back(request);
                    }
                }
                (Direction::ToServer, Err(_)) => {}
            }
        }
    }

    fn answer(&mut self, link: &mut ObservedConnection, message: &Decoded<'_>, read: ParsedMessage) {
        let answers = |request: &UnansweredRequest| match (message.exchange(), message.framing) {
            (Some(exchange), _) => request.command == exchange.request,
            // A response with an unknown command can answer only a request outside RFC 13.
            (None, Framing::Lines) => Operation::from_request_cmd(request.command.as_bytes()).is_none(),
            (None, Framing::Frames) => read.command.strip_suffix("-response") == Some(&request.command),
        };
        let place = link.pending.iter().position(answers);
        let Some(request) = place.and_then(|place| link.pending.remove(place)) else {
            // A stray response shows nothing about the format of responses. It may be why the client stops, so the previous response
            // is not counted.
            return self.record_continuation(link, None);
        };
        let outcome = match read.rc {
            Some(rc) if rc != 0 => ResponseOutcome::Failure,
            _ if !read.found => ResponseOutcome::Miss,
            _ => ResponseOutcome::Success,
        };
        self.request(&request, outcome != ResponseOutcome::Failure);
        if let Some(offer) = &request.offer {
            let version = read.version.filter(|_| outcome == ResponseOutcome::Success);
            self.versions.entry(offer.clone()).or_default().insert(version);
        }
        let mut fields = read.fields;
        let threaded = request.fields.contains("thrid");
        if !threaded {
            fields.remove("thrid");
        }
        let (command, form) =
            ((request.dialect, request.command), ResponseForm { threaded, outcome, fields });
        self.commands.entry(command.clone()).or_default().responses.entry(form.clone()).or_default();
        self.record_continuation(link, None);
        link.read = Some((command, form));
    }

    fn request(&mut self, request: &UnansweredRequest, accepted: bool) {
        let command = (request.dialect, request.command.clone());
        let requests = &mut self.commands.entry(command).or_default().requests;
        let tally = requests.entry(request.fields.clone()).or_default();
        tally.count(accepted);
        tally.has_job_id |= request.has_job_id;
    }

    /// Records whether the client continued after the last response, if that is known.
    fn record_continuation(&mut self, link: &mut ObservedConnection, continued: Option<bool>) {
        if let (Some((command, form)), Some(continued)) = (link.read.take(), continued) {
            self.commands.entry(command).or_default().responses.entry(form).or_default().count(continued);
        }
    }
}

/// The result of comparing a message with the messages that the other side understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[serde(rename = "Fit")]
pub enum MessageSupport {
    /// The other side did not understand the message, or needs a field that the message omits.
    #[serde(rename = "breaks")]
    Incompatible,
    /// The logs do not show whether the other side understands the message.
    Unknown,
    /// The other side has understood a message of this form.
    #[serde(rename = "fits")]
    Compatible,
}

/// The side that sends a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sender {
    /// The client, which sends requests.
    Client,
    /// The server, which sends responses.
    Server,
}

/// A message from one side, and whether the other side understands it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Row")]
pub struct MessageRow {
    /// The result of the comparison.
    #[serde(rename = "fit")]
    pub support: MessageSupport,
    /// The dialect of the message.
    pub dialect: Dialect,
    /// The command of the request, even if this row is about a response.
    pub command: String,
    /// The sender of the message.
    pub sender: Sender,
    /// The fields that the result depends on.
    pub fields: Vec<String>,
    /// A description of the observations about both sides.
    #[serde(rename = "why")]
    pub reason: String,
}

/// The compatibility of a client and a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Compatibility {
    /// One row for each message, the worst first.
    pub rows: Vec<MessageRow>,
}

impl Compatibility {
    /// Compares the observations of a client with those of a server.
    pub fn of(client: &Observations, server: &Observations) -> Self {
        let mut rows = versions(client, server);
        for ((dialect, command), asks) in &client.commands {
            if command == "init" {
                continue;
            }
            let row = |sender, (fit, fields, why): RowAssessment| MessageRow {
                support: fit,
                dialect: *dialect,
                command: command.clone(),
                sender,
                fields: fields.into_iter().collect(),
                reason: why,
            };
            let Some(serves) = server.commands.get(&(*dialect, command.clone())) else {
                let why = "the server's log contains no such request";
                rows.push(row(Sender::Client, (MessageSupport::Unknown, FieldNames::new(), why.to_owned())));
                continue;
            };
            rows.push(row(Sender::Client, requests(asks, serves)));
            rows.extend(answers(asks, serves).map(|weighed| row(Sender::Server, weighed)));
            rows.extend(misses(asks, serves).map(|weighed| row(Sender::Server, weighed)));
        }
        rows.sort_by_key(|row| (row.support, row.dialect, row.sender));
        Self { rows }
    }

    /// Returns the number of messages with this result.
    pub fn count(&self, support: MessageSupport) -> usize {
        self.rows.iter().filter(|row| row.support == support).count()
    }
}

type RowAssessment = (MessageSupport, FieldNames, String);

/// Assesses whether the other side understands a message with the fields `sent`. The assessment is based on the fields of the messages that
/// the other side has accepted, and on the groups of fields that the other side requires. Returns `None` if the logs do not show whether
/// the other side understands the message.
fn assess(
    sent: &FieldNames,
    required: &[FieldNames],
    accepted: &[&FieldNames],
    [sender, refusal, acceptance]: [&str; 3],
) -> Option<RowAssessment> {
    let broken: FieldNames =
        required.iter().filter(|group| group.is_disjoint(sent)).flatten().cloned().collect();
    if !broken.is_empty() {
        let why = format!("{sender} sends {}; {refusal} without {}", list_fields(sent), list_fields(&broken));
        return Some((MessageSupport::Incompatible, broken, why));
    }
    let is_accepted = accepted.iter().any(|fields| fields.is_subset(sent));
    is_accepted.then(|| (MessageSupport::Compatible, FieldNames::new(), acceptance.to_owned()))
}

/// Returns the sets of fields that were accepted at least once, and the sets that were always refused.
fn by_outcome<'a>(
    tallies: impl Iterator<Item = (&'a FieldNames, &'a OutcomeCounts)>,
) -> [Vec<&'a FieldNames>; 2] {
    let (accepted, others): (Vec<_>, Vec<_>) = tallies.partition(|(_, tally)| tally.successes > 0);
    let refused = others.into_iter().filter(|(_, tally)| tally.failures > 0);
    [accepted.into_iter().map(|(fields, _)| fields).collect(), refused.map(|(fields, _)| fields).collect()]
}

fn list_fields(fields: &FieldNames) -> String {
    if fields.is_empty() {
        "no fields".to_owned()
    } else {
        fields.iter().cloned().collect::<Vec<_>>().join(", ")
    }
}

/// Returns the fields that all sets contain, or `None` if there are no sets.
fn common_fields<'a>(sets: impl Iterator<Item = &'a FieldNames>) -> Option<FieldNames> {
    sets.fold(None, |all: Option<FieldNames>, set| {
        Some(all.map_or_else(|| set.clone(), |all| all.intersection(set).cloned().collect()))
    })
}

/// Returns groups of fields such that at least one field of each group is required. All accepted messages contain every field of the group,
/// and a refused message contains none of them. A group that contains a smaller group is dropped, because the smaller group is more
/// precise.
fn groups<'a>(accepted: &[&'a FieldNames], refused: &[&'a FieldNames]) -> Vec<FieldNames> {
    let Some(all) = common_fields(accepted.iter().copied()) else { return Vec::new() };
    let missing: Vec<FieldNames> = refused
        .iter()
        .map(|fields| all.difference(fields).cloned().collect::<FieldNames>())
        .filter(|missing| !missing.is_empty())
        .collect();
    let smallest = |group: &&FieldNames| {
        !missing.iter().any(|other| other.is_subset(group) && other.len() < group.len())
    };
    let mut groups: Vec<FieldNames> = missing.iter().filter(smallest).cloned().collect();
    groups.sort();
    groups.dedup();
    groups
}

fn versions(client: &Observations, server: &Observations) -> Vec<MessageRow> {
    let row = |offer: &str, fit, why| MessageRow {
        support: fit,
        dialect: if offer.starts_with('2') { Dialect::Pmi2 } else { Dialect::Pmi1 },
        command: "init".to_owned(),
        sender: Sender::Client,
        fields: Vec::new(),
        reason: why,
    };
    let of_offer = |(offer, taken): (&String, &BTreeSet<Option<String>>)| {
        let Some(answers) = server.versions.get(offer) else {
            let why = format!("the client offers {offer}, but the server's log contains no such offer");
            return row(offer, MessageSupport::Unknown, why);
        };
        let versions: Vec<&str> =
            answers.iter().map(|version| version.as_deref().unwrap_or("a refusal")).collect();
        let fit = if !answers.is_disjoint(taken) {
            MessageSupport::Compatible
        } else if answers.iter().all(Option::is_none) {
            MessageSupport::Incompatible
        } else {
            MessageSupport::Unknown
        };
        row(
            offer,
            fit,
            format!("the client offers {offer}; the server answers with {}", versions.join(" or ")),
        )
    };
    client.versions.iter().map(of_offer).collect()
}

/// Returns whether a response contains the value or port that was requested.
fn finds(form: &ResponseForm) -> bool {
    form.fields.contains("value") || form.fields.contains("port")
}

/// Compares the client's requests with those that the server has accepted and refused.
fn requests(client: &CommandExchanges, server: &CommandExchanges) -> RowAssessment {
    let [accepted, mut refused] = by_outcome(server.requests.iter());
    // A server also refuses a get or lookup that finds nothing, so a refusal shows nothing about the fields of the request.
    if server.responses.keys().any(finds) {
        refused.clear();
    }
    let demands = groups(&accepted, &refused);
    let texts = ["the client", "the server has refused requests", "the server has accepted this request"];
    let weigh = |sent: &FieldNames, tally: &OutcomeCounts| -> RowAssessment {
        match assess(sent, &demands, &accepted, texts) {
            Some((_, broken, _)) if broken.contains(JOBID) && !tally.has_job_id => {
                let why = "the client's log has no PMI_JOBID, so the client had no pmijobid to send";
                return (MessageSupport::Unknown, broken, why.to_owned());
            }
            Some(assessment) => return assessment,
            None => {}
        }
        let all = common_fields(accepted.iter().copied()).unwrap_or_default();
        let lacking: FieldNames = all.difference(sent).cloned().collect();
        let why = format!(
            "the client sends {}; all requests that the server has accepted contained {}",
            list_fields(sent),
            list_fields(&all)
        );
        (MessageSupport::Unknown, lacking, why)
    };
    // Requests that were refused every time do not count, unless the client sent no other requests.
    let sent = client.requests.iter().filter(|(_, tally)| tally.successes > 0 || client.requests.len() == 1);
    // A request without the job id is ignored if the client sends the id in other requests and the environment of the requesting process
    // contained no id. The missing variable explains the omission.
    let sends_job_id = sent.clone().any(|(fields, _)| fields.contains(JOBID));
    let sent = sent.filter(|(fields, tally)| !sends_job_id || tally.has_job_id || fields.contains(JOBID));
    let worst = sent.map(|(fields, tally)| weigh(fields, tally)).min_by_key(|weighed| weighed.0);
    worst.unwrap_or_else(|| {
        (
            MessageSupport::Unknown,
            FieldNames::new(),
            "the requests in the client's own log were refused".to_owned(),
        )
    })
}

/// Compares the server's successful responses with those after which the client continued, and with those after which the client stopped.
fn answers(client: &CommandExchanges, server: &CommandExchanges) -> Option<RowAssessment> {
    let threaded = client.requests.keys().any(|fields| fields.contains("thrid"));
    let success = |form: &&ResponseForm| form.outcome == ResponseOutcome::Success;
    let responses = client.responses.iter().filter(|(form, _)| success(form));
    let [accepted, refused] = by_outcome(responses.map(|(form, tally)| (&form.fields, tally)));
    let needs = groups(&accepted, &refused);
    let texts = [
        "the server",
        "the client never continued after a response",
        "the client has continued after this response",
    ];
    let weigh = |sent: &FieldNames| -> RowAssessment {
        if let Some(assessment) = assess(sent, &needs, &accepted, texts) {
            return assessment;
        }
        if refused.contains(&sent) {
            let why = format!(
                "the server sends {}; the client never continued after a response with exactly these fields",
                list_fields(sent)
            );
            return (MessageSupport::Incompatible, FieldNames::new(), why);
        }
        let all = common_fields(accepted.iter().copied());
        let lacking: FieldNames =
            all.iter().flatten().filter(|field| !sent.contains(*field)).cloned().collect();
        let why = match &all {
            Some(_) => format!(
                "the server sends {}; all responses that the client accepted also had {}",
                list_fields(sent),
                list_fields(&lacking)
            ),
            None => "the client's log has no response after which it continued".to_owned(),
        };
        (MessageSupport::Unknown, lacking, why)
    };
    let sent: Vec<&ResponseForm> = server.responses.keys().filter(success).collect();
    // If a server never received a thrid, the log does not show whether it echoes one.
    let alike: Vec<&&ResponseForm> = sent.iter().filter(|form| form.threaded == threaded).collect();
    if alike.is_empty() && !sent.is_empty() {
        let why = match threaded {
            true => "the client sends a thrid, but no request in the server's log has one",
            false => "every request in the server's log has a thrid, which the client does not send",
        };
        return Some((MessageSupport::Unknown, FieldNames::from(["thrid".to_owned()]), why.to_owned()));
    }
    alike.iter().map(|form| weigh(&form.fields)).min_by_key(|weighed| weighed.0)
}

/// Compares the forms in which the server reports a miss (a get or lookup that finds nothing) with the forms that the client has received.
fn misses(client: &CommandExchanges, server: &CommandExchanges) -> Option<RowAssessment> {
    if !server.responses.keys().any(finds) && !client.responses.keys().any(finds) {
        return None;
    }
    let forms = |exchanges: &CommandExchanges| -> BTreeSet<ResponseOutcome> {
        exchanges
            .responses
            .keys()
            .map(|form| form.outcome)
            .filter(|o| *o != ResponseOutcome::Success)
            .collect()
    };
    let (received, sent) = (forms(client), forms(server));
    let other: Vec<&str> = sent
        .difference(&received)
        .map(|outcome| match outcome {
            ResponseOutcome::Miss => "a flag and rc=0",
            _ => "an rc that is not 0",
        })
        .collect();
    match &other[..] {
        _ if sent.is_empty() => None,
        [] => Some((
            MessageSupport::Compatible,
            FieldNames::new(),
            "the client received a miss in the form that the server sends".to_owned(),
        )),
        other => {
            let why = format!(
                "the server reports a miss with {}, a form that the client never received",
                other.join(" or ")
            );
            Some((MessageSupport::Unknown, FieldNames::new(), why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{P, events, numbered, started};

    /// The requests of a session with their responses, and the exit status of the process if it exits.
    type TestSession<'a> = (&'a [(&'a str, &'a str)], Option<i32>);

    /// Returns the observations of sessions whose environment contains the id of the job.
    fn seen(sessions: &[TestSession<'_>]) -> Observations {
        seen_where(true, sessions)
    }

    /// Returns the observations of sessions. `has_job_id` is true if the environment contains the id of the job.
    fn seen_where(has_job_id: bool, sessions: &[TestSession<'_>]) -> Observations {
        let env: &[(&str, &str)] = if has_job_id { &[("PMI_JOBID", "1")] } else { &[] };
        let mut observations = Observations::default();
        for (exchanges, status) in sessions {
            let mut lines = vec![
                "0 > cmd=init pmi_version=2 pmi_subversion=0".to_owned(),
                "0 < cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0".to_owned(),
            ];
            for (request, answer) in *exchanges {
                let answer = if answer.is_empty() { "0 closed".to_owned() } else { format!("0 << {answer}") };
                lines.extend([format!("0 >> {request}"), answer]);
            }
            lines.extend(status.map(|status| format!("0 exits {status}")));
            observations.read(&numbered([started(P, env)].into_iter().chain(events(&lines))));
        }
        observations
    }

    fn row(
        client: &Observations,
        server: &Observations,
        command: &str,
        sender: Sender,
    ) -> (MessageSupport, Vec<String>) {
        let compatibility = Compatibility::of(client, server);
        let mut fitting =
            compatibility.rows.iter().filter(|row| row.command == command && row.sender == sender);
        let found = fitting.next().unwrap_or_else(|| panic!("{command}: {compatibility:?}"));
        (found.support, found.fields.clone())
    }

    // Messages recorded from real implementations: libpmi2, Hydra before and after 4.1, Slurm, and MPICH's client from 4.1 on.
    const LIBPMI2: &str = "cmd=fullinit;pmijobid=1;pmirank=0;threaded=FALSE;";
    const MPICH: &str = "cmd=fullinit;pmirank=0;";
    const HYDRA_4_0: &str = "cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=0;size=1;appnum=0;debugged=FALSE;pmiverbose=FALSE;rc=0;";
    const HYDRA_4_1: &str = "cmd=fullinit-response;rc=0;rank=0;size=1;appnum=0;pmiverbose=0;";
    const DONE: (&str, &str) = ("cmd=finalize;", "cmd=finalize-response;rc=0;");

    #[test]
    fn response_without_a_required_field_is_incompatible() {
        let works: &[(&str, &str)] = &[(LIBPMI2, HYDRA_4_0), DONE];
        // The client continues without `debugged`, so it does not require that field.
        let shorter = HYDRA_4_0.replace("debugged=FALSE;", "");
        let without: &[(&str, &str)] = &[(LIBPMI2, &shorter), DONE];
        let fails: &[(&str, &str)] = &[(LIBPMI2, HYDRA_4_1)];
        let hydra = seen(&[(&[(MPICH, HYDRA_4_1), DONE], None)]);
        let version = vec!["pmi-subversion".to_owned(), "pmi-version".to_owned()];
        let answer = |client: &Observations| row(client, &hydra, "fullinit", Sender::Server);
        let judged = seen(&[(works, Some(0)), (without, Some(0)), (fails, Some(3))]);
        assert_eq!(answer(&judged), (MessageSupport::Incompatible, version.clone()));
        // A recording of successful sessions shows only which fields were present.
        let recorded = seen(&[(works, Some(0)), (without, Some(0))]);
        assert_eq!(answer(&recorded), (MessageSupport::Unknown, version));
        // A client that accepts a response with fewer fields also accepts a response with more fields.
        let accepts_both = seen(&[(fails, None), (&[(MPICH, HYDRA_4_1), DONE], Some(0))]);
        assert_eq!(answer(&accepts_both).0, MessageSupport::Compatible);
        assert_eq!(row(&accepts_both, &judged, "fullinit", Sender::Server).0, MessageSupport::Compatible);
    }

    #[test]
    fn request_without_a_required_field_is_incompatible() {
        let refused = |request: &str, answer: &str| {
            seen(&[(&[(LIBPMI2, HYDRA_4_0), DONE], None), (&[(request, answer)], None)])
        };
        let mpich = seen(&[(&[(MPICH, HYDRA_4_1), DONE], Some(0))]);
        for answer in ["cmd=fullinit-response;rc=1;", ""] {
            let slurm = refused("cmd=fullinit;pmirank=0;threaded=FALSE;", answer);
            let fullinit = row(&mpich, &slurm, "fullinit", Sender::Client);
            assert_eq!(fullinit, (MessageSupport::Incompatible, vec!["pmijobid".to_owned()]));
            let libpmi2 = seen(&[(&[(LIBPMI2, HYDRA_4_0), DONE], Some(0))]);
            assert_eq!(row(&libpmi2, &slurm, "fullinit", Sender::Client).0, MessageSupport::Compatible);
        }
        // If the client's environment contained no job id, the result is unknown.
        let slurm = refused("cmd=fullinit;pmirank=0;threaded=FALSE;", "");
        let without_job_id =
            seen_where(false, &[(&[("cmd=fullinit;pmirank=0;threaded=FALSE;", HYDRA_4_0), DONE], Some(0))]);
        assert_eq!(
            row(&without_job_id, &slurm, "fullinit", Sender::Client),
            (MessageSupport::Unknown, vec!["pmijobid".to_owned()])
        );
        // The server refused no request, so it may or may not require these fields.
        let slurm = seen(&[(&[(LIBPMI2, HYDRA_4_0), DONE], None)]);
        let lacking = vec!["pmijobid".to_owned(), "threaded".to_owned()];
        assert_eq!(row(&mpich, &slurm, "fullinit", Sender::Client), (MessageSupport::Unknown, lacking));
    }

    #[test]
    fn compatibility_of_a_new_response_form_is_unknown() {
        let look = "cmd=name-lookup;name=n;";
        let client = |answer| seen(&[(&[(LIBPMI2, HYDRA_4_0), (look, answer), DONE], Some(0))]);
        let server = |answer| seen(&[(&[(LIBPMI2, HYDRA_4_0), (look, answer)], None)]);
        let (port, value) =
            ("cmd=name-lookup-response;rc=0;port=p;", "cmd=name-lookup-response;rc=0;value=p;");
        let answer =
            |client: &Observations, server: &Observations| row(client, server, "name-lookup", Sender::Server);
        assert_eq!(
            answer(&client(value), &server(port)),
            (MessageSupport::Unknown, vec!["value".to_owned()])
        );
        assert_eq!(answer(&client(value), &server(value)).0, MessageSupport::Compatible);
        let get = "cmd=kvs-get;thrid=7;key=k;";
        let echoed = "cmd=kvs-get-response;thrid=7;rc=0;found=TRUE;value=v;";
        let plain = "cmd=kvs-get-response;rc=0;found=TRUE;value=v;";
        let client = seen(&[(&[(LIBPMI2, HYDRA_4_0), (get, echoed), DONE], Some(0))]);
        let slurm = seen(&[(&[(LIBPMI2, HYDRA_4_0), (get, plain)], None)]);
        assert_eq!(
            row(&client, &slurm, "kvs-get", Sender::Server),
            (MessageSupport::Unknown, vec!["thrid".to_owned()])
        );
        let (by_rc, by_flag) = ("cmd=kvs-get-response;rc=1;", "cmd=kvs-get-response;found=FALSE;rc=0;");
        let misses = |server: &[(&str, &str)]| {
            let client = seen(&[(&[(LIBPMI2, HYDRA_4_0), (get, echoed), (get, by_flag), DONE], Some(0))]);
            let compatibility = Compatibility::of(&client, &seen(&[(server, None)]));
            let is_miss_row = |row: &&MessageRow| row.command == "kvs-get" && row.reason.contains("a miss");
            compatibility.rows.iter().find(is_miss_row).map(|row| row.support)
        };
        assert_eq!(
            misses(&[(LIBPMI2, HYDRA_4_0), (get, echoed), (get, by_rc)]),
            Some(MessageSupport::Unknown)
        );
        assert_eq!(
            misses(&[(LIBPMI2, HYDRA_4_0), (get, echoed), (get, by_flag)]),
            Some(MessageSupport::Compatible)
        );
    }

    /// Returns the observations of PMI-1 sessions.
    fn seen_lines(sessions: &[&[&str]]) -> Observations {
        let mut observations = Observations::default();
        sessions.iter().for_each(|session| observations.read(&numbered(events(session))));
        observations
    }

    #[test]
    fn stray_response_does_not_affect_compatibility() {
        // The client gives up twice: after a stray response instead of a get_result, and after one instead of a barrier_out.
        let client = seen_lines(&[
            &[
                "0 > cmd=barrier_in",
                "0 < cmd=barrier_out rc=0",
                "0 > cmd=get kvsname=k key=a",
                "0 < cmd=get_result rc=0 value=v",
                "0 > cmd=finalize",
                "0 < cmd=finalize_ack rc=0",
                "0 exits 0",
            ],
            &[
                "0 > cmd=get kvsname=k key=a",
                "0 < cmd=maxes kvsname_max=1 keylen_max=1 vallen_max=1",
                "0 exits 1",
            ],
            &["0 > cmd=barrier_in", "0 < cmd=appnum appnum=1", "0 exits 1"],
        ]);
        // The server answers the get, which was sent later, before the barrier_in.
        let server = seen_lines(&[&[
            "0 > cmd=barrier_in",
            "0 > cmd=get kvsname=k key=a",
            "0 < cmd=get_result rc=0 value=v",
            "0 < cmd=barrier_out",
        ]]);
        let compatibility = Compatibility::of(&client, &server);
        assert_eq!(compatibility.count(MessageSupport::Incompatible), 0, "{compatibility:?}");
        assert_eq!(row(&client, &server, "get", Sender::Server).0, MessageSupport::Compatible);
        assert_eq!(row(&client, &server, "barrier_in", Sender::Server).0, MessageSupport::Unknown);
    }

    #[test]
    fn close_makes_response_compatibility_unknown() {
        let client = seen_lines(&[
            &[
                "0 > cmd=barrier_in",
                "0 < cmd=barrier_out rc=0",
                "0 > cmd=finalize",
                "0 < cmd=finalize_ack rc=0",
                "0 exits 0",
            ],
            &["0 > cmd=barrier_in", "0 < cmd=barrier_out", "0 closed", "0 exits 1"],
        ]);
        let server = seen_lines(&[&["0 > cmd=barrier_in", "0 < cmd=barrier_out"]]);
        assert_eq!(row(&client, &server, "barrier_in", Sender::Server).0, MessageSupport::Unknown);
        let gives_up = seen_lines(&[
            &[
                "0 > cmd=barrier_in",
                "0 < cmd=barrier_out rc=0",
                "0 > cmd=finalize",
                "0 < cmd=finalize_ack rc=0",
                "0 exits 0",
            ],
            &["0 > cmd=barrier_in", "0 < cmd=barrier_out", "0 exits 1"],
        ]);
        assert_eq!(row(&gives_up, &server, "barrier_in", Sender::Server).0, MessageSupport::Incompatible);
    }

    #[test]
    fn compatibility_of_an_unsent_request_is_unknown() {
        let client = seen(&[(
            &[(LIBPMI2, HYDRA_4_0), ("cmd=ring;count=1;left=a;right=b;", "cmd=ring-response;rc=0;"), DONE],
            Some(0),
        )]);
        let server = seen(&[(&[(LIBPMI2, HYDRA_4_0), DONE], None)]);
        assert_eq!(row(&client, &server, "ring", Sender::Client).0, MessageSupport::Unknown);
        assert_eq!(row(&client, &server, "init", Sender::Client).0, MessageSupport::Compatible);
        assert_eq!(row(&client, &server, "finalize", Sender::Server).0, MessageSupport::Compatible);
        assert_eq!(Compatibility::of(&client, &server).count(MessageSupport::Incompatible), 0);
    }
}
