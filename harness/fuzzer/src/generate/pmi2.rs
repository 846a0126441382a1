//! What processes lawfully say in PMI-2.

use arbitrary::Result;
use pmi_wire::Operation;
use pmi_wire::pmi2::Command;

use super::pmi1::{ask, plain};
use super::server::Model;
use crate::case::{agent, jobid, letters, own_rank, template};
use crate::decisions::{percent, pick, shuffle};
use crate::fields::{Field, Message, field, text};
use crate::plan::{Planned, may_answer, must_answer, request};

/// The limits that the draft has for keys and values, in bytes.
const KEY_MAX: usize = 64;
const VALUE_MAX: i64 = 1024;

/// What processes have beside what they have in PMI-1.
pub(super) struct Threads {
    /// Ranks that have several requests under way at once.
    several: Vec<bool>,
    /// Number of the last request that has a `thrid`.
    last: u32,
    /// The id of the job has been asked for.
    jobid: bool,
    /// Attributes that processes have put.
    attributes: Vec<String>,
}

impl Threads {
    /// Of so many ranks.
    pub(super) fn of(ranks: u32) -> Self {
        Self { several: vec![false; ranks as usize], last: 0, jobid: false, attributes: Vec::new() }
    }
}

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
                        let messages = messages.into_iter().map(|m| self.of_thread(m)).collect();
                        requests.push(Planned::Request { rank, op, messages });
                    }
                    wait => waits.push(wait),
                }
            }
        }
        requests.extend(waits);
        Ok(requests)
    }

    /// The same with a `thrid` of its own.
    fn of_thread(&mut self, mut message: Message) -> Message {
        self.threads.last += 1;
        let thrid = match self.threads.last % 4 {
            0 => format!("0x7f{:08x}", self.threads.last),
            _ => self.threads.last.to_string(),
        };
        message.insert(1.min(message.len()), field("thrid", thrid));
        message
    }

    fn pmi2_request(&mut self, rank: u32) -> Result<Vec<Planned>> {
        Ok(match percent(self.u)? {
            0..28 => self.pmi2_put(rank)?,
            28..48 => self.pmi2_get(rank)?,
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
        let n = self.keys[rank as usize];
        self.keys[rank as usize] += 1;
        let mut key = format!("k{rank}-{n}");
        if self.u.int_in_range(0..=11)? == 11 {
            // As long as a key may be, or almost.
            let long = pick(self.u, &[KEY_MAX, KEY_MAX - 1])?;
            key += &"x".repeat(long.saturating_sub(key.len()));
        }
        let fields = vec![field("cmd", "kvs-put"), field("key", key.as_str()), self.value("value")?];
        self.fresh.push((rank, key));
        Ok(ask(rank, Command::KvsPut, fields))
    }

    /// A value of any bytes and of lengths at the limits. Semicolons are doubled, as the draft has it.
    fn value(&mut self, key: &str) -> Result<Field> {
        let value = match self.u.int_in_range(0..=15)? {
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
        };
        Ok(Field { key: key.to_owned(), value })
    }

    pub(super) fn pmi2_get(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let own = self.fresh.iter().filter(|(r, _)| *r == rank).map(|(_, key)| key);
        let all: Vec<String> = self.visible.iter().chain(own).cloned().collect();
        let key = match self.u.int_in_range(0..=9)? {
            0 => "missing".to_owned(),
            1 => "PMI_process_mapping".to_owned(),
            _ if all.is_empty() => format!("k{}-0", self.any_rank()?),
            _ => self.u.choose(&all)?.clone(),
        };
        let mut fields = vec![field("cmd", "kvs-get")];
        if self.threads.jobid && self.u.ratio(1, 3)? {
            fields.push(field("jobid", jobid()));
        }
        if self.u.ratio(1, 2)? {
            let ranks = (0..self.ranks).map(|r| r.to_string());
            let hints: Vec<String> = ranks.chain(["-1".to_owned()]).collect();
            fields.push(field("srcid", self.u.choose(&hints)?.clone()));
        }
        fields.push(field("key", key));
        Ok(ask(rank, Command::KvsGet, fields))
    }

    fn put_attribute(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let key = format!("a{rank}-{}", self.threads.attributes.len());
        self.threads.attributes.push(key.clone());
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
                let message = if several { self.of_thread(get()) } else { get() };
                self.plan.push(request(rank, Command::InfoGetnodeattr, message));
                waiting.push(rank);
            }
        }
        let never = !waiting.contains(&by) && self.u.ratio(1, 20)?;
        if !never {
            let message =
                vec![field("cmd", "info-putnodeattr"), field("key", key.as_str()), self.value("value")?];
            let several = self.threads.several[by as usize];
            let message = if several { self.of_thread(message) } else { message };
            self.plan.push(request(by, Command::InfoPutnodeattr, message));
            self.plan.push(must_answer(by, Command::InfoPutnodeattr));
        }
        shuffle(self.u, &mut waiting)?;
        let wait = |rank| match never {
            true => may_answer(rank),
            false => must_answer(rank, Command::InfoGetnodeattr),
        };
        self.plan.extend(waiting.into_iter().map(wait));
        self.threads.attributes.push(key);
        Ok(())
    }

    fn pmi2_name(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let known = format!("service-{}", self.u.int_in_range(0..=self.services)?);
        let which = self.u.int_in_range(0..=3)?;
        let (command, name) = match which {
            0 | 1 => {
                self.services += 1;
                (Command::NamePublish, format!("service-{}", self.services))
            }
            2 => (Command::NameLookup, known),
            _ => (Command::NameUnpublish, known),
        };
        let mut fields = vec![field("cmd", command.name()), field("name", name)];
        if command == Command::NamePublish {
            fields.push(field("port", pick(self.u, &["tag#0$port#4242$", "p", "a b", "a=b"])?));
        }
        let pairs = self.u.int_in_range(0..=1)?;
        fields.push(field("infokeycount", pairs.to_string()));
        for i in 0..pairs {
            fields.push(field(&format!("infokey{i}"), "range"));
            fields.push(field(&format!("infoval{i}"), "local"));
        }
        Ok(ask(rank, command, fields))
    }

    fn pmi2_spawn(&mut self, rank: u32) -> Result<Vec<Planned>> {
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
            fields.push(field(&format!("ppval{i}"), "tag#0$port#4242$"));
        }
        for _ in 0..programs {
            fields.push(field("subcmd", agent()));
            fields.push(field("maxprocs", u.int_in_range(1..=2)?.to_string()));
            let arguments = u.int_in_range(0..=2)?;
            fields.push(field("argc", arguments.to_string()));
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
