//! `suite coverage --inputs`: the operations that scenarios perform, by state, kind of argument, and product (a scenario that is played
//! once for each row of a table).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

use pmi_judge::connections::Connections;
use pmi_judge::event::Event;
use pmi_judge::verdict::{RunHeader, ScenarioResult};
use pmi_runner::run::Observer;
use pmi_scenario::ImplementationKind;
use pmi_scenario::ast::{Dialect, Scenario};
use pmi_scenario::names::NamePattern;
use pmi_scenario::suite::Suite;
use pmi_wire::grammar::Rule;
use pmi_wire::protocol::{self, Direction, Exchange, Field, Framing};
use pmi_wire::{Decoded, Proc, ResponseOutcome};

/// The states of the requesting process that scenarios must cover. A process is in the state `repeated` once it has requested the
/// same operation [`MIN_REPEATED_REQUESTS`] times. After [`MIN_THOUSANDS`] times, it is also in the state `repeated-beyond-1024`,
/// because some implementations have tables of 1024 entries.
const STATES: [&str; 8] = [
    "before-init",
    "joined",
    "after-refusal",
    "others-wait",
    "finalized",
    "spawned",
    "repeated",
    "repeated-beyond-1024",
];
const MIN_REPEATED_REQUESTS: u32 = 200;
const MIN_THOUSANDS: u32 = 1025;
/// Minimum length of a value that counts as long, in bytes.
const MIN_LONG_VALUE: usize = 200;

/// Cells that may be empty. Each entry contains the party and dialect, the operation, the column, and the reason; `*` matches any text.
const ALLOWED_EMPTY_CELLS: &[(&str, &str, &str, &str)] = &[
    ("server *", "*connect", "*", "no known server supports it"),
    ("server *", "ring", "*", "only Slurm supports it"),
    ("server *", "init", "repeated*", "the server may close the connection at the second request"),
    ("server *", "finalize", "repeated*", "the server may close the connection at the second request"),
    ("server *", "spawn", "repeated*", "each request starts a process"),
    ("server *", "abort", "repeated*", "the first request ends the job"),
    ("server *", "abort", "two-halves-interleaved", "`abort/in-pieces[interleaved]` plays it"),
    ("server *", "abort", "near-miss", "a server may also close the connection at an unknown command"),
    ("server *", "appnum", "repeated-beyond-1024", "the server stores nothing for these requests"),
    ("server *", "universe", "repeated-beyond-1024", "the server stores nothing for these requests"),
    ("server *", "maxes", "repeated-beyond-1024", "the server stores nothing for these requests"),
    ("server *", "kvsname", "repeated-beyond-1024", "the server stores nothing for these requests"),
    ("server *", "get-job-attribute", "repeated-beyond-1024", "the server stores nothing for these requests"),
    ("server *", "unpublish", "repeated-beyond-1024", "the server stores nothing for these requests"),
    ("server *", "init", "two-halves-interleaved", "`wire/first-and-last-in-halves` plays it"),
    ("server *", "finalize", "two-halves-interleaved", "`wire/first-and-last-in-halves` plays it"),
    ("server *", "*publish", "two-halves-interleaved", "`names/found[in-halves]` plays it"),
    ("server *", "lookup", "two-halves-interleaved", "`names/found[in-halves]` plays it"),
    ("server PMI-1", "spawn", "two-halves-interleaved", "`spawn/others[two-at-once]` plays it"),
    (
        "server PMI-2",
        "spawn",
        "two-halves-interleaved",
        "the agent's path contains the number of the group, so each frame with this path is sent alone",
    ),
    ("server PMI-1", "spawn", "near-miss", "`errors/bad-lines[mcmd-*]` plays it"),
    ("server PMI-1", "barrier", "group:*", "PMI-1.2 only; `pmi12` covers its forms"),
    ("server PMI-1", "spawn", "execname:*", "the program is the agent, whose path is fixed"),
    ("server PMI-1", "spawn", "nprocs:huge", "a server may start this number of processes"),
    (
        "server PMI-1",
        "spawn",
        "*:*",
        "`spawn/nprocs-odd`, `spawn/counts-*` and `spawn/odd-strings` play it, but the reference server closes the \
         connection at the first malformed request",
    ),
    ("server PMI-1", "put", "value:twice", "a value extends to the end of the line"),
    (
        "server PMI-1",
        "*",
        "*:empty",
        "the grammar requires a character; scenarios about keys and names test an empty value",
    ),
    (
        "server PMI-1",
        "*",
        "*:twice",
        "RFC 13 does not define repeated fields; scenarios about keys and names repeat a field",
    ),
    ("server PMI-2", "init", "auth*", "only the draft defines it, and no known server authenticates"),
    (
        "server PMI-2",
        "spawn",
        "nprocs:*",
        "such a value requests all available processors, whose number depends on the machine",
    ),
    ("* PMI-*", "*", "replies/numbers", "the response has no number"),
    ("* PMI-*", "*", "replies/texts", "the response has no text"),
    ("* PMI-*", "*", "replies/values", "the response has no value"),
    ("* PMI-*", "*", "replies/found", "the response has no flag"),
    ("library PMI-1", "put", "*", "a library may buffer puts until a commit"),
    ("library *", "ring", "*", "a library may lack PMIX_Ring"),
    (
        "library *",
        "*",
        "replies/reasons",
        "tested for `get` and names; a library reads the message in the same way for all operations",
    ),
    (
        "client *",
        "*",
        "replies/reasons",
        "tested for `get`; a program reads the message in the same way for all operations",
    ),
    (
        "client *",
        "*",
        "replies/more*",
        "tested by the other files `replies/more*`, depending on how much the program has read",
    ),
    ("client *", "finalize", "closed/at", "`closed/at-finalize` plays it"),
    ("client *", "finalize", "refused/at", "`refused/finalize` plays it"),
    ("client *", "finalize", "odd/*", "`odd/finalize` plays it"),
    (
        "client *",
        "finalize",
        "*",
        "tested by `replies/finalize-*`, because a program may ignore the last response",
    ),
    ("client PMI-1", "spawn", "closed/at", "`dynamic/spawn-closed` plays it"),
    (
        "client PMI-1",
        "spawn",
        "replies/rc",
        "`dynamic/spawn-values` plays an rc of a failure; after a success, the program waits for the spawned processes",
    ),
    ("client PMI-2", "spawn", "replies/*", "`replies/spawn-odd` plays it"),
    ("client PMI-2", "put-node-attribute", "replies/*", "`replies/putnodeattr-odd` plays it"),
    (
        "client PMI-2",
        "ring",
        "replies/*",
        "few programs call PMIX_Ring; `odd/body` and `odd/frame` play answers to it",
    ),
    ("client *", "put", "replies/rc", "`replies/put-rc` plays it"),
    ("client PMI-2", "*", "replies/odd", "the response has values, which `replies/values` tests"),
    ("client PMI-2", "*", "replies/wrong", "the response has no value; `replies/odd` tests it"),
];

/// Returns the entries of [`ALLOWED_EMPTY_CELLS`] for a party and a dialect: the operation, the column and the reason.
fn empty_cell_reasons(side: &str) -> Vec<(NamePattern, NamePattern, &'static str)> {
    let entries = ALLOWED_EMPTY_CELLS.iter().filter(|(of, ..)| NamePattern::new(of).matches(side));
    entries.map(|(_, name, part, why)| (NamePattern::new(name), NamePattern::new(part), *why)).collect()
}

type RequestTuples = Vec<(String, Vec<u8>)>;
type PartyAndDialect = (ImplementationKind, Dialect);

/// The operations that scenarios perform and the columns that they cover, by kind of implementation and dialect.
#[derive(Default)]
pub(super) struct InputCoverage {
    played: BTreeMap<PartyAndDialect, BTreeMap<&'static str, BTreeSet<String>>>,
    sessions: HashMap<String, ScriptedSession>,
}

/// The state of the processes while a server scenario is being played.
#[derive(Default)]
struct ScriptedSession {
    connections: Connections,
    processes: HashMap<Proc, ScriptedProcess>,
}

#[derive(Default)]
struct ScriptedProcess {
    is_joined: bool,
    is_finalized: bool,
    is_refused: bool,
    waits: bool,
    times: HashMap<&'static str, u32>,
    /// The tuples of an incomplete PMI-1 spawn request that have been received so far.
    block: Option<RequestTuples>,
}

impl Observer for InputCoverage {
    fn begin(&mut self, _: &RunHeader) {}

    fn event(&mut self, scenario: &str, event: &Event) {
        let Some((proc, ..)) = event.kind.message_bytes() else { return };
        let session = self.sessions.entry(scenario.to_owned()).or_default();
        for arrival in session.connections.read(event) {
            let Ok(message) = arrival.decode() else { continue };
            // The line that offers PMI-2 is a PMI-1 request, so it is skipped.
            if scenario.starts_with("pmi2/") && message.framing == Framing::Lines {
                continue;
            }
            if let Some((exchange, tuples)) = session.request(proc, &message) {
                let columns = session.columns(proc, exchange, &tuples);
                let played = self
                    .played
                    .entry((ImplementationKind::Server, Dialect::of(message.framing)))
                    .or_default();
                played.entry(exchange.operation).or_default().extend(columns);
            }
        }
    }

    fn result(&mut self, result: &ScenarioResult) {
        self.sessions.remove(&result.scenario);
    }
}

impl ScriptedSession {
    /// Reads a message. Returns the exchange and the tuples of the request that the message completes, or `None` if it does not complete a
    /// request.
    fn request(&mut self, proc: Proc, message: &Decoded<'_>) -> Option<(&'static Exchange, RequestTuples)> {
        let process = self.processes.entry(proc).or_default();
        if message.direction == Direction::FromServer {
            process.waits = false;
            process.is_refused =
                matches!(message.outcome(), Some(ResponseOutcome::Failure | ResponseOutcome::Miss));
            return None;
        }
        let tuples =
            message.tuples().map(|t| (String::from_utf8_lossy(t.key).into_owned(), t.value.to_vec()));
        match message.text {
            b"mcmd=spawn" => process.block = Some(Vec::new()),
            b"endcmd" => {
                return Some((protocol::by_request(Framing::Lines, b"spawn")?, process.block.take()?));
            }
            _ => match &mut process.block {
                Some(block) => block.extend(tuples),
                None => return Some((message.exchange()?, tuples.collect())),
            },
        }
        None
    }

    /// Returns the columns that a request covers, and updates the state of its process.
    fn columns(
        &mut self,
        proc: Proc,
        exchange: &'static Exchange,
        tuples: &[(String, Vec<u8>)],
    ) -> Vec<String> {
        let others_wait = self.processes.iter().any(|(other, process)| *other != proc && process.waits);
        let process = self.processes.entry(proc).or_default();
        let times = process.times.entry(exchange.operation).or_default();
        *times += 1;
        let is_in = [
            !process.is_joined,
            process.is_joined && !process.is_finalized,
            process.is_refused,
            others_wait,
            process.is_finalized,
            proc.group > 0,
            *times >= MIN_REPEATED_REQUESTS,
            *times >= MIN_THOUSANDS,
        ];
        process.is_joined |= exchange.operation == "init";
        process.is_finalized |= exchange.operation == "finalize";
        process.waits = true;
        let states = STATES.into_iter().zip(is_in).filter(|(_, is_in)| *is_in);
        let mut columns: Vec<_> = states.map(|(state, _)| state.to_owned()).collect();
        for field in exchange.arguments {
            let values: Vec<&[u8]> = tuples
                .iter()
                .filter(|(key, _)| field.matches_key(key))
                .map(|(_, value)| &value[..])
                .collect();
            let kinds = kinds(field).iter().filter(|(_, fits)| fits(&values));
            columns.extend(kinds.map(|(kind, _)| column_of(field, kind)));
        }
        columns
    }
}

/// Returns the name of the column for a kind of value in a field.
fn column_of(field: &Field, kind: &str) -> String {
    format!("{}:{kind}", field.name)
}

type ValueClass = (&'static str, fn(&[&[u8]]) -> bool);

/// Returns the kinds of values that a field may have, according to its rule.
fn kinds(field: &Field) -> &'static [ValueClass] {
    const TEXT: [ValueClass; 5] = [
        ("missing", |values| values.is_empty()),
        ("twice", |values| values.len() > 1),
        ("empty", |values| values.contains(&&b""[..])),
        ("long", |values| values.iter().any(|value| value.len() >= MIN_LONG_VALUE)),
        ("odd", |values| values.iter().any(|v| v.iter().any(|b| b"=;\\\"'\t ".contains(b) || !b.is_ascii()))),
    ];
    const NUMBER: [ValueClass; 5] = [
        TEXT[0],
        ("zero", |values| values.contains(&&b"0"[..])),
        ("negative", |values| values.iter().any(|value| value.starts_with(b"-"))),
        ("huge", |values| values.iter().any(|v| v.len() > 9 && v.iter().all(u8::is_ascii_digit))),
        ("no-number", |values| values.iter().any(|v| !v.iter().all(|b| b.is_ascii_digit() || *b == b'-'))),
    ];
    match field.rule {
        Rule::Uint | Rule::Int => &NUMBER,
        Rule::Bool | Rule::IntList => &TEXT[..3],
        Rule::Word | Rule::String | Rule::Visible => &TEXT,
    }
}

impl InputCoverage {
    /// Adds the products of the suite: scenarios that are played once for each row of a table. The name of each row begins with the name
    /// of an operation.
    pub(super) fn add_products(&mut self, suite: &Suite) {
        for scenario in &suite.scenarios {
            let is_product = scenario.source.text.lines().any(|line| line.starts_with("each "));
            let (file, Some(row)) = Scenario::split_row(&scenario.name) else { continue };
            if !is_product {
                continue;
            }
            let name = row.split('.').next().unwrap_or_default();
            if let Some(exchange) = protocol::by_operation(scenario.dialect.framing(), name) {
                let column = file.trim_start_matches("pmi2/").split_once('/').unwrap_or_default().1;
                let played = self.played.entry((scenario.tests, scenario.dialect)).or_default();
                played.entry(exchange.operation).or_default().insert(column.to_owned());
            }
        }
    }

    /// Writes each operation with its covered columns. Each empty cell follows on a separate line, with the reason why it may be empty.
    /// Returns the number of unexplained empty cells.
    pub(super) fn table(&self, text: &mut String) -> Result<usize, std::fmt::Error> {
        let mut open = 0;
        for ((tests, dialect), played) in &self.played {
            let side = format!("{} {}", format!("{tests:?}").to_lowercase(), dialect.title());
            writeln!(text, "== {side}\n")?;
            let mut operations: BTreeMap<&str, Vec<&Field>> = BTreeMap::new();
            let documented = protocol::documented_exchanges(dialect.framing()).iter();
            // Programs and libraries are tested with responses, which an abort does not have.
            let is_tested = |e: &&Exchange| *tests == ImplementationKind::Server || e.response.is_some();
            for exchange in documented.filter(|e| e.omission().is_none()).filter(is_tested) {
                operations.entry(exchange.operation).or_default().extend(exchange.arguments);
            }
            let reasons = empty_cell_reasons(&side);
            let products: BTreeSet<&String> = played.values().flatten().collect();
            for (operation, fields) in operations {
                let of_fields =
                    fields.iter().flat_map(|f| kinds(f).iter().map(|(kind, _)| column_of(f, kind)));
                let columns: BTreeSet<String> = match tests {
                    ImplementationKind::Server => {
                        let products = products.iter().filter(|column| !column.contains(':'));
                        let others = products.map(|column| (*column).clone());
                        STATES.into_iter().map(str::to_owned).chain(of_fields).chain(others).collect()
                    }
                    _ => products.iter().map(|column| (*column).clone()).collect(),
                };
                let (full, empty): (Vec<_>, Vec<_>) = columns
                    .into_iter()
                    .partition(|column| played.get(operation).is_some_and(|all| all.contains(column)));
                writeln!(text, "{operation}: {}", full.join(" "))?;
                for column in empty {
                    let reason = reasons
                        .iter()
                        .find(|(name, part, _)| name.matches(operation) && part.matches(&column));
                    open += usize::from(reason.is_none());
                    writeln!(text, "    {column}: {}", reason.map_or("EMPTY", |(.., reason)| reason))?;
                }
            }
            writeln!(text)?;
        }
        Ok(open)
    }
}
