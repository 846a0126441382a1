//! What processes lawfully say in PMI-2.

use arbitrary::Result;
use pmi_scenario::ast::{Dialect, Stmt, Template};
use pmi_wire::Operation;
use pmi_wire::pmi2::Command;

use super::model::{Key, Model};
use crate::decisions::{percent, pick, shuffle};
use crate::fields::{Field, FieldList, body, field, text};
use crate::op::Op;
use crate::pieces::{agent, jobid, letters, own_rank, template};
use crate::plan::{Planned, ask, may_answer, must_answer, plain, request};
use crate::statement::children;

/// The limit that the draft has for values, in bytes.
const VALUE_MAX: i64 = 1024;

impl Model<'_, '_> {
    /// The start as single requests, which mutations can strike.
    pub(super) fn pmi2_start(&mut self) -> Result<()> {
        let mut all = Vec::new();
        for rank in 0..self.ranks {
            let several = self.u.ratio(1, 2)?;
            self.threads.several[rank as usize] = several;
            let offer = vec![field("cmd", "init"), field("pmi_version", "2"), field("pmi_subversion", "0")];
            let mut keys = vec![
                field("pmijobid", "job"),
                field("pmirank", own_rank()),
                field("threaded", if several { "TRUE" } else { "FALSE" }),
            ];
            shuffle(self.u, &mut keys)?;
            let fullinit = [field("cmd", "fullinit")].into_iter().chain(keys).collect();
            all.push(vec![ask(rank, Operation::Init, offer), ask(rank, Command::Fullinit, fullinit)]);
        }
        self.interleave(all)
    }

    /// Some rank may ask for the id of the job, so that it has a name from then on.
    pub(super) fn ask_jobid(&mut self) -> Result<()> {
        for rank in 0..self.ranks {
            self.threads.several[rank as usize] |= self.u.ratio(1, 4)?;
        }
        if self.u.ratio(1, 3)? {
            let rank = self.any_rank()?;
            self.plan.extend(plain(rank, Command::JobGetid));
            self.threads.jobid = true;
        }
        Ok(())
    }

    /// A request and its answer, or several that are under way together.
    pub(super) fn pmi2_requests(&mut self, rank: u32) -> Result<Vec<Planned>> {
        if !self.threads.several[rank as usize] || self.u.ratio(1, 4)? {
            return self.pmi2_request(rank);
        }
        let mut requests = Vec::new();
        let mut waits = Vec::new();
        for _ in 0..self.u.int_in_range(1..=3)? {
            for planned in self.pmi2_request(rank)? {
                match planned {
                    Planned::Request { rank, op, messages } => {
                        let messages = self.of_thread(messages);
                        requests.push(Planned::Request { rank, op, messages });
                    }
                    wait => waits.push(wait),
                }
            }
        }
        requests.extend(waits);
        Ok(requests)
    }

    /// The same with a `thrid` of its own, which all messages of a command have.
    fn of_thread(&mut self, mut messages: Vec<FieldList>) -> Vec<FieldList> {
        self.threads.last += 1;
        let thrid = match self.threads.last % 4 {
            0 => format!("0x7f{:08x}", self.threads.last),
            _ => self.threads.last.to_string(),
        };
        for message in &mut messages {
            message.insert(1.min(message.len()), field("thrid", thrid.as_str()));
        }
        messages
    }

    /// The entry into a fence that others have not entered yet. Meanwhile another thread of the process may ask for what needs
    /// nobody else.
    pub(super) fn pmi2_fence(&mut self, rank: u32, fence: FieldList) -> Result<()> {
        let several = self.threads.several[rank as usize];
        let messages = if several { self.of_thread(vec![fence]) } else { vec![fence] };
        self.plan.push(Planned::Request { rank, op: Command::KvsFence.into(), messages });
        if several && self.u.ratio(1, 3)? {
            let (command, fields) = match self.u.int_in_range(0..=1)? {
                0 => (Command::JobGetid, vec![field("cmd", "job-getid")]),
                _ => (
                    Command::InfoGetjobattr,
                    vec![field("cmd", "info-getjobattr"), field("key", "PMI_process_mapping")],
                ),
            };
            let messages = self.of_thread(vec![fields]);
            self.plan.push(Planned::Request { rank, op: command.into(), messages });
            self.plan.push(may_answer(rank));
        }
        Ok(())
    }

    fn pmi2_request(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let puts = self.swarm.puts * 48 / 100;
        Ok(match percent(self.u)? {
            _ if self.swarm.names && self.scope.names && self.u.ratio(1, 2)? => self.pmi2_name(rank)?,
            0..60 if self.swarm.attributes => match self.u.ratio(1, 2)? {
                true => self.put_attribute(rank)?,
                false => self.get_attribute(rank)?,
            },
            chance if self.swarm.keys_only && chance < self.swarm.puts => self.pmi2_put(rank)?,
            _ if self.swarm.keys_only => self.pmi2_get(rank)?,
            chance if chance < puts => self.pmi2_put(rank)?,
            0..48 => self.pmi2_get(rank)?,
            48..54 => plain(rank, Command::JobGetid),
            54..62 => self.put_attribute(rank)?,
            62..72 => self.get_attribute(rank)?,
            72..80 => {
                let key = pick(self.u, &["PMI_process_mapping", "universeSize", "hasNameServ", "missing"])?;
                let fields = vec![field("cmd", "info-getjobattr"), field("key", key)];
                ask(rank, Command::InfoGetjobattr, fields)
            }
            80..92 if self.scope.names => self.pmi2_name(rank)?,
            92.. if self.scope.spawn => self.pmi2_spawn(rank)?,
            _ => self.pmi2_get(rank)?,
        })
    }

    pub(super) fn pmi2_put(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let name = self.key(rank)?;
        let value = self.value_or(Self::usual_value)?;
        Ok(self.pmi2_put_of(rank, name, value))
    }

    pub(super) fn pmi2_put_of(&mut self, rank: u32, name: Template, value: Template) -> Vec<Planned> {
        let key = Field { key: "key".to_owned(), value: name.clone() };
        let value = Field { key: "value".to_owned(), value };
        self.fresh.push(Key { name, by: rank });
        ask(rank, Command::KvsPut, vec![field("cmd", "kvs-put"), key, value])
    }

    /// A value of any bytes and of lengths at the limits. Semicolons are doubled, as the draft has it.
    fn value(&mut self, key: &str) -> Result<Field> {
        let value = self.value_or(Self::usual_value)?;
        Ok(Field { key: key.to_owned(), value })
    }

    fn usual_value(&mut self) -> Result<Template> {
        Ok(match self.u.int_in_range(0..=15)? {
            0 => text(""),
            1 => template(vec![letters(pick(self.u, &[63, 64, 65, 255, 256])?)]),
            2 => template(vec![letters(pick(self.u, &[VALUE_MAX - 2, VALUE_MAX - 1])?)]),
            3 => template(vec![letters(VALUE_MAX)]),
            4 => text(pick(self.u, &["a=b", "=", "a=b=c", "cmd=kvs-get", "rc=0"])?),
            5 => text(pick(self.u, &["a b", " ", " a ", "a  b"])?),
            6 => text(pick(self.u, &["a;;b", ";;", "a;;", ";;a", "a;;;;b", "a;;key=b"])?),
            7 => {
                let mut bytes = Vec::new();
                for _ in 0..self.u.int_in_range(1..=9)? {
                    let byte: u8 = self.u.arbitrary()?;
                    bytes.extend(std::iter::repeat_n(byte, if byte == b';' { 2 } else { 1 }));
                }
                text(bytes)
            }
            8 => text("tag#0$description#host$port#4242$ifname#127.0.0.1$"),
            9 => template(vec![letters(self.u.int_in_range(1..=999)?)]),
            _ => text(format!("v{}", self.u.arbitrary::<u32>()?)),
        })
    }

    pub(super) fn pmi2_get(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let key = Field { key: "key".to_owned(), value: self.asked(rank)? };
        let mut fields = vec![field("cmd", "kvs-get")];
        if self.threads.jobid && self.u.ratio(1, 3)? {
            fields.push(field("jobid", jobid()));
        }
        if self.u.ratio(1, 2)? {
            let ranks = (0..self.ranks).map(|r| r.to_string());
            let hints: Vec<String> = ranks.chain(["-1".to_owned()]).collect();
            fields.push(field("srcid", self.u.choose(&hints)?.clone()));
        }
        fields.push(key);
        Ok(ask(rank, Command::KvsGet, fields))
    }

    pub(super) fn pmi2_get_of(rank: u32, key: Template) -> Vec<Planned> {
        let key = Field { key: "key".to_owned(), value: key };
        ask(rank, Command::KvsGet, vec![field("cmd", "kvs-get"), key])
    }

    fn put_attribute(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let known = &self.threads.attributes;
        // Whether it can be put again, the draft does not say; a server that takes it has another value then.
        let key = if !known.is_empty() && self.u.ratio(1, 4)? {
            self.u.choose(known)?.clone()
        } else {
            let key = format!("a{rank}-{}", known.len());
            self.threads.attributes.push(key.clone());
            key
        };
        let fields = vec![field("cmd", "info-putnodeattr"), field("key", key), self.value("value")?];
        Ok(ask(rank, Command::InfoPutnodeattr, fields))
    }

    fn get_attribute(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let known = &self.threads.attributes;
        let key = match known.is_empty() {
            true => "missing".to_owned(),
            false => self.u.choose(known)?.clone(),
        };
        let mut fields = vec![field("cmd", "info-getnodeattr"), field("key", key)];
        if self.u.ratio(1, 2)? {
            fields.push(field("wait", "FALSE"));
        }
        Ok(ask(rank, Command::InfoGetnodeattr, fields))
    }

    /// Some ranks may wait for an attribute that another puts, or one with several requests under way puts itself; seldom
    /// nobody does, and they wait for ever.
    pub(super) fn wait_for_attribute(&mut self) -> Result<()> {
        if !self.u.ratio(1, 3)? {
            return Ok(());
        }
        let by = self.any_rank()?;
        let key = format!("w{by}-{}", self.threads.attributes.len());
        let get =
            || vec![field("cmd", "info-getnodeattr"), field("key", key.as_str()), field("wait", "TRUE")];
        let mut waiting = Vec::new();
        for rank in 0..self.ranks {
            let several = self.threads.several[rank as usize];
            if (rank != by || several) && self.u.ratio(2, 3)? {
                let messages = if several { self.of_thread(vec![get()]) } else { vec![get()] };
                self.plan.push(Planned::Request { rank, op: Command::InfoGetnodeattr.into(), messages });
                waiting.push(rank);
            }
        }
        let never = !waiting.contains(&by) && self.u.ratio(1, 20)?;
        if !never {
            let message =
                vec![field("cmd", "info-putnodeattr"), field("key", key.as_str()), self.value("value")?];
            let several = self.threads.several[by as usize];
            let messages = if several { self.of_thread(vec![message]) } else { vec![message] };
            self.plan.push(Planned::Request { rank: by, op: Command::InfoPutnodeattr.into(), messages });
            self.plan.push(must_answer(by, Command::InfoPutnodeattr));
        }
        shuffle(self.u, &mut waiting)?;
        // On another node it is another's attribute.
        let wait = |rank| match never || self.nodes > 1 {
            true => may_answer(rank),
            false => must_answer(rank, Command::InfoGetnodeattr),
        };
        self.plan.extend(waiting.into_iter().map(wait));
        self.threads.attributes.push(key);
        Ok(())
    }

    fn pmi2_name(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let (command, name) = match self.u.int_in_range(0..=7)? {
            0..=2 => (Command::NamePublish, self.new_service()?),
            3..=5 => (Command::NameLookup, self.known_service()?),
            _ => (Command::NameUnpublish, self.known_service()?),
        };
        let port = if command == Command::NamePublish { Some(self.port()?) } else { None };
        let pairs = self.u.int_in_range(0..=1)?;
        Ok(Self::pmi2_name_of(rank, command, name, port, pairs))
    }

    /// A request about a name, with so many pairs of information.
    pub(super) fn pmi2_name_of(
        rank: u32,
        command: Command,
        name: Template,
        port: Option<Template>,
        pairs: u32,
    ) -> Vec<Planned> {
        let mut fields = vec![field("cmd", command.name()), Field { key: "name".to_owned(), value: name }];
        fields.extend(port.map(|value| Field { key: "port".to_owned(), value }));
        fields.push(field("infokeycount", pairs.to_string()));
        for i in 0..pairs {
            fields.push(field(&format!("infokey{i}"), "range"));
            fields.push(field(&format!("infoval{i}"), "local"));
        }
        ask(rank, command, fields)
    }

    /// A spawn as one message.
    pub(super) fn pmi2_spawn(&mut self, rank: u32) -> Result<Vec<Planned>> {
        self.groups += 1;
        let of_group = format!("tag#{}$port#4242$", self.groups);
        let u = &mut *self.u;
        let programs = u.int_in_range(1..=2)?;
        let preput = u.int_in_range(0..=2)?;
        let mut fields = vec![
            field("cmd", "spawn"),
            field("ncmds", programs.to_string()),
            field("preputcount", preput.to_string()),
        ];
        for i in 0..preput {
            fields.push(field(&format!("ppkey{i}"), format!("parent{i}")));
            fields.push(field(&format!("ppval{i}"), format!("{of_group}{i}")));
        }
        for _ in 0..programs {
            let processes = field("maxprocs", u.int_in_range(1..=2)?.to_string());
            let arguments = u.int_in_range(0..=2)?;
            fields.extend([field("subcmd", agent()), processes, field("argc", arguments.to_string())]);
            fields.extend((0..arguments).map(|i| field(&format!("argv{i}"), "-x")));
            let pairs = u.int_in_range(0..=1)?;
            fields.push(field("infokeycount", pairs.to_string()));
            for i in 0..pairs {
                fields.push(field(&format!("infokey{i}"), "wdir"));
                fields.push(field(&format!("infoval{i}"), "/"));
            }
        }
        Ok(ask(rank, Command::Spawn, fields))
    }

    /// What those who were spawned ask for: what was put for them, what their parents have as well, and what they have put.
    pub(super) fn pmi2_children(&mut self, group: u32) -> Result<Vec<Stmt>> {
        let mut requests: Vec<(Op, Template)> = Vec::new();
        let mut ask = |command: Command, fields: FieldList| {
            let all: FieldList = [field("cmd", command.name())].into_iter().chain(fields).collect();
            requests.push((command.into(), body(&all)));
        };
        let named = |key: &str, text: &str| {
            let mut named = field(key, text);
            named.value.pieces.push(own_rank());
            named
        };
        let mut rounds = 0;
        for _ in 0..self.u.int_in_range(1..=8)? {
            match self.u.int_in_range(0..=11)? {
                0 => ask(Command::KvsGet, vec![field("key", "parent0")]),
                1 => ask(Command::KvsGet, vec![field("key", "parent1")]),
                2 => {
                    let key = Field { key: "key".to_owned(), value: self.asked(0)? };
                    ask(Command::KvsGet, vec![key]);
                }
                3 => ask(Command::JobGetid, Vec::new()),
                4 => ask(Command::InfoGetjobattr, vec![field("key", "PMI_process_mapping")]),
                5 => ask(Command::InfoPutnodeattr, vec![field("key", "a0-0"), field("value", own_rank())]),
                6 if self.scope.names => {
                    let name = Field { key: "name".to_owned(), value: self.known_service()? };
                    ask(Command::NameLookup, vec![name, field("infokeycount", "0")]);
                }
                7 if self.scope.names => {
                    let of = format!("of-child-{group}-");
                    let count = field("infokeycount", "0");
                    ask(Command::NamePublish, vec![named("name", &of), named("port", "port-"), count]);
                    self.add_service(text(format!("{of}0")));
                }
                _ => {
                    // A key that a process of the first group may have put, too.
                    let key = format!("k{rounds}-");
                    let value = named("value", &format!("of-child-{group}-{rounds}-"));
                    ask(Command::KvsPut, vec![named("key", &key), value]);
                    ask(Command::KvsFence, Vec::new());
                    ask(Command::KvsGet, vec![field("key", format!("{key}0"))]);
                    rounds += 1;
                }
            }
        }
        ask(Command::Finalize, Vec::new());
        Ok(children(Dialect::Pmi2, group, requests))
    }

    /// The end of the program, in one of its spellings.
    pub(super) fn pmi2_abort(&mut self, rank: u32) -> Result<Planned> {
        let mut fields = vec![field("cmd", "abort")];
        match self.u.int_in_range(0..=4)? {
            0 => fields.push(field("isworld", "TRUE")),
            1 => fields.extend([field("isworld", "TRUE"), field("msg", "the end")]),
            2 => fields.extend([field("exitcode", "7"), field("message", "the end")]),
            3 => fields.extend([field("isworld", "FALSE"), field("msg", "")]),
            _ => {}
        }
        Ok(request(rank, Command::Abort, fields))
    }
}
