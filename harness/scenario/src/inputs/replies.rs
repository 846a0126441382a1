//! What a client or a library is told: which replies a scenario has a server make, and to what.

use std::collections::{BTreeMap, BTreeSet};

use pmi_wire::{Framing, Operation as WireOperation, Proc, protocol};

use super::axes::{self, Inputs, Operation};
use super::classify::{self, Classified};
use super::stream::{Form, Stream, WrittenMessage};
use super::walk::{self, Played, Reader, Walk};
use crate::UnderTest;
use crate::ast::{
    Action, Arg, Call, Dialect, Kind, Piece, ProcessAction, Role, Scenario, Setting, Step, Template,
};
use crate::scope::Scope;
use crate::suite::Suite;

/// The server that is nothing but the reference, as the table calls it.
const REFERENCE: &str = "reference";
/// What the table calls the reply to abort, which has no command.
const ABORT: &str = "abort-answer";
/// The answer to the offer of a version, a line in every protocol.
const OFFER_ANSWER: &str = "response_to_init";
/// What the table calls the variables that a process finds.
const ENVIRONMENT: &str = "environment";
/// From this length on a line is long.
const LONG: usize = 10_000;

/// The calls that start processes, and which of their arguments says how many.
const SPAWNS: &[(&str, usize)] = &[("PMI_Spawn_multiple", 3), ("PMI2_Job_Spawn", 4)];

/// The cells that the words of a scenario for clients or libraries play.
pub(super) fn played(scenario: &Scenario, suite: &Suite, inputs: &Inputs) -> Vec<Played> {
    let library = scenario.tests == UnderTest::Library;
    let mut replies = Replies { library, ..Replies::default() };
    let mut played = walk::play(scenario, suite, inputs, &mut replies);
    for (setting, number) in &scenario.serving.settings {
        let (reply, key, value) = match setting.value {
            Setting::KvsnameMax => ("maxes", "kvsname_max", number.to_string().into_bytes()),
            Setting::KeylenMax => ("maxes", "keylen_max", number.to_string().into_bytes()),
            Setting::VallenMax => ("maxes", "vallen_max", number.to_string().into_bytes()),
            Setting::KvsnameLength => ("my_kvsname", "kvsname", vec![b'n'; *number as usize]),
            Setting::Delay | Setting::FirstWrite => continue,
        };
        let kinds =
            inputs.operation(reply).map(|o| classify::named(&[(key.to_owned(), Some(value))], o, inputs));
        let cells = kinds.into_iter().flatten().map(|(key, kind)| format!("{reply}.{key}/kind/{kind}"));
        played.extend(cells.map(|cell| Played { cell, sure: true }));
    }
    played
}

/// The names by which the table knows what the server of a scenario for clients is, and whether a program that does right meets all
/// of what it says: a fault may end it at the first reply.
pub(super) fn servers(scenario: &Scenario) -> Vec<(&str, bool)> {
    if scenario.tests != UnderTest::Client {
        return Vec::new();
    }
    let serving = &scenario.serving;
    let mut servers: Vec<_> = serving.variations.iter().map(|name| (name.value.as_str(), true)).collect();
    servers.extend(serving.fault.iter().map(|name| (name.value.as_str(), false)));
    let says = |step: &Step| step.role == Role::Server;
    if servers.is_empty() && !crate::visit::steps(&scenario.body).any(says) {
        servers.push((REFERENCE, true));
    }
    servers
}

/// What stands in a scenario for one process.
#[derive(Debug, Default)]
struct Process {
    stream: Stream,
    /// The reply that its last `C:` step wants, if it names a request.
    wanted: Option<&'static str>,
    /// How many replies have come since.
    replies: u32,
    environment: Vec<(String, Option<Vec<u8>>)>,
    /// How often it calls what each reply is there for.
    calls: BTreeMap<&'static str, u32>,
    /// How many processes the spawn asks for that has been called, while it has not returned.
    spawning: Option<usize>,
    /// How many error codes the reply to the next spawn has.
    errcodes: Option<usize>,
}

#[derive(Debug, Default)]
struct Replies {
    library: bool,
    processes: BTreeMap<Proc, Process>,
}

impl Reader for Replies {
    fn step(&mut self, walk: &mut Walk<'_>, p: Proc, step: &Step) {
        let process = self.processes.entry(p).or_default();
        match (step.role, &step.action) {
            (Role::Client, Action::Message { lines, .. }) => {
                process.asks(&walk.scope, walk.inputs.dialect, lines)
            }
            (Role::Client, Action::OneOf(alternatives)) => {
                for alternative in alternatives {
                    if let Action::Message { lines, .. } = &alternative.action {
                        process.asks(&walk.scope, walk.inputs.dialect, lines);
                    }
                }
            }
            (Role::Server, action) => process.is_told(walk, action),
            (Role::Process, Action::Process(ProcessAction::Env(name, value))) => {
                let absent = value.pieces == [Piece::Typed(Kind::Absent)];
                let value = (!absent).then(|| walk.scope.text(value).unwrap_or_default());
                process.environment.push((name.value.clone(), value));
                if let Some(operation) = walk.inputs.operation(ENVIRONMENT) {
                    let kinds = classify::named(&process.environment, operation, walk.inputs);
                    walk.plays(
                        kinds.into_iter().map(|(name, kind)| format!("environment.{name}/kind/{kind}")),
                        true,
                    );
                }
            }
            (Role::Api, Action::Call(call)) if self.library => process.calls(walk, call),
            _ => {}
        }
    }
}

/// The reply to a request that begins like this.
fn reply_to(dialect: Dialect, message: &str) -> Option<&'static str> {
    let (key, rest) = message.split_once('=')?;
    let cmd = rest.split([' ', ';']).next()?.as_bytes();
    let known = || protocol::documented(dialect.framing()).iter().chain([WireOperation::Init.exchange()]);
    let exchange =
        known().find(|exchange| exchange.request.as_bytes() == cmd && matches!(key, "cmd" | "mcmd"))?;
    Some(exchange.response.unwrap_or(ABORT))
}

/// The reply that a call of a library is there for.
fn reply_of(function: &str) -> Option<&'static str> {
    let framings = [Framing::Lines, Framing::Frames];
    let exchange = framings
        .into_iter()
        .flat_map(protocol::documented)
        .find(|exchange| exchange.functions.contains(&function))?;
    Some(exchange.response.unwrap_or(ABORT))
}

impl Process {
    fn asks(&mut self, scope: &Scope, dialect: Dialect, lines: &[Template]) {
        // What else a request must have is for matchers, which have no text.
        let first = lines.first().and_then(|line| {
            let fields = line.message_fields();
            let field = fields.into_iter().find(|field| matches!(field.key.as_str(), "cmd" | "mcmd"))?;
            let value = scope.text(&field.value).ok()?;
            Some(format!("{}={}", field.key, String::from_utf8_lossy(&value)))
        });
        self.wanted = first.and_then(|first| reply_to(dialect, &first));
        self.replies = 0;
        self.stream = Stream::default();
    }

    fn is_told(&mut self, walk: &mut Walk<'_>, action: &Action) {
        let dialect = walk.inputs.dialect;
        match action {
            Action::Message { mode, lines } => {
                for write in walk.scope.message(*mode, lines).unwrap_or_default() {
                    let whole = self.stream.write(dialect, *mode, &write);
                    let several = whole.len() > 1;
                    for mut message in whole {
                        message.framing.extend(several.then_some("several"));
                        self.message(walk, message);
                    }
                }
            }
            Action::Empty => {
                self.message(
                    walk,
                    WrittenMessage { form: Form::Line, text: Vec::new(), framing: Vec::new() },
                );
            }
            Action::Right => self.replies += 1,
            Action::Close => {
                let wanted = self.wanted.filter(|_| self.replies == 0);
                if let Some(wanted) = wanted {
                    let how = match self.stream.cut_off(dialect) {
                        Some("unfinished") => "framing/unfinished".to_owned(),
                        Some(cut) => format!("instead/{cut}"),
                        None => "instead/closed".to_owned(),
                    };
                    walk.plays([format!("{wanted}/{how}")], true);
                    // Whoever reads cannot know which of the two it was until the end comes.
                    if self.stream.is_too_long() && dialect == Dialect::Pmi2 {
                        walk.plays([format!("{wanted}/instead/length-long")], true);
                    }
                }
                self.stream = Stream::default();
            }
            Action::Silence => {
                if let Some(wanted) = self.wanted {
                    walk.plays([format!("{wanted}/instead/never")], true);
                }
            }
            _ => {}
        }
    }

    /// A message that comes for what its last `C:` step names, or for nothing.
    fn message(&mut self, walk: &mut Walk<'_>, message: WrittenMessage) {
        let WrittenMessage { form, text: whole, framing } = message;
        let dialect = walk.inputs.dialect;
        let cr = form == Form::Line && whole.ends_with(b"\r");
        let text = whole.strip_suffix(b"\r").filter(|_| cr).unwrap_or(&whole);
        let reply = match form {
            // Behind the first exchange, PMI-2 has no lines.
            Form::Line if dialect == Dialect::Pmi2 && self.wanted != Some(OFFER_ANSWER) => Err("line"),
            Form::Line => classify::line(text, walk.inputs).ok_or("line"),
            Form::Frame => classify::body(text, walk.inputs).and_then(|reply| reply.ok_or("unknown-command")),
            Form::Malformed(word) => Err(word),
        };
        let first = self.replies == 0;
        self.replies += 1;
        let named = match &reply {
            Ok(reply) => Some(reply.operation.clone()),
            Err(_) => (dialect == Dialect::Pmi1 && text.is_empty()).then(|| ABORT.to_owned()),
        };
        let Some(wanted) = self.wanted else {
            walk.plays(named.map(|reply| format!("{reply}/instead/unasked")), true);
            return;
        };
        let is_wanted = named.as_deref() == Some(wanted);
        let mut cells = Vec::new();
        match reply {
            _ if is_wanted && !first => cells.push(format!("{wanted}/instead/twice")),
            _ if !is_wanted && !first => cells.extend(named.map(|reply| format!("{reply}/instead/unasked"))),
            Ok(_) if !is_wanted => cells.push(format!("{wanted}/instead/other-reply")),
            Err(word) if !is_wanted => {
                cells.push(format!("{wanted}/instead/{}", nonsense(dialect, word, text)))
            }
            reply => {
                let mut framing = BTreeSet::from_iter(framing);
                framing.extend(cr.then_some("cr-lf"));
                framing.extend((whole.len() >= LONG).then_some("long"));
                if let Ok(reply) = reply {
                    let operation = walk.inputs.operation(wanted);
                    framing.extend(&reply.framing);
                    cells.extend(
                        reply.kinds.iter().map(|(name, kind)| format!("{wanted}.{name}/kind/{kind}")),
                    );
                    cells.extend(
                        operation.and_then(|o| outcome(&reply, o)).map(|o| format!("{wanted}/outcome/{o}")),
                    );
                    let own = walk.scope.var(walk::KVS).unwrap_or_default();
                    let name = reply.value("kvsname").filter(|name| !name.is_empty() && *name != own);
                    cells.extend(name.map(|name| format!("{}{}", walk::JOB, String::from_utf8_lossy(name))));
                    cells.extend(
                        version(dialect, &reply).map(|version| format!("{wanted}/version/{version}")),
                    );
                    if matches!(wanted, "spawn_result" | "spawn-response") {
                        self.counts(wanted, errcodes(&reply), &mut cells);
                    }
                }
                cells.extend(framing.iter().map(|framing| format!("{wanted}/framing/{framing}")));
            }
        }
        walk.plays(cells, true);
    }

    /// A spawn is answered with so many error codes.
    fn counts(&mut self, reply: &'static str, errcodes: usize, cells: &mut Vec<String>) {
        match self.spawning {
            Some(asked) => cells.push(count(reply, asked, errcodes)),
            None => self.errcodes = Some(errcodes),
        }
        if errcodes == 0 {
            cells.push(format!("{reply}/count/none"));
        }
    }

    fn calls(&mut self, walk: &mut Walk<'_>, call: &Call) {
        if let Some(function) = &call.function {
            if let Some(reply) = reply_of(&function.value) {
                let number = self.calls.entry(reply).or_default();
                *number += 1;
                let words = walk.inputs.times().iter().filter(|(_, from)| **from <= *number);
                let cells: Vec<_> = words.map(|(word, _)| format!("{reply}/times/{word}")).collect();
                walk.plays(cells, true);
            }
            if let Some((name, place)) = SPAWNS.iter().find(|(name, _)| *name == function.value) {
                let reply = reply_of(name).unwrap_or_default();
                let asked = call.args.get(*place).map_or(0, |numbers| match numbers {
                    Arg::Text(text) => {
                        let text = walk.scope.text(text).unwrap_or_default();
                        let numbers = text.split(|b| *b == b'|');
                        numbers.filter_map(|n| std::str::from_utf8(n).ok()?.parse::<usize>().ok()).sum()
                    }
                    _ => 0,
                });
                if let Some(errcodes) = self.errcodes {
                    walk.plays([count(reply, asked, errcodes)], true);
                }
                self.spawning = Some(asked);
            }
        }
        if call.result.is_some() {
            self.spawning = None;
        }
    }
}

/// What a message is that is no reply, and for which the tables have no word of its own.
fn nonsense(dialect: Dialect, word: &'static str, text: &[u8]) -> &'static str {
    let shown = String::from_utf8_lossy(text);
    let keys = || shown.split([' ', '\t']).filter_map(|part| part.split_once('='));
    match dialect {
        _ if reply_to(dialect, &shown).is_some() => "request-back",
        Dialect::Pmi2 if word == "unknown-command" => "garbage",
        Dialect::Pmi2 => word,
        Dialect::Pmi1 if text.is_empty() => "empty-line",
        Dialect::Pmi1
            if !shown.contains("cmd=")
                && keys().any(|(key, _)| protocol::is_response_key(Framing::Lines, key)) =>
        {
            "no-command"
        }
        Dialect::Pmi1 => "garbage",
    }
}

/// What a reply says of how it went.
fn outcome(reply: &Classified, operation: &Operation) -> Option<&'static str> {
    let rc = reply.value("rc");
    let text = rc.map(|rc| String::from_utf8_lossy(rc).into_owned());
    let number = text.as_deref().map(|text| text.trim_start_matches(['+', '-']).parse::<u128>());
    let has_values = reply.values.iter().any(|(name, _)| axes::is_value(name));
    let wants_values = operation.has_values();
    let has_msg = reply.value("msg").or_else(|| reply.value("errmsg")).is_some();
    let not_found = reply.value("found").is_some_and(|found| found.eq_ignore_ascii_case(b"false"));
    Some(match number {
        Some(Err(_)) => return None,
        Some(Ok(0)) if not_found && has_values => "not-found-with-values",
        Some(Ok(0)) if not_found => "not-found",
        Some(Ok(0)) if wants_values && !has_values => "without-values",
        Some(Ok(0)) if has_msg => "with-msg",
        Some(Ok(0)) => "with-rc",
        Some(Ok(_)) if has_values => "refused-with-values",
        Some(Ok(_)) if has_msg => "refused-with-msg",
        Some(Ok(_)) => "refused",
        None if wants_values && !has_values => "nothing-said",
        None => "without-rc",
    })
}

/// How the version that is told compares with the one that is offered, 1.1 or 2.0.
fn version(dialect: Dialect, reply: &Classified) -> Option<&'static str> {
    let number = |names: [&str; 2]| {
        let value = names.iter().find_map(|name| reply.value(name))?;
        std::str::from_utf8(value).ok()?.parse::<u32>().ok()
    };
    let told = (number(["pmi_version", "pmi-version"])?, number(["pmi_subversion", "pmi-subversion"])?);
    let offered = match dialect {
        Dialect::Pmi1 => (1, 1),
        Dialect::Pmi2 => (2, 0),
    };
    Some(match () {
        () if told == offered => "equal",
        () if told.0 < offered.0 => "lower-major",
        () if told.0 > offered.0 => "higher-major",
        () if told.1 < offered.1 => "lower-minor",
        () => "higher-minor",
    })
}

/// How many error codes the reply to a spawn has: in a list, or one by one.
fn errcodes(reply: &Classified) -> usize {
    let listed = reply.value("errcodes").filter(|list| !list.is_empty());
    listed.map_or_else(|| reply.all("errN").count(), |list| list.split(|b| *b == b',').count())
}

fn count(reply: &str, asked: usize, errcodes: usize) -> String {
    let word = match errcodes.cmp(&asked) {
        std::cmp::Ordering::Less => "fewer",
        std::cmp::Ordering::Equal => "as-asked",
        std::cmp::Ordering::Greater => "more",
    };
    format!("{reply}/count/{word}")
}
