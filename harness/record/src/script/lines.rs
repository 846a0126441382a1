//! Steps for messages in lines: those of PMI-1, and the init line of PMI-2 with its answer.

use pmi_scenario::ids;
use std::fmt::Write;

use pmi_wire::{Decoded, MappingForm, Operation, Proc, SpawnAssembler, SpawnLimits};

use super::fold::StepOrder;
use super::state::{PendingLine, RESERVED, ScenarioWriter, escaped, is_plain, variable};

/// Returns the permitted position of a request.
fn order(asked: &PendingLine) -> StepOrder {
    match asked {
        PendingLine::Op(
            Operation::Init
            | Operation::Maxes
            | Operation::Universe
            | Operation::Appnum
            | Operation::Kvsname
            | Operation::Finalize,
        )
        | PendingLine::Put { .. }
        | PendingLine::Get { .. } => StepOrder::Free,
        PendingLine::Op(Operation::Barrier) => StepOrder::Enters,
        // Names and spawned processes are visible to all ranks at once, and an abort ends all of them.
        PendingLine::Op(_) | PendingLine::Lookup { .. } | PendingLine::Unknown => StepOrder::Fixed,
    }
}

impl ScenarioWriter {
    // ----- what the client sent ------------------------------------------------------------------------------------

    pub(super) fn request(&mut self, p: Proc, message: &Decoded<'_>) {
        let line = message.text;
        if self.rank(p).block.is_some() || SpawnAssembler::is_spawn_start(line) {
            return self.spawn_line(p, line);
        }
        let field = |key| message.raw(key).unwrap_or_default();
        let service = || field("service").to_vec();
        let asked = match message.operation() {
            Some(Operation::Put) => {
                PendingLine::Put { valid: self.put(p, field("kvsname"), field("key"), field("value")) }
            }
            Some(Operation::Get) => PendingLine::Get { key: field("key").to_vec() },
            Some(Operation::Lookup) => PendingLine::Lookup { service: service() },
            Some(operation @ Operation::Publish) => {
                self.ports.insert(service(), field("port").to_vec());
                PendingLine::Op(operation)
            }
            Some(operation @ Operation::Unpublish) => {
                self.ports.remove(&service());
                PendingLine::Op(operation)
            }
            Some(operation) => PendingLine::Op(operation),
            None => PendingLine::Unknown,
        };
        self.names |= matches!(
            asked,
            PendingLine::Op(Operation::Publish | Operation::Unpublish) | PendingLine::Lookup { .. }
        );
        let rank = self.rank(p);
        match &asked {
            PendingLine::Op(Operation::Barrier) => rank.entered += 1,
            PendingLine::Op(Operation::Finalize) => rank.finalized = true,
            PendingLine::Op(Operation::Abort) => {
                self.aborted = Some(p.group);
                self.trouble = true;
            }
            _ => {}
        }
        let order = match &asked {
            PendingLine::Put { .. } | PendingLine::Get { .. } => self.order_with_names(p),
            other => order(other),
        };
        self.rank(p).asked.push_back(asked);
        let text = self.sent(p, line);
        self.step_in(p, order, 'C', "", text);
    }

    /// Writes a line as it is sent, with the kvsname replaced by its name.
    fn sent(&mut self, p: Proc, line: &[u8]) -> String {
        if line.is_empty() {
            return "<partial> <0x0a>".into();
        }
        if !line.starts_with(b"cmd=") {
            // The line might be mistaken for a word of the scenario language.
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

    /// Records a put. Returns whether every server must accept it.
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
                    self.rank(p).asked.push_back(PendingLine::Op(Operation::Spawn));
                }
            }
            Err(_) => {
                self.rank(p).asked.push_back(PendingLine::Unknown);
                self.step(p, 'C', "", lines.iter().map(|l| escaped(l)).collect::<Vec<_>>().join("\n"));
            }
        }
    }

    // ----- what the server has to answer ---------------------------------------------------------------------------

    pub(super) fn response(&mut self, p: Proc, response: &Decoded<'_>) {
        let Some(asked) = self.rank(p).asked.pop_front() else { return };
        let Some(operation) = response.operation() else { return };
        let ok = response.is_success();
        let order = match order(&asked) {
            StepOrder::Enters => StepOrder::Leaves,
            other => other,
        };
        let (cites, text) = match (asked, operation) {
            (PendingLine::Op(Operation::Init), _) if ok => {
                let [pmi1, pmi2] = [(ids::RFC13_ABNF_S_INIT, "<uint>"), (ids::PMI2_COMMON_VERSION, "2")];
                let (cites, version) = self.dialect.pick([pmi1, pmi2]);
                let text = format!("cmd=response_to_init rc=ok pmi_version={version} pmi_subversion=<uint>");
                (cites, text)
            }
            (PendingLine::Op(Operation::Maxes), _) if ok && response.maxes().is_some() => {
                self.rank(p).maxes = response.maxes();
                let text = "cmd=maxes rc=ok kvsname_max=<uint> keylen_max=<uint> vallen_max=<uint>";
                (ids::RFC13_MAXES_LIMITS, text.into())
            }
            (PendingLine::Op(Operation::Kvsname), Operation::Kvsname)
                if ok && response.raw("kvsname").is_some() =>
            {
                let name = response.raw("kvsname").unwrap_or_default();
                self.group(p.group).kvsname.get_or_insert_with(|| name.to_vec());
                self.rank(p).has_names = true;
                let text = format!("cmd=my_kvsname rc=ok kvsname=${}:word", variable(p.group));
                (ids::RFC13_KVSNAME_COMMON, text)
            }
            (PendingLine::Op(Operation::Barrier), _) => {
                self.rank(p).left += 1;
                match ok {
                    true => (ids::RFC13_BARRIER_RELEASED, "cmd=barrier_out rc=ok".into()),
                    false => (self.any(), "cmd=barrier_out".into()),
                }
            }
            (PendingLine::Op(Operation::Finalize), _) if ok => {
                (ids::RFC13_FINALIZE_ACK, "cmd=finalize_ack rc=ok".into())
            }
            (PendingLine::Op(Operation::Spawn), _) if ok => {
                (ids::RFC13_ABNF_C_SPAWN, "cmd=spawn_result rc=ok".into())
            }
            (PendingLine::Put { valid: true }, _) if ok => {
                (ids::RFC13_ABNF_C_PUT, "cmd=put_result rc=ok".into())
            }
            (PendingLine::Get { key }, Operation::Get) => self.got(p, &key, ok, response.raw("value")),
            (PendingLine::Lookup { service }, Operation::Lookup)
                if ok
                    && self.ports.get(&service).is_some_and(|known| response.raw("port") == Some(known)) =>
            {
                let port = escaped(&self.ports[&service]);
                (ids::RFC13_PUBLISH_LOOKUP, format!("cmd=lookup_result rc=ok port={port}"))
            }
            // The answer to abort is a bare newline, and no client waits for it.
            (PendingLine::Unknown | PendingLine::Op(Operation::Abort), _) => return,
            (_, _) => match operation.response_cmd() {
                Some(cmd) => (self.any(), format!("cmd={cmd}")),
                None => return,
            },
        };
        self.step_in(p, order, 'S', cites, text);
    }

    fn got(&mut self, p: Proc, key: &[u8], ok: bool, value: Option<&[u8]>) -> (&'static str, String) {
        let anything = (self.any(), "cmd=get_result".to_owned());
        if key == b"PMI_process_mapping" {
            return match value.map(MappingForm::classify) {
                Some(MappingForm::Rfc(_)) if ok => {
                    (ids::RFC13_MAPPING_PROVIDED, "cmd=get_result rc=ok value=<mapping>".into())
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
            (Some(known), None) => (known, ids::RFC13_SPAWN_PREPUT),
            (None, Some((known, entered))) if left > *entered => {
                (known, ids::RFC13_PUT_VISIBLE_AFTER_BARRIER)
            }
            (None, None) if !ok => return (ids::RFC13_ERROR_RC_NONZERO, "cmd=get_result rc=fail".into()),
            // The value was put twice, or need not be visible yet.
            _ => return anything,
        };
        if !ok || value != Some(known) || group.twice.contains(key) {
            return anything;
        }
        let value = if is_plain(known) { escaped(known) } else { "<any>".into() };
        (cites, format!("cmd=get_result rc=ok value={value}"))
    }
}
