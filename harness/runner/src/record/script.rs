//! Writes a session as a scenario: what the clients sent, and what any server has to make of it.
//!
//! The order is the recorded one, in which every cause stands before its effects. What a server may choose becomes a name or a
//! type (the kvsname, limits, mapping, whatever it provides under `PMI_` keys), and what depends on time is not asked for: a
//! value is expected only where RFC 13 promises it, after a barrier between put and get.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::Write;
use std::sync::Arc;

use pmi_wire::{
    Body, Framer, MappingForm, Maxes, Operation, Request, Response, SpawnAssembler, SpawnLimits, ValueReading,
};

use pmi_judge::crash::Cause;
use pmi_judge::event::{Event, Exit, What};
use pmi_scenario::ast::Source;
use pmi_scenario::{parse, print};
use pmi_wire::Proc;

/// Longest line that is written.
const LINE: usize = 1 << 20;

/// Cited where an answer may say anything.
const ANY: &str = "rfc13.wire.response-matches-request";

/// Keys that the process manager itself provides.
const RESERVED: &[u8] = b"PMI_";

/// Why a session cannot be written as a scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unwritable(String);

/// Writes the scenario. `command` is what started the session.
///
/// # Errors
///
/// The session holds what the language has no words for.
pub fn script(events: &[Event], command: &str) -> Result<String, Unwritable> {
    let mut writer = Writer::default();
    for event in events {
        if let What::Exited { proc, exit } = event.what {
            writer.exits.insert(proc, exit);
        }
    }
    for event in events {
        writer.event(&event.what);
    }
    let text = writer.finish(command);
    readable("server", text)
}

/// A scenario that can be read, laid out.
pub(super) fn readable(name: &str, text: String) -> Result<String, Unwritable> {
    let source = Arc::new(Source { path: format!("{name}.pmi"), text });
    let scenario = parse(source, name).map_err(|errors| {
        let what = errors.iter().map(|e| e.render(false)).collect::<Vec<_>>().join("\n");
        Unwritable(format!("the scenario of the session cannot be read: {what}"))
    })?;
    Ok(print(&scenario))
}

/// A text as part of a comment.
pub(super) fn commented(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// What a rank waits for.
enum Asked {
    Op(Operation),
    Put { lawful: bool },
    Get { key: Vec<u8> },
    Lookup { service: Vec<u8> },
    Unknown,
}

#[derive(Default)]
struct Rank {
    to_server: Option<Framer>,
    from_server: Option<Framer>,
    asked: VecDeque<Asked>,
    /// The lines of a spawn block so far.
    block: Option<(SpawnAssembler, Vec<Vec<u8>>)>,
    maxes: Option<Maxes>,
    entered: u64,
    left: u64,
    finalized: bool,
    closed: bool,
}

#[derive(Default)]
struct Group {
    kvsname: Option<Vec<u8>>,
    /// Values, who put them, and how many barriers that rank had entered before.
    values: HashMap<Vec<u8>, (Vec<u8>, u64)>,
    /// Keys that were put more than once.
    twice: HashSet<Vec<u8>>,
    preput: HashMap<Vec<u8>, Vec<u8>>,
}

struct Step {
    who: Vec<Proc>,
    role: char,
    cites: &'static str,
    text: String,
}

#[derive(Default)]
struct Writer {
    ranks: u32,
    exits: HashMap<Proc, Exit>,
    members: BTreeMap<Proc, Rank>,
    groups: HashMap<u32, Group>,
    ports: HashMap<Vec<u8>, Vec<u8>>,
    spawned: u32,
    steps: Vec<Step>,
    spawns: bool,
    names: bool,
    /// Something went wrong, after which anything may end at any time.
    trouble: bool,
    /// Which it was, where that was an abort.
    aborted: Option<u32>,
    exit: Option<Exit>,
}

impl Writer {
    fn event(&mut self, what: &What) {
        match what {
            What::Launched { ranks, .. } => self.ranks = *ranks,
            What::Started { proc, .. } => {
                self.members.insert(*proc, Rank::default());
                if proc.group != 0 && !self.trouble {
                    self.step(*proc, 'P', "rfc13.spawn.new-group", "starts".into());
                }
            }
            What::ToServer { proc, bytes } => self.lines(*proc, &bytes.0, true),
            What::FromServer { proc, bytes } => self.lines(*proc, &bytes.0, false),
            What::ClosedByClient { proc } => self.closed(*proc, true),
            What::ClosedByServer { proc } => self.closed(*proc, false),
            What::Exited { proc, exit } => {
                let finalized = self.rank(*proc).finalized;
                if let (true, Exit::Code(status @ 1..=255), false) = (finalized, exit, self.trouble) {
                    self.step(*proc, 'P', ANY, format!("exit {status}"));
                    self.trouble = true;
                }
            }
            What::JobExited { exit } => self.exit = Some(*exit),
            // A tap tells of nothing else that could be played.
            _ => {}
        }
    }

    fn rank(&mut self, p: Proc) -> &mut Rank {
        self.members.entry(p).or_default()
    }

    fn group(&mut self, id: u32) -> &mut Group {
        self.groups.entry(id).or_default()
    }

    fn step(&mut self, p: Proc, role: char, cites: &'static str, text: String) {
        let whole = !text.contains('\n');
        match self.steps.last_mut() {
            Some(last)
                if whole
                    && (last.role, last.cites, &last.text) == (role, cites, &text)
                    && last.who[0].group == p.group
                    && !last.who.contains(&p) =>
            {
                last.who.push(p);
            }
            _ => self.steps.push(Step { who: vec![p], role, cites, text }),
        }
    }

    fn lines(&mut self, p: Proc, bytes: &[u8], to_server: bool) {
        let rank = self.rank(p);
        let place = if to_server { &mut rank.to_server } else { &mut rank.from_server };
        let mut framer = place.take().unwrap_or_else(|| Framer::new(LINE));
        framer.push(bytes);
        while let Some(line) = framer.next_line() {
            // A line that long is no request, and says nothing.
            let line = line.unwrap_or_default().to_vec();
            if self.trouble {
                continue;
            }
            if to_server { self.request(p, &line) } else { self.response(p, &line) }
        }
        let rank = self.rank(p);
        *(if to_server { &mut rank.to_server } else { &mut rank.from_server }) = Some(framer);
    }

    // ----- what the client sent ------------------------------------------------------------------------------------

    fn request(&mut self, p: Proc, line: &[u8]) {
        if self.rank(p).block.is_some() || SpawnAssembler::is_spawn_start(line) {
            return self.spawn_line(p, line);
        }
        // The handshake over PMI_PORT is none of RFC 13's.
        if line.starts_with(b"cmd=initack") {
            return;
        }
        let request = Request::parse(line, ValueReading::ToEndOfLine);
        let asked = match &request {
            Ok(Request::Put { kvsname, key, value }) => {
                Asked::Put { lawful: self.put(p, kvsname, key, value) }
            }
            Ok(Request::Get { key, .. }) => Asked::Get { key: key.to_vec() },
            Ok(Request::Publish { service, port }) => {
                self.ports.insert(service.to_vec(), port.to_vec());
                Asked::Op(Operation::Publish)
            }
            Ok(Request::Unpublish { service }) => {
                self.ports.remove(*service);
                Asked::Op(Operation::Unpublish)
            }
            Ok(Request::Lookup { service }) => Asked::Lookup { service: service.to_vec() },
            Ok(other) => Asked::Op(other.operation()),
            Err(_) => Asked::Unknown,
        };
        self.names |=
            matches!(asked, Asked::Op(Operation::Publish | Operation::Unpublish) | Asked::Lookup { .. });
        let rank = self.rank(p);
        match &asked {
            Asked::Op(Operation::Barrier) => rank.entered += 1,
            Asked::Op(Operation::Finalize) => rank.finalized = true,
            Asked::Op(Operation::Abort) => {
                self.aborted = Some(p.group);
                self.trouble = true;
            }
            _ => {}
        }
        self.rank(p).asked.push_back(asked);
        let text = self.sent(p, line);
        self.step(p, 'C', "", text);
    }

    /// A line as it is sent: the kvsname by its name.
    fn sent(&mut self, p: Proc, line: &[u8]) -> String {
        if line.is_empty() {
            return "<partial> <0x0a>".into();
        }
        if !line.starts_with(b"cmd=") {
            // Else it might be a word of the language.
            return format!("<0x{:02x}>{}", line[0], escaped(&line[1..]));
        }
        let name = self.group(p.group).kvsname.clone().unwrap_or_default();
        let given = [b" kvsname=", &name[..]].concat();
        let at = memchr::memmem::find(line, &given)
            .filter(|at| !name.is_empty() && matches!(line.get(at + given.len()), None | Some(b' ')));
        match at {
            Some(at) => {
                let (before, after) = (&line[..at], &line[at + given.len()..]);
                format!("{} kvsname=${}{}", escaped(before), variable(p.group), escaped(after))
            }
            None => escaped(line),
        }
    }

    /// Books a put; whether any server has to take it.
    fn put(&mut self, p: Proc, kvsname: &[u8], key: &[u8], value: &[u8]) -> bool {
        let rank = self.rank(p);
        let (entered, maxes) = (rank.entered, rank.maxes);
        let group = self.group(p.group);
        let known = group.kvsname.as_deref() == Some(kvsname);
        let again = known && group.values.insert(key.to_vec(), (value.to_vec(), entered)).is_some();
        if again {
            group.twice.insert(key.to_vec());
        }
        let fits =
            maxes.is_some_and(|m| (key.len() as u64) < m.keylen_max && (value.len() as u64) < m.vallen_max);
        known && !again && fits && is_plain(value) && !key.starts_with(RESERVED)
    }

    fn spawn_line(&mut self, p: Proc, line: &[u8]) {
        let fresh = || (SpawnAssembler::new(SpawnLimits::default()), Vec::new());
        let (mut assembler, mut lines) = self.rank(p).block.take().unwrap_or_else(fresh);
        lines.push(line.to_vec());
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
                self.step(p, 'C', "", text);
                let last = program.spawnssofar >= program.totspawns;
                let id = self.spawned + 1;
                self.group(id).preput.extend(program.preput);
                if last {
                    self.spawned = id;
                    self.rank(p).asked.push_back(Asked::Op(Operation::Spawn));
                }
            }
            Err(_) => {
                self.rank(p).asked.push_back(Asked::Unknown);
                self.step(p, 'C', "", lines.iter().map(|l| escaped(l)).collect::<Vec<_>>().join("\n"));
            }
        }
    }

    // ----- what the server has to answer ---------------------------------------------------------------------------

    fn response(&mut self, p: Proc, line: &[u8]) {
        let Some(asked) = self.rank(p).asked.pop_front() else { return };
        let reading = ValueReading::ToEndOfLine;
        let Ok(response) = Response::parse(line, reading) else { return };
        let (ok, operation) = (response.is_success(), response.operation());
        let (cites, text) = match (asked, response.body) {
            (Asked::Op(Operation::Init), _) if ok => (
                "rfc13.abnf.s-init",
                "cmd=response_to_init rc=ok pmi_version=<uint> pmi_subversion=<uint>".into(),
            ),
            (Asked::Op(Operation::Maxes), Body::Maxes(maxes @ Some(_))) if ok => {
                self.rank(p).maxes = maxes;
                let text = "cmd=maxes rc=ok kvsname_max=<uint> keylen_max=<uint> vallen_max=<uint>";
                ("rfc13.maxes.limits", text.into())
            }
            (Asked::Op(Operation::Kvsname), Body::Kvsname(Some(name))) if ok => {
                self.group(p.group).kvsname.get_or_insert_with(|| name.to_vec());
                let text = format!("cmd=my_kvsname rc=ok kvsname=${}:word", variable(p.group));
                ("rfc13.kvsname.common", text)
            }
            (Asked::Op(Operation::Barrier), _) => {
                self.rank(p).left += 1;
                match ok {
                    true => ("rfc13.barrier.released", "cmd=barrier_out rc=ok".into()),
                    false => (ANY, "cmd=barrier_out".into()),
                }
            }
            (Asked::Op(Operation::Finalize), _) if ok => {
                ("rfc13.finalize.ack", "cmd=finalize_ack rc=ok".into())
            }
            (Asked::Op(Operation::Spawn), _) if ok => ("rfc13.abnf.c-spawn", "cmd=spawn_result rc=ok".into()),
            (Asked::Put { lawful: true }, _) if ok => ("rfc13.abnf.c-put", "cmd=put_result rc=ok".into()),
            (Asked::Get { key }, Body::Get(value)) => self.got(p, &key, ok, value),
            (Asked::Lookup { service }, Body::Lookup(Some(port)))
                if ok && self.ports.get(&service).is_some_and(|known| known == port) =>
            {
                ("rfc13.publish.lookup", format!("cmd=lookup_result rc=ok port={}", escaped(port)))
            }
            // The answer to abort is a bare newline, which no client waits for.
            (Asked::Unknown | Asked::Op(Operation::Abort), _) => return,
            (_, _) => match operation.response_cmd() {
                Some(cmd) => (ANY, format!("cmd={cmd}")),
                None => return,
            },
        };
        self.step(p, 'S', cites, text);
    }

    fn got(&mut self, p: Proc, key: &[u8], ok: bool, value: Option<&[u8]>) -> (&'static str, String) {
        let anything = (ANY, "cmd=get_result".to_owned());
        if key == b"PMI_process_mapping" {
            return match value.map(MappingForm::classify) {
                Some(MappingForm::Rfc(_)) if ok => {
                    ("rfc13.mapping.provided", "cmd=get_result rc=ok value=<mapping>".into())
                }
                _ => anything,
            };
        }
        if key.starts_with(RESERVED) {
            return anything;
        }
        let left = self.rank(p).left;
        let group = self.group(p.group);
        let (known, cites) = match (group.preput.get(key), group.values.get(key)) {
            (Some(known), None) => (known, "rfc13.spawn.preput"),
            (None, Some((known, entered))) if left > *entered => (known, "rfc13.put.visible-after-barrier"),
            (None, None) if !ok => return ("rfc13.error.rc-nonzero", "cmd=get_result rc=fail".into()),
            // Put twice, or put and not yet sure to be seen.
            _ => return anything,
        };
        if !ok || value != Some(known) || group.twice.contains(key) {
            return anything;
        }
        let value = if is_plain(known) { escaped(known) } else { "<any>".into() };
        (cites, format!("cmd=get_result rc=ok value={value}"))
    }

    // ----- ends ----------------------------------------------------------------------------------------------------

    fn closed(&mut self, p: Proc, by_client: bool) {
        let exit = self.exits.get(&p).copied();
        let rank = self.rank(p);
        if std::mem::replace(&mut rank.closed, true) || rank.finalized {
            return;
        }
        let partial = rank.to_server.as_ref().map(|f| f.partial().to_vec()).unwrap_or_default();
        let spoke = rank.to_server.is_some();
        if self.trouble {
            if self.aborted == Some(p.group) {
                self.step(p, 'P', "rfc13.abort.group", "is ended".into());
            }
            return;
        }
        if !by_client {
            self.trouble = true;
            return self.step(p, 'P', ANY, "is ended".into());
        }
        if !partial.is_empty() {
            let text = format!("<partial> <0x{:02x}>{}", partial[0], escaped(&partial[1..]));
            self.step(p, 'C', "", text);
        }
        match exit {
            // A program that knows nothing of PMI.
            Some(Exit::Code(0)) | None if !spoke => return,
            Some(Exit::Code(status @ 0..=255)) => self.step(p, 'P', ANY, format!("exit {status}")),
            Some(Exit::Signal(signal)) if !Cause::of(signal).is_from_outside() || signal == 9 => {
                self.step(p, 'P', ANY, format!("kill {signal}"));
            }
            _ => self.step(p, 'C', "", "<close>".into()),
        }
        self.trouble = true;
    }

    fn finish(mut self, command: &str) -> String {
        let first = self.members.keys().filter(|p| p.group == 0).map(|p| p.rank + 1).max().unwrap_or(1);
        let ranks = self.ranks.max(first);
        let status = match self.exit {
            Some(Exit::Code(0)) if !self.trouble => "exits 0",
            Some(exit) if exit != Exit::Code(0) && self.aborted.is_some() => "exits nonzero",
            _ => "exits any",
        };
        let mut requires: Vec<&str> = Vec::new();
        let mut known = BTreeSet::new();
        for step in &self.steps {
            if !step.cites.is_empty() && known.insert(step.cites) {
                requires.push(step.cites);
            }
        }
        if requires.is_empty() {
            requires.push(ANY);
        }
        let command = commented(command);
        let mut text = format!(
            "# A recorded session, played again: {command}\n# The requests are those of its programs, in their order. \
             Expected is what any process manager has to answer.\n"
        );
        for ids in requires.chunks(5) {
            let _ = writeln!(text, "requires {}", ids.join(" "));
        }
        let needs = [(self.spawns, "spawn"), (self.names, "names")];
        let needs: Vec<&str> = needs.into_iter().filter(|(used, _)| *used).map(|(_, word)| word).collect();
        if !needs.is_empty() {
            let _ = writeln!(text, "needs {}", needs.join(" "));
        }
        let _ = writeln!(text, "ranks {ranks}\n");
        for step in self.steps.drain(..) {
            let cites = if step.cites.is_empty() { String::new() } else { format!("[{}]", step.cites) };
            let body = step.text.replace('\n', "\n    ");
            let _ = writeln!(text, "{} {}{cites}: {body}", who(&step.who), step.role);
        }
        let _ = writeln!(text, "J: {status}");
        text
    }
}

/// Ranks of one group, in this order.
fn who(procs: &[Proc]) -> String {
    let group = procs[0].group;
    let prefix = match group {
        0 => String::new(),
        1 => "child:".into(),
        n => format!("child{n}:"),
    };
    prefix + &span(&procs.iter().map(|p| p.rank).collect::<Vec<_>>())
}

/// Ranks in this order, those that follow each other as a range.
pub(super) fn span(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == *rank => *end = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let shown: Vec<String> =
        runs.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    shown.join(",")
}

/// The name that a group's kvsname gets.
fn variable(group: u32) -> String {
    match group {
        0 => "kvs".into(),
        1 => "child_kvs".into(),
        n => format!("child{n}_kvs"),
    }
}

/// Whether RFC 13 leaves no doubt about where a value ends.
fn is_plain(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(u8::is_ascii_graphic)
}

/// Bytes as the language writes them.
pub(super) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for (i, byte) in bytes.iter().enumerate() {
        let between = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_graphic());
        match byte {
            b'<' => text.push_str("<<"),
            b'$' => text.push_str("$$"),
            // A blank that nothing can eat.
            b' ' if i > 0 && between(bytes.get(i - 1)) && between(bytes.get(i + 1)) => text.push(' '),
            b' ' if i == 0 && between(bytes.get(1)) => text.push(' '),
            b' ' => text.push_str("<sp>"),
            b'\t' => text.push_str("<tab>"),
            _ if byte.is_ascii_graphic() => text.push(char::from(*byte)),
            _ => {
                let _ = write!(text, "<0x{byte:02x}>");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_judge::event::Bytes;

    /// The scenario of what two ranks said, without its head.
    fn body(lines: &[&str], exits: &[(u32, Exit)]) -> String {
        let mut whats = vec![What::Launched { command: Vec::new(), ranks: 2, nodes: 0 }];
        for line in lines {
            let (rank, rest) = line.split_once(' ').unwrap();
            let proc = Proc { group: 0, rank: rank.parse().unwrap() };
            let bytes = |text: &str| Bytes(format!("{text}\n").into_bytes());
            whats.push(match rest.split_once(": ") {
                Some(("C", text)) => What::ToServer { proc, bytes: bytes(text) },
                Some(("S", text)) => What::FromServer { proc, bytes: bytes(text) },
                _ => What::ClosedByClient { proc },
            });
        }
        whats.extend(
            exits
                .iter()
                .map(|(rank, exit)| What::Exited { proc: Proc { group: 0, rank: *rank }, exit: *exit }),
        );
        whats.push(What::JobExited { exit: Exit::Code(0) });
        let events: Vec<Event> =
            whats.into_iter().enumerate().map(|(i, what)| Event::new(i as u64, what)).collect();
        let text = script(&events, "pm").unwrap();
        let (_, body) = text.split_once("ranks 2\n\n").unwrap();
        body.to_owned()
    }

    const NAMES: [&str; 6] = [
        "0 C: cmd=get_my_kvsname",
        "0 S: cmd=my_kvsname rc=0 kvsname=k1",
        "0 C: cmd=get_maxes",
        "0 S: cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=64",
        "1 C: cmd=get_my_kvsname",
        "1 S: cmd=my_kvsname rc=0 kvsname=k1",
    ];

    #[test]
    fn what_a_server_chooses_gets_a_name_or_a_type() {
        let body = body(
            &[
                &NAMES[..],
                &[
                    "0 C: cmd=get kvsname=k1 key=PMI_process_mapping",
                    "0 S: cmd=get_result rc=0 value=(vector,(0,1,2))",
                    "0 C: cmd=get kvsname=k1 key=PMI_own",
                    "0 S: cmd=get_result rc=0 value=x",
                    "0 C: cmd=get_universe_size",
                    "0 S: cmd=universe_size rc=0 size=7",
                ],
            ]
            .concat(),
            &[],
        );
        for line in [
            "S[rfc13.kvsname.common]: cmd=my_kvsname rc=ok kvsname=$kvs:word",
            "C: cmd=get kvsname=$kvs key=PMI_process_mapping",
            "S[rfc13.mapping.provided]: cmd=get_result rc=ok value=<mapping>",
            "S[rfc13.wire.response-matches-request]: cmd=get_result\n",
            "S[rfc13.wire.response-matches-request]: cmd=universe_size\n",
            "keylen_max=<uint>",
        ] {
            assert!(body.contains(line), "{line}\n{body}");
        }
    }

    #[test]
    fn a_value_is_expected_only_after_a_barrier() {
        let put = ["0 C: cmd=put kvsname=k1 key=a value=<$1>", "0 S: cmd=put_result rc=0"];
        let get = ["1 C: cmd=get kvsname=k1 key=a", "1 S: cmd=get_result rc=0 value=<$1>"];
        let barrier = [
            "0 C: cmd=barrier_in",
            "1 C: cmd=barrier_in",
            "1 S: cmd=barrier_out rc=0",
            "0 S: cmd=barrier_out rc=0",
        ];
        let early = body(&[&NAMES[..], &put, &get, &barrier].concat(), &[]);
        assert!(early.contains("cmd=get_result\n"), "{early}");
        let late = body(&[&NAMES[..], &put, &barrier, &get].concat(), &[]);
        assert!(late.contains("C: cmd=put kvsname=$kvs key=a value=<<$$1>\n"), "{late}");
        assert!(late.contains("cmd=get_result rc=ok value=<<$$1>\n"), "{late}");
        assert!(
            late.contains("0-1  C: cmd=barrier_in\n1,0  S[rfc13.barrier.released]: cmd=barrier_out rc=ok"),
            "{late}"
        );
        // A second put, or too long a one, may be refused or not.
        let again = body(&[&NAMES[..], &put, &put, &barrier, &get].concat(), &[]);
        assert!(again.contains("cmd=put_result\n") && again.contains("cmd=get_result\n"), "{again}");
    }

    #[test]
    fn ends_are_played_as_they_were() {
        let finalize = ["0 C: cmd=finalize", "0 S: cmd=finalize_ack rc=0", "0 closed"];
        let well = body(&[&NAMES[..], &finalize].concat(), &[(0, Exit::Code(0))]);
        assert!(well.ends_with("cmd=finalize_ack rc=ok\nJ: exits 0\n"), "{well}");
        let late = body(&[&NAMES[..], &finalize].concat(), &[(0, Exit::Code(3))]);
        assert!(late.contains(" exit 3\nJ: exits any\n"), "{late}");
        let died = body(
            &[&NAMES[..], &["0 closed", "1 closed"]].concat(),
            &[(0, Exit::Signal(11)), (1, Exit::Signal(9))],
        );
        assert!(
            died.contains("0  P[rfc13.wire.response-matches-request]: kill 11\nJ: exits any\n"),
            "{died}"
        );
        let abort = ["0 C: cmd=abort exitcode=4", "1 C: cmd=barrier_in", "0 closed", "1 closed"];
        let abort = body(&[&NAMES[..], &abort].concat(), &[]);
        assert!(
            abort.contains("cmd=abort exitcode=4\n0-1  P[rfc13.abort.group]: is ended\nJ: exits any\n"),
            "{abort}"
        );
    }

    #[test]
    fn anything_that_a_client_sends_can_be_written() {
        for text in
            ["close", "bytewise x", "cmd=", "cmd=a  b", "\u{7f}\u{ff} ", "", "mcmd=spawn x", "$kvs <uint>"]
        {
            let line = format!("0 C: {text}");
            let body = body(&[&line], &[]);
            assert!(body.contains("0  C:"), "{text:?}\n{body}");
        }
    }
}
