//! Writes the steps for the messages of a session. A request is written as it was sent. A response is replaced by the response that every
//! server must give.

use std::fmt::Write;

use pmi_scenario::ids;
use pmi_wire::pmi2::{KEY_MAX, VALUE_MAX, is_key};
use pmi_wire::protocol::{Exchange, by_operation};
use pmi_wire::{
    Decoded, Direction, Framing, MAPPING_KEY, MappingForm, Proc, ResponseOutcome, SpawnAssembler,
    SpawnLimits, Tuple,
};

use super::fold::StepOrder;
use super::state::{
    ConnectionEvent, RESERVED_PREFIX, ScenarioWriter, ScriptRequest, ScriptRequestDetail, escaped, is_plain,
};

/// The expected response to a `kvs-get` of a missing key, in all forms that servers use.
const MISS: &str =
    "<one of>\n  pass: cmd=kvs-get-response rc=0 value=<absent>\n  pass: cmd=kvs-get-response rc=fail";

/// Writes a value in the scenario language. In a frame, escapes spaces, which would otherwise separate tuples.
fn value(framing: Framing, bytes: &[u8]) -> String {
    match framing {
        Framing::Lines => escaped(bytes),
        Framing::Frames => escaped(bytes).replace(' ', "<sp>"),
    }
}

/// Writes a body in the scenario language. `named` returns the text that replaces a value, if any. Returns `None` if the language cannot
/// express a tuple.
fn written(body: &Decoded<'_>, named: impl Fn(&[u8], &[u8]) -> Option<String>) -> Option<String> {
    if body.command().is_none_or(<[u8]>::is_empty) || body.tuples().any(|tuple| !is_key(tuple.key)) {
        return None;
    }
    // The scenario language doubles semicolons when it builds a frame, as the draft requires, so the doubling is undone here.
    let word = |raw: &[u8]| value(Framing::Frames, raw).replace(";;", ";");
    let tuple = |t: Tuple<'_>| {
        format!("{}={}", escaped(t.key), named(t.key, t.value).unwrap_or_else(|| word(t.value)))
    };
    Some(body.tuples().map(tuple).collect::<Vec<_>>().join(" "))
}

/// Writes a body in the scenario language. Returns `None` if the language cannot express a tuple.
pub(crate) fn tuples(body: &Decoded<'_>) -> Option<String> {
    written(body, |_, _| None)
}

/// Writes the beginning of a successful response.
fn success(framing: Framing, command: &str) -> String {
    format!("cmd={command} rc={}", framing.pick(["ok", "0"]))
}

/// Returns the permitted position of a request. Requests about names, spawned processes and node attributes keep their position, because
/// other ranks can observe the effects immediately. An abort keeps its position, because it ends all ranks.
fn order(row: Option<&Exchange>) -> StepOrder {
    match row.map_or("", |row| row.operation) {
        "init" | "maxes" | "universe" | "appnum" | "kvsname" | "get-job-attribute" | "put" | "get"
        | "finalize" => StepOrder::Free,
        "barrier" => StepOrder::EntersBarrier,
        _ => StepOrder::Fixed,
    }
}

/// Returns the name that the scenario gives to a group's keyval space or job id.
fn variable(framing: Framing, group: u32) -> String {
    let name = framing.pick(["kvs", "job"]);
    match group {
        0 => name.into(),
        1 => format!("child_{name}"),
        n => format!("child{n}_{name}"),
    }
}

impl ScenarioWriter {
    /// Returns whether an event must wait until all ranks have entered the fence that precedes the event.
    pub(super) fn waits_in_fence(&mut self, p: Proc, event: &ConnectionEvent) -> bool {
        if self.is_over {
            return false;
        }
        if !self.rank(p).events_after_fence.is_empty() {
            return true;
        }
        let ConnectionEvent::Message { direction, framing: framing @ Framing::Frames, text } = event else {
            return false;
        };
        let is_barrier = |row: Option<&Exchange>| row.is_some_and(|row| row.operation == "barrier");
        if *direction == Direction::ToServer
            || !self.rank(p).pending.iter().any(|pending| is_barrier(pending.row))
            || !is_barrier(Decoded::new(*direction, *framing, text).exchange())
        {
            return false;
        }
        let number = self.rank(p).barriers_left + 1;
        let size = match p.group {
            0 => self.ranks,
            group => self.group(group).size,
        };
        let entered = |rank| {
            let p = Proc { group: p.group, rank };
            self.members.get(&p).is_some_and(|rank| rank.barriers_entered >= number)
        };
        !(0..size).all(entered)
    }

    // ----- requests from the client --------------------------------------------------------------------------------

    pub(super) fn request(&mut self, p: Proc, message: &Decoded<'_>) {
        let is_line = message.framing == Framing::Lines;
        if is_line && (self.rank(p).block.is_some() || SpawnAssembler::is_spawn_start(message.text)) {
            return self.spawn_line(p, message.text);
        }
        let (text, has_name) = match message.framing {
            Framing::Lines => self.line(p, message.text),
            Framing::Frames => self.body(p, message),
        };
        let row = message.exchange().filter(|_| message.is_well_formed());
        let order = match order(row) {
            // If a rank uses the name of the keyval space without having received it, the step must come after the step in which another
            // rank receives the name.
            StepOrder::Free if has_name && !self.rank(p).has_name => StepOrder::Fixed,
            order => order,
        };
        self.step_in(p, order, "send", "", text);
        let detail = row.map_or(ScriptRequestDetail::Plain, |row| self.detail(p, row, message));
        if is_line || row.is_some_and(|row| row.response.is_some()) {
            let thrid = message.value("thrid").map(std::borrow::Cow::into_owned);
            self.rank(p).pending.push(ScriptRequest { row, thrid, detail });
        }
    }

    /// Records the effect of a request. Returns the properties that the response depends on.
    fn detail(&mut self, p: Proc, row: &Exchange, message: &Decoded<'_>) -> ScriptRequestDetail {
        let field = |name| message.field(name).unwrap_or_default().into_owned();
        match row.operation {
            "put" => return ScriptRequestDetail::Put { valid: self.put(p, message) },
            "put-node-attribute" => {
                let (key, value) = (field("key"), field("value"));
                let valid = key.len() < KEY_MAX && value.len() < VALUE_MAX && is_plain(&value);
                self.group(p.group).node.entry(key).or_default().push(value);
                return ScriptRequestDetail::Put { valid };
            }
            "get" | "get-node-attribute" | "get-job-attribute" => {
                return ScriptRequestDetail::Get { key: field("key") };
            }
            "lookup" => {
                self.names = true;
                return ScriptRequestDetail::Lookup { service: field("service") };
            }
            "publish" => {
                self.names = true;
                self.ports.insert(field("service"), field("port"));
            }
            "unpublish" => {
                self.names = true;
                self.ports.remove(&field("service"));
            }
            "init" if message.framing == Framing::Frames => {
                let bare = ["pmijobid", "pmirank", "threaded"].iter().any(|key| message.raw(key).is_none());
                return ScriptRequestDetail::Fullinit { lacks_field: bare };
            }
            "spawn" => {
                if let Some(request) = message.spawn() {
                    self.spawns = true;
                    self.spawned += 1;
                    let group = self.group(self.spawned);
                    group.size = u32::try_from(request.processes()).unwrap_or(u32::MAX);
                    group.preput.extend(request.programs.iter().flat_map(|program| program.preput.clone()));
                }
            }
            "barrier" => self.rank(p).barriers_entered += 1,
            "finalize" => self.rank(p).finalized = true,
            "abort" => {
                self.aborted = Some(p.group);
                self.has_failure = true;
            }
            _ => {}
        }
        ScriptRequestDetail::Plain
    }

    /// Writes a line as it was sent, but with a variable in place of the kvsname. Returns the text, and whether the line contains the
    /// kvsname.
    fn line(&mut self, p: Proc, line: &[u8]) -> (String, bool) {
        if line.is_empty() {
            return ("<partial> <0x0a>".into(), false);
        }
        if !line.starts_with(b"cmd=") {
            // The parser of the scenario language might mistake the line for a keyword, so the first byte is escaped.
            return (format!("<0x{:02x}>{}", line[0], escaped(&line[1..])), false);
        }
        let name = self.group(p.group).name.clone().unwrap_or_default();
        let given = [b" kvsname=", &name[..]].concat();
        let at = memchr::memmem::find(line, &given)
            .filter(|at| !name.is_empty() && matches!(line.get(at + given.len()), None | Some(b' ')));
        let Some(at) = at else { return (escaped(line), false) };
        let (before, after) = (&line[..at], &line[at + given.len()..]);
        let name = variable(Framing::Lines, p.group);
        (format!("{} kvsname=${name}{}", escaped(before), escaped(after)), true)
    }

    /// Writes a body as it was sent, but with variables in place of the program, the rank and the job id. If the language cannot express
    /// the tuples of the body, writes the body byte by byte. Returns the text, and whether the body contains the job id.
    fn body(&mut self, p: Proc, body: &Decoded<'_>) -> (String, bool) {
        let jobid = self.group(p.group).name.clone();
        let rank = p.rank.to_string();
        let is_jobid = |key: &[u8], value: &[u8]| key == b"jobid" && jobid.as_deref() == Some(value);
        let named = |key: &[u8], value: &[u8]| match key {
            b"subcmd" => Some("$agent".to_owned()),
            b"pmirank" if value == rank.as_bytes() => Some("$rank".to_owned()),
            _ if is_jobid(key, value) => Some(format!("${}", variable(Framing::Frames, p.group))),
            _ => None,
        };
        match written(body, named) {
            Some(text) => (text, body.tuples().any(|tuple| is_jobid(tuple.key, tuple.value))),
            None => (format!("<body> {}", value(Framing::Frames, body.text)), false),
        }
    }

    /// Records a put. Returns whether every server must accept the put.
    fn put(&mut self, p: Proc, message: &Decoded<'_>) -> bool {
        let field = |name| message.field(name).unwrap_or_default().into_owned();
        let (key, value) = (field("key"), field("value"));
        let (entered, limits) = (self.rank(p).barriers_entered, self.rank(p).limits);
        let group = self.group(p.group);
        let (fits, known) = match message.framing {
            Framing::Lines => (
                limits.is_some_and(|m| {
                    (key.len() as u64) < m.keylen_max && (value.len() as u64) < m.vallen_max
                }),
                group.name == Some(field("kvsname")),
            ),
            Framing::Frames => {
                let fits = key.len() < KEY_MAX && value.len() < VALUE_MAX;
                (fits && is_key(&key) && !value.contains(&b';'), true)
            }
        };
        let valid = known && fits && is_plain(&value) && !key.starts_with(RESERVED_PREFIX);
        let again = known && group.values.insert(key.clone(), (value, entered)).is_some();
        if again {
            group.repeated_keys.insert(key);
        }
        valid && !again
    }

    fn spawn_line(&mut self, p: Proc, line: &[u8]) {
        let fresh = || (SpawnAssembler::new(SpawnLimits::default()), Vec::new());
        let (mut assembler, mut lines) = self.rank(p).block.take().unwrap_or_else(fresh);
        lines.push(line.to_vec());
        let pending = |row| ScriptRequest { row, thrid: None, detail: ScriptRequestDetail::Plain };
        match assembler.push_line(line) {
            Ok(None) => self.rank(p).block = Some((assembler, lines)),
            Ok(Some(program)) => {
                let mut text = String::new();
                for (i, line) in lines.iter().enumerate() {
                    let _ = match line.strip_prefix(b"execname=") {
                        Some(_) => write!(text, "\nexecname=$agent"),
                        None => write!(text, "{}{}", if i == 0 { "" } else { "\n" }, escaped(line)),
                    };
                }
                self.spawns = true;
                self.step(p, "send", "", text);
                let last = program.spawnssofar >= program.totspawns;
                let id = self.spawned + 1;
                self.group(id).preput.extend(program.preput);
                if last {
                    self.spawned = id;
                    self.rank(p).pending.push(pending(by_operation(Framing::Lines, "spawn")));
                }
            }
            Err(_) => {
                self.rank(p).pending.push(pending(None));
                self.step(p, "send", "", lines.iter().map(|l| escaped(l)).collect::<Vec<_>>().join("\n"));
            }
        }
    }

    // ----- expected responses --------------------------------------------------------------------------------------

    pub(super) fn response(&mut self, p: Proc, response: &Decoded<'_>) {
        let row = response.exchange().filter(|_| response.is_well_formed());
        let thrid = response.value("thrid");
        let pending = &mut self.rank(p).pending;
        let place = match response.framing {
            Framing::Lines => (!pending.is_empty()).then_some(0),
            // A server may answer concurrent requests from one process in any order.
            Framing::Frames => {
                let fits = |pending: &ScriptRequest| row.is_some() && pending.row == row;
                let of_thread =
                    |p: &ScriptRequest| thrid.is_some() && p.thrid.as_deref() == thrid.as_deref() && fits(p);
                pending.iter().position(of_thread).or_else(|| pending.iter().position(fits))
            }
        };
        let Some(place) = place else { return };
        let is_only = response.framing == Framing::Lines || pending.len() == 1;
        let request = pending.remove(place);
        // The response to abort is a bare newline, and no client waits for it, so the scenario does not expect it.
        let Some(response_row) = row.filter(|row| row.response.is_some() && request.row.is_some()) else {
            return;
        };
        let order = match order(request.row) {
            StepOrder::EntersBarrier => StepOrder::LeavesBarrier,
            other => other,
        };
        let expected = match request.row == row {
            true => self.expected(p, response_row, &request.detail, response),
            false => None,
        };
        let (cites, text) = match expected {
            _ if !is_only => (self.any(), "cmd=<any>".to_owned()),
            Some(expected) => expected,
            None => (self.any(), format!("cmd={}", response_row.response.unwrap_or_default())),
        };
        self.step_in(p, order, "expect", cites, text);
    }

    /// Returns the requirement to cite, and the response that every server must give. Returns `None` if any response is correct.
    fn expected(
        &mut self,
        p: Proc,
        row: &Exchange,
        detail: &ScriptRequestDetail,
        response: &Decoded<'_>,
    ) -> Option<(&'static str, String)> {
        let framing = response.framing;
        if row.operation == "barrier" {
            self.rank(p).barriers_left += 1;
        }
        let ok = response.outcome() == Some(ResponseOutcome::Success);
        if let ("get", ScriptRequestDetail::Get { key }) = (row.operation, detail) {
            return self.got(p, key, row, response);
        }
        if !ok {
            return None;
        }
        let success = success(framing, row.response?);
        let with = |fields: &str| format!("{success} {fields}");
        Some(match (row.operation, detail) {
            ("init", ScriptRequestDetail::Fullinit { lacks_field: bare }) => (
                if *bare { ids::PMI2_DRAFT_FULLINIT_OPTIONAL_KEYS } else { ids::PMI2_COMMON_FULLINIT },
                with("rank=$rank size=$size appnum=<int>"),
            ),
            ("init", _) => {
                let [pmi1, pmi2] = [(ids::RFC13_ABNF_S_INIT, "<uint>"), (ids::PMI2_COMMON_VERSION, "2")];
                let (cites, version) = self.dialect.pick([pmi1, pmi2]);
                (cites, with(&format!("pmi_version={version} pmi_subversion=<uint>")))
            }
            ("maxes", _) => {
                self.rank(p).limits = Some(response.limits()?);
                (ids::RFC13_MAXES_LIMITS, with("kvsname_max=<uint> keylen_max=<uint> vallen_max=<uint>"))
            }
            ("kvsname", _) => {
                let name = response.field("kvsname")?;
                self.group(p.group).name.get_or_insert_with(|| name.into_owned());
                self.rank(p).has_name = true;
                let name = variable(framing, p.group);
                let cites = framing.pick([ids::RFC13_KVSNAME_COMMON, ids::PMI2_COMMON_JOBID]);
                (cites, with(&framing.pick([format!("kvsname=${name}:word"), format!("jobid=${name}:any")])))
            }
            ("barrier", _) => (framing.pick([ids::RFC13_BARRIER_RELEASED, ids::PMI2_COMMON_FENCE]), success),
            ("finalize", _) => (framing.pick([ids::RFC13_FINALIZE_ACK, ids::PMI2_COMMON_FINALIZE]), success),
            ("spawn", _) => (framing.pick([ids::RFC13_ABNF_C_SPAWN, ids::PMI2_COMMON_SPAWN_STARTS]), success),
            ("put", ScriptRequestDetail::Put { valid: true }) => {
                (framing.pick([ids::RFC13_ABNF_C_PUT, ids::PMI2_COMMON_PUT]), success)
            }
            ("put-node-attribute", ScriptRequestDetail::Put { valid: true }) => {
                (ids::PMI2_COMMON_NODEATTR, success)
            }
            ("publish", _) if framing == Framing::Frames => (ids::PMI2_COMMON_NAMES_LOOKUP, success),
            ("get-node-attribute", ScriptRequestDetail::Get { key }) => {
                let [put] = self.group(p.group).node.get(key)?.as_slice() else { return None };
                if !is_plain(put) || response.value("value").as_deref() != Some(put) {
                    return None;
                }
                (ids::PMI2_COMMON_NODEATTR, with(&format!("value={}", value(framing, put))))
            }
            ("get-job-attribute", ScriptRequestDetail::Get { key }) if key == MAPPING_KEY => {
                (ids::PMI2_COMMON_JOBATTR_MAPPING, with("value=<any>"))
            }
            ("lookup", ScriptRequestDetail::Lookup { service }) => {
                let port = self.ports.get(service).filter(|port| is_plain(port))?;
                if response.field("port").as_deref() != Some(port) {
                    return None;
                }
                let port = value(framing, port);
                match framing {
                    Framing::Lines => (ids::RFC13_PUBLISH_LOOKUP, with(&format!("port={port}"))),
                    Framing::Frames => {
                        let lines = ["port", "value"].map(|key| format!("\n  pass: {success} {key}={port}"));
                        (ids::PMI2_COMMON_NAMES_LOOKUP, format!("<one of>{}", lines.concat()))
                    }
                }
            }
            _ => return None,
        })
    }

    /// Returns the requirement to cite for a get, and the response that every server must give. Returns `None` if any response is correct.
    fn got(
        &mut self,
        p: Proc,
        key: &[u8],
        row: &Exchange,
        response: &Decoded<'_>,
    ) -> Option<(&'static str, String)> {
        let framing = response.framing;
        let found = response.outcome()? == ResponseOutcome::Success;
        let seen = response.value("value").filter(|_| found);
        let success = success(framing, row.response?);
        if framing == Framing::Lines && key == MAPPING_KEY {
            let is_mapping = matches!(MappingForm::classify(&seen?), MappingForm::Rfc(_));
            return is_mapping.then(|| (ids::RFC13_MAPPING_PROVIDED, format!("{success} value=<mapping>")));
        }
        if key.starts_with(RESERVED_PREFIX) {
            return None;
        }
        let left = self.rank(p).barriers_left;
        let group = self.group(p.group);
        let (known, cites) = match (group.preput.get(key), group.values.get(key)) {
            (Some(known), None) => {
                (known, framing.pick([ids::RFC13_SPAWN_PREPUT, ids::PMI2_COMMON_SPAWN_PREPUT]))
            }
            (None, Some((known, entered))) if left > *entered => {
                (known, framing.pick([ids::RFC13_PUT_VISIBLE_AFTER_BARRIER, ids::PMI2_COMMON_FENCE_VISIBLE]))
            }
            (None, None) if !found => {
                return Some(framing.pick([
                    (ids::RFC13_ERROR_RC_NONZERO, "cmd=get_result rc=fail".into()),
                    (ids::PMI2_COMMON_GET_MISS, MISS.to_owned()),
                ]));
            }
            // The expected value is ambiguous, or need not be visible yet.
            _ => return None,
        };
        let has_semicolon = framing == Framing::Frames && known.contains(&b';');
        if seen.as_deref() != Some(known) || group.repeated_keys.contains(key) || has_semicolon {
            return None;
        }
        let value = if is_plain(known) { value(framing, known) } else { "<any>".into() };
        Some((cites, format!("{success} value={value}")))
    }
}
