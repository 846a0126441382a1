//! What processes lawfully say in PMI-1.

use arbitrary::Result;
use pmi_wire::Operation;

use super::server::Model;
use crate::case::{Limit, agent, kvsname, letters, letters_to, literal, push};
use crate::decisions::percent;
use crate::fields::{Message, end_of_command, field};
use crate::op::Op;
use crate::plan::{Planned, must_answer, request};

impl Model<'_, '_> {
    /// The start as single requests, which mutations can strike.
    pub(super) fn pmi1_start(&mut self) -> Result<()> {
        let start = |rank| {
            let init = vec![field("cmd", "init"), field("pmi_version", "1"), field("pmi_subversion", "1")];
            vec![
                ask(rank, Operation::Init, init),
                ask(rank, Operation::Maxes, vec![field("cmd", "get_maxes")]),
                ask(rank, Operation::Kvsname, vec![field("cmd", "get_my_kvsname")]),
            ]
        };
        self.interleave((0..self.ranks).map(start).collect())
    }

    pub(super) fn pmi1_request(&mut self, rank: u32) -> Result<Vec<Planned>> {
        Ok(match percent(self.u)? {
            0..35 => self.pmi1_put(rank)?,
            35..60 => self.pmi1_get(rank)?,
            60..66 => plain(rank, Operation::Maxes),
            66..72 => plain(rank, Operation::Kvsname),
            72..78 => plain(rank, Operation::Universe),
            78..84 => plain(rank, Operation::Appnum),
            84..94 if self.scope.names => self.pmi1_name(rank)?,
            94.. if self.scope.spawn => self.pmi1_spawn(rank)?,
            _ => self.pmi1_get(rank)?,
        })
    }

    pub(super) fn pmi1_put(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let n = self.keys[rank as usize];
        self.keys[rank as usize] += 1;
        let key = format!("k{rank}-{n}");
        let value = match self.u.int_in_range(0..=11)? {
            0 => letters_to(Limit::Value, -1),
            1 => letters_to(Limit::Value, -2),
            2 => literal("a"),
            3 => literal("tag#0$description#host$port#4242$ifname#127.0.0.1$"),
            4 => letters(self.u.int_in_range(1..=199)?),
            _ => literal(format!("v{}", self.u.arbitrary::<u32>()?)),
        };
        let mut named = field("key", key.as_str());
        if self.u.int_in_range(0..=11)? == 11 {
            // As long as a key may be; the number keeps it apart from others.
            push(&mut named.value, letters_to(Limit::Key, -1 - key.len() as i64));
        } else {
            self.fresh.push((rank, key));
        }
        let fields = vec![field("cmd", "put"), field("kvsname", kvsname()), named, field("value", value)];
        Ok(ask(rank, Operation::Put, fields))
    }

    pub(super) fn pmi1_get(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let own = self.fresh.iter().filter(|(r, _)| *r == rank).map(|(_, key)| key);
        let all: Vec<String> = self.visible.iter().chain(own).cloned().collect();
        let key = match self.u.int_in_range(0..=9)? {
            // Only what the proxy has by itself.
            _ if self.held == Some(Operation::Get) && all.is_empty() => return self.pmi1_put(rank),
            0 | 1 if self.held == Some(Operation::Get) => all[0].clone(),
            0 => "missing".to_owned(),
            1 => "PMI_process_mapping".to_owned(),
            _ if all.is_empty() => format!("k{}-0", self.any_rank()?),
            _ => self.u.choose(&all)?.clone(),
        };
        let fields = vec![field("cmd", "get"), field("kvsname", kvsname()), field("key", key)];
        Ok(ask(rank, Operation::Get, fields))
    }

    fn pmi1_name(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let known = format!("service-{}", self.u.int_in_range(0..=self.services)?);
        Ok(match self.u.int_in_range(0..=3)? {
            0 | 1 => {
                self.services += 1;
                let service = field("service", format!("service-{}", self.services));
                let fields = vec![field("cmd", "publish_name"), service, field("port", "tag#0$port#4242$")];
                ask(rank, Operation::Publish, fields)
            }
            2 => ask(rank, Operation::Lookup, vec![field("cmd", "lookup_name"), field("service", known)]),
            _ => {
                ask(rank, Operation::Unpublish, vec![field("cmd", "unpublish_name"), field("service", known)])
            }
        })
    }

    fn pmi1_spawn(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let u = &mut *self.u;
        let programs = u.int_in_range(1..=2)?;
        let mut messages = Vec::new();
        for so_far in 1..=programs {
            let mut fields = vec![
                field("mcmd", "spawn"),
                field("nprocs", u.int_in_range(1..=2)?.to_string()),
                field("execname", agent()),
                field("totspawns", programs.to_string()),
                field("spawnssofar", so_far.to_string()),
            ];
            // From 1, as every implementation counts them and RFC 13 does in its example.
            let args = u.int_in_range(0..=2)?;
            fields.extend((1..=args).map(|i| field(&format!("arg{i}"), "-x")));
            fields.push(field("argcnt", args.to_string()));
            let preput = u.int_in_range(0..=2)?;
            fields.push(field("preput_num", preput.to_string()));
            for i in 0..preput {
                fields.push(field(&format!("preput_key_{i}"), format!("parent{i}")));
                fields.push(field(&format!("preput_val_{i}"), "tag#0$port#4242$"));
            }
            let info = u.int_in_range(0..=1)?;
            fields.push(field("info_num", info.to_string()));
            for i in 0..info {
                fields.push(field(&format!("info_key_{i}"), "wdir"));
                fields.push(field(&format!("info_val_{i}"), "/"));
            }
            messages.extend(fields.into_iter().map(|f| vec![f]));
            messages.push(vec![end_of_command()]);
        }
        let op = Operation::Spawn.into();
        Ok(vec![Planned::Request { rank, op, messages }, must_answer(rank, op)])
    }

    /// The end of the program.
    pub(super) fn pmi1_abort(rank: u32) -> Planned {
        request(rank, Operation::Abort, vec![field("cmd", "abort"), field("exitcode", "7")])
    }
}

/// A request of one message and the wait for its answer.
pub(super) fn ask(rank: u32, op: impl Into<Op>, fields: Message) -> Vec<Planned> {
    let op = op.into();
    vec![request(rank, op, fields), must_answer(rank, op)]
}

/// A request without arguments.
pub(super) fn plain(rank: u32, op: impl Into<Op>) -> Vec<Planned> {
    let op = op.into();
    ask(rank, op, vec![field("cmd", op.name())])
}
