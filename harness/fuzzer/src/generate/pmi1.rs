//! What processes lawfully say in PMI-1.

use arbitrary::Result;
use pmi_scenario::ast::{Dialect, Stmt, Template};
use pmi_wire::Operation;

use super::model::{Key, Model};
use crate::decisions::percent;
use crate::fields::{Field, FieldList, end_of_command, field, line, text};
use crate::op::Op;
use crate::pieces::{Limit, agent, child_kvsname, kvsname, letters, letters_to, literal, own_rank, template};
use crate::plan::{Planned, ask, must_answer, plain, request};
use crate::statement::children;

impl Model<'_, '_> {
    /// The start as single requests, which mutations can strike.
    pub(super) fn pmi1_start(&mut self) -> Result<()> {
        let subversion = if self.speaks12 { "2" } else { "1" };
        let start = |rank| {
            let init =
                vec![field("cmd", "init"), field("pmi_version", "1"), field("pmi_subversion", subversion)];
            vec![
                ask(rank, Operation::Init, init),
                ask(rank, Operation::Maxes, vec![field("cmd", "get_maxes")]),
                ask(rank, Operation::Kvsname, vec![field("cmd", "get_my_kvsname")]),
            ]
        };
        self.interleave((0..self.ranks).map(start).collect())
    }

    pub(super) fn pmi1_request(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let puts = self.swarm.puts * 60 / 100;
        Ok(match percent(self.u)? {
            _ if self.swarm.names && self.scope.names && self.u.ratio(1, 2)? => self.pmi1_name(rank)?,
            chance if self.swarm.keys_only && chance < self.swarm.puts => self.pmi1_put(rank)?,
            _ if self.swarm.keys_only => self.pmi1_get(rank)?,
            chance if chance < puts => self.pmi1_put(rank)?,
            0..60 => self.pmi1_get(rank)?,
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
        let name = self.key(rank)?;
        let value = self.value_or(|model| {
            let piece = match model.u.int_in_range(0..=11)? {
                0 => letters_to(Limit::Value, -1),
                1 => letters_to(Limit::Value, -2),
                2 => literal("a"),
                3 => literal("tag#0$description#host$port#4242$ifname#127.0.0.1$"),
                4 => letters(model.u.int_in_range(1..=199)?),
                _ => literal(format!("v{}", model.u.arbitrary::<u32>()?)),
            };
            Ok(template(vec![piece]))
        })?;
        Ok(self.pmi1_put_of(rank, name, value))
    }

    pub(super) fn pmi1_put_of(&mut self, rank: u32, name: Template, value: Template) -> Vec<Planned> {
        let key = Field { key: "key".to_owned(), value: name.clone() };
        let value = Field { key: "value".to_owned(), value };
        self.fresh.push(Key { name, by: rank });
        let fields = vec![field("cmd", "put"), field("kvsname", kvsname()), key, value];
        ask(rank, Operation::Put, fields)
    }

    pub(super) fn pmi1_get(&mut self, rank: u32) -> Result<Vec<Planned>> {
        if self.held == Some(Operation::Get) {
            // Only what the proxy has by itself.
            let own = self.fresh.iter().filter(|key| key.by == rank);
            let Some(there) = self.visible.iter().chain(own).map(|key| key.name.clone()).next() else {
                return self.pmi1_put(rank);
            };
            return Ok(Self::pmi1_get_of(rank, there));
        }
        let key = self.asked(rank)?;
        Ok(Self::pmi1_get_of(rank, key))
    }

    pub(super) fn pmi1_get_of(rank: u32, key: Template) -> Vec<Planned> {
        let key = Field { key: "key".to_owned(), value: key };
        ask(rank, Operation::Get, vec![field("cmd", "get"), field("kvsname", kvsname()), key])
    }

    fn pmi1_name(&mut self, rank: u32) -> Result<Vec<Planned>> {
        Ok(match self.u.int_in_range(0..=7)? {
            0..=2 => {
                let (name, port) = (self.new_service()?, self.port()?);
                Self::pmi1_publish_of(rank, name, port)
            }
            3..=5 => Self::pmi1_name_of(rank, Operation::Lookup, self.known_service()?),
            _ => Self::pmi1_name_of(rank, Operation::Unpublish, self.known_service()?),
        })
    }

    pub(super) fn pmi1_publish_of(rank: u32, name: Template, port: Template) -> Vec<Planned> {
        let service = Field { key: "service".to_owned(), value: name };
        let port = Field { key: "port".to_owned(), value: port };
        ask(rank, Operation::Publish, vec![field("cmd", "publish_name"), service, port])
    }

    /// A lookup or an unpublish.
    pub(super) fn pmi1_name_of(rank: u32, op: Operation, name: Template) -> Vec<Planned> {
        let service = Field { key: "service".to_owned(), value: name };
        ask(rank, op, vec![field("cmd", op.request_cmd()), service])
    }

    /// What those who were spawned ask for: what was put for them, what their parents have as well, and what they have put.
    pub(super) fn pmi1_children(&mut self, group: u32) -> Result<Vec<Stmt>> {
        let mut requests: Vec<(Op, Template)> = Vec::new();
        let mut ask = |op: Operation, fields: FieldList| {
            let all: FieldList = [field("cmd", op.request_cmd())].into_iter().chain(fields).collect();
            requests.push((op.into(), line(&all)));
        };
        let of_space = |fields: FieldList| [vec![field("kvsname", child_kvsname())], fields].concat();
        let named = |key: &str, text: &str| {
            let mut named = field(key, text);
            named.value.pieces.push(own_rank());
            named
        };
        let mut rounds = 0;
        for _ in 0..self.u.int_in_range(1..=8)? {
            match self.u.int_in_range(0..=8)? {
                0 => ask(Operation::Get, of_space(vec![field("key", "parent0")])),
                1 => ask(Operation::Get, of_space(vec![field("key", "parent1")])),
                2 => {
                    let key = Field { key: "key".to_owned(), value: self.asked(0)? };
                    ask(Operation::Get, of_space(vec![key]));
                }
                3 if self.scope.names => {
                    let service = Field { key: "service".to_owned(), value: self.known_service()? };
                    ask(Operation::Lookup, vec![service]);
                }
                4 if self.scope.names => {
                    let of = format!("of-child-{group}-");
                    ask(Operation::Publish, vec![named("service", &of), named("port", "port-")]);
                    self.add_service(text(format!("{of}0")));
                }
                5 => ask(Operation::Universe, Vec::new()),
                _ => {
                    // A key that a process of the first group may have put, too.
                    let key = format!("k{rounds}-");
                    let value = named("value", &format!("of-child-{group}-{rounds}-"));
                    ask(Operation::Put, of_space(vec![named("key", &key), value]));
                    ask(Operation::Barrier, Vec::new());
                    ask(Operation::Get, of_space(vec![field("key", format!("{key}0"))]));
                    rounds += 1;
                }
            }
        }
        ask(Operation::Finalize, Vec::new());
        Ok(children(Dialect::Pmi1, group, requests))
    }

    /// A spawn. What is put for those who are spawned tells their group from others.
    pub(super) fn pmi1_spawn(&mut self, rank: u32) -> Result<Vec<Planned>> {
        self.groups += 1;
        let of_group = format!("tag#{}$port#4242$", self.groups);
        let u = &mut *self.u;
        let programs = u.int_in_range(1..=2)?;
        // All programs tell the same of it, as MPICH's do.
        let preput = u.int_in_range(0..=2)?;
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
            fields.push(field("preput_num", preput.to_string()));
            for i in 0..preput {
                fields.push(field(&format!("preput_key_{i}"), format!("parent{i}")));
                fields.push(field(&format!("preput_val_{i}"), format!("{of_group}{i}")));
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
