//! Cases for servers from a model of PMI-1: what processes lawfully say, in an order over all ranks that is drawn, with none to
//! two mutations.

use std::collections::BTreeSet;

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::UnderTest;
use pmi_wire::Operation;

use super::{Generator, upstream};
use crate::case::{Case, Limit, agent, exit, join, kvsname, leave, letters, letters_to, literal, push};
use crate::decisions::{percent, pick, shuffle};
use crate::fields::{Message, end_of_command, field};
use crate::mutate::mutate_requests;
use crate::plan::{Planned, may_answer, must_answer, request, settle};

/// What may be asked for.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Most ranks.
    pub ranks: u32,
    /// The spawn operation.
    pub spawn: bool,
    /// Publish, unpublish and lookup.
    pub names: bool,
    /// Mutations are made.
    pub mutate: bool,
    /// The server is a proxy, and we are its upstream.
    pub upstream: bool,
}

impl Default for Scope {
    fn default() -> Self {
        Self { ranks: 4, spawn: true, names: true, mutate: true, upstream: false }
    }
}

impl Generator for Scope {
    fn generate(&self, lawful: &mut Unstructured<'_>, mutations: &mut Unstructured<'_>) -> Result<Case> {
        let ranks = match percent(lawful)? {
            0..40 => 1,
            40..80 => 2,
            80..92 => 3,
            _ => 4,
        };
        let ranks = ranks.min(self.ranks.max(1));
        let held = (self.upstream && percent(lawful)? < 60)
            .then(|| upstream::held(self.names, self.spawn, lawful))
            .transpose()?;
        let mut model = Model {
            ranks,
            scope: *self,
            u: lawful,
            plan: Vec::new(),
            keys: vec![0; ranks as usize],
            visible: Vec::new(),
            fresh: Vec::new(),
            services: 0,
            held,
            started: 0,
        };
        model.build()?;
        let Model { mut plan, started, .. } = model;
        let u = mutations;
        let mut others = match percent(u)? {
            _ if !self.mutate => 0,
            0..40 => 0,
            40..85 => 1,
            _ => 2,
        };
        let mut ingredients = BTreeSet::new();
        if let Some(op) = held {
            let mut of_replies = 0;
            for _ in 0..others {
                of_replies += usize::from(!u.ratio(1, 4)?);
            }
            others -= of_replies;
            let exchange = upstream::exchange(op, ranks, of_replies, u)?;
            ingredients.extend(exchange.ingredients);
            plan.splice(started..started, exchange.plan);
        }
        for _ in 0..others {
            ingredients.extend(mutate_requests(&mut plan, u)?);
        }
        let mut case = Case::new(UnderTest::Server, ranks, settle(plan));
        case.ingredients = ingredients;
        Ok(case)
    }
}

struct Model<'a, 'b> {
    ranks: u32,
    scope: Scope,
    u: &'a mut Unstructured<'b>,
    plan: Vec<Planned>,
    /// How many keys each rank has put.
    keys: Vec<u32>,
    /// Keys that all ranks must see.
    visible: Vec<String>,
    /// Keys put since the last barrier.
    fresh: Vec<(u32, String)>,
    services: u32,
    /// Requests of this kind are the upstream's, whose steps are made elsewhere.
    held: Option<Operation>,
    /// Length of the plan when every rank had begun.
    started: usize,
}

/// What one rank does between two barriers.
type Work = Vec<Vec<Planned>>;

impl Model<'_, '_> {
    fn build(&mut self) -> Result<()> {
        if percent(self.u)? < 80 {
            self.plan.push(Planned::Stmt(join()));
        } else {
            self.explicit_start()?;
        }
        self.started = self.plan.len();
        for _ in 0..self.u.int_in_range(1..=3)? {
            let work = (0..self.ranks).map(|rank| self.work(rank)).collect::<Result<_>>()?;
            self.interleave(work)?;
            if percent(self.u)? < 70 {
                self.barrier()?;
            }
        }
        if self.u.int_in_range(0..=49)? == 49 {
            self.soak()?;
        }
        self.end()
    }

    /// Very many requests of one rank: what overflows or leaks shows late.
    fn soak(&mut self) -> Result<()> {
        let rank = self.any_rank()?;
        for _ in 0..self.u.int_in_range(100..=199)? {
            let put = self.put(rank)?;
            self.plan.extend(put);
        }
        self.barrier()?;
        for _ in 0..20 {
            let get = self.get(rank)?;
            self.plan.extend(get);
        }
        Ok(())
    }

    fn any_rank(&mut self) -> Result<u32> {
        self.u.int_in_range(0..=self.ranks - 1)
    }

    /// The start as single requests, which mutations can strike.
    fn explicit_start(&mut self) -> Result<()> {
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

    fn work(&mut self, rank: u32) -> Result<Work> {
        (0..self.u.int_in_range(0..=5)?).map(|_| self.request(rank)).collect()
    }

    fn request(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let request = self.any_request(rank)?;
        Ok(match request.first() {
            Some(Planned::Request { op, .. }) if self.held == Some(*op) && *op != Operation::Get => {
                plain(rank, Operation::Universe)
            }
            _ => request,
        })
    }

    fn any_request(&mut self, rank: u32) -> Result<Vec<Planned>> {
        Ok(match percent(self.u)? {
            0..35 => self.put(rank)?,
            35..60 => self.get(rank)?,
            60..66 => plain(rank, Operation::Maxes),
            66..72 => plain(rank, Operation::Kvsname),
            72..78 => plain(rank, Operation::Universe),
            78..84 => plain(rank, Operation::Appnum),
            84..94 if self.scope.names => self.name(rank)?,
            94.. if self.scope.spawn => self.spawn(rank)?,
            _ => self.get(rank)?,
        })
    }

    fn put(&mut self, rank: u32) -> Result<Vec<Planned>> {
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

    fn get(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let own = self.fresh.iter().filter(|(r, _)| *r == rank).map(|(_, key)| key);
        let all: Vec<String> = self.visible.iter().chain(own).cloned().collect();
        let key = match self.u.int_in_range(0..=9)? {
            // Only what the proxy has by itself.
            _ if self.held == Some(Operation::Get) && all.is_empty() => return self.put(rank),
            0 | 1 if self.held == Some(Operation::Get) => all[0].clone(),
            0 => "missing".to_owned(),
            1 => "PMI_process_mapping".to_owned(),
            _ if all.is_empty() => format!("k{}-0", self.any_rank()?),
            _ => self.u.choose(&all)?.clone(),
        };
        let fields = vec![field("cmd", "get"), field("kvsname", kvsname()), field("key", key)];
        Ok(ask(rank, Operation::Get, fields))
    }

    fn name(&mut self, rank: u32) -> Result<Vec<Planned>> {
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

    fn spawn(&mut self, rank: u32) -> Result<Vec<Planned>> {
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
        let op = Operation::Spawn;
        Ok(vec![Planned::Request { rank, op, messages }, must_answer(rank, op)])
    }

    fn barrier(&mut self) -> Result<()> {
        if self.held == Some(Operation::Barrier) {
            return Ok(());
        }
        let mut order: Vec<u32> = (0..self.ranks).collect();
        shuffle(self.u, &mut order)?;
        for rank in &order {
            // Who comes later may still read while others wait.
            if self.u.ratio(1, 5)? {
                let get = self.get(*rank)?;
                self.plan.extend(get);
            }
            self.plan.push(request(*rank, Operation::Barrier, vec![field("cmd", "barrier_in")]));
        }
        shuffle(self.u, &mut order)?;
        self.plan.extend(order.into_iter().map(|rank| must_answer(rank, Operation::Barrier)));
        self.visible.extend(self.fresh.drain(..).map(|(_, key)| key));
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let rank = self.any_rank()?;
        match self.u.int_in_range(0..=19)? {
            18 => {
                let fields = vec![field("cmd", "abort"), field("exitcode", "7")];
                self.plan.push(request(rank, Operation::Abort, fields));
                self.plan.push(may_answer(rank));
            }
            19 => self.plan.push(Planned::Stmt(exit(rank, 3))),
            0..4 => {
                let finalize = |rank| vec![plain(rank, Operation::Finalize)];
                self.interleave((0..self.ranks).map(finalize).collect())?;
            }
            _ => self.plan.push(Planned::Stmt(leave())),
        }
        Ok(())
    }

    /// Merges what the ranks do, request by request; often the requests of several are under way at once.
    fn interleave(&mut self, mut all: Vec<Work>) -> Result<()> {
        all.iter_mut().for_each(|work| work.reverse());
        let mut open: Vec<Vec<Planned>> = vec![Vec::new(); all.len()];
        loop {
            let busy: Vec<usize> =
                (0..all.len()).filter(|i| !open[*i].is_empty() || !all[*i].is_empty()).collect();
            if busy.is_empty() {
                return Ok(());
            }
            let i = pick(self.u, &busy)?;
            if open[i].is_empty() {
                open[i] = all[i].pop().unwrap_or_default();
            }
            if !open[i].is_empty() {
                let next = open[i].remove(0);
                self.plan.push(next);
            }
        }
    }
}

/// A request of one message and the wait for its answer.
fn ask(rank: u32, op: Operation, fields: Message) -> Vec<Planned> {
    vec![request(rank, op, fields), must_answer(rank, op)]
}

/// A request without arguments.
fn plain(rank: u32, op: Operation) -> Vec<Planned> {
    ask(rank, op, vec![field("cmd", op.request_cmd())])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::generate::{decided, numbered};
    use crate::mutate::Mutation;
    use crate::testing::{mutations, read_again};

    fn generate(seed: u64, number: u64, scope: Scope) -> Case {
        numbered(&scope, seed, number)
    }

    #[test]
    fn a_case_depends_on_seed_and_number_alone() {
        let scope = Scope::default();
        for number in 0..200 {
            assert_eq!(generate(7, number, scope).scenario, generate(7, number, scope).scenario);
        }
        let differs = |n: &u64| generate(7, *n, scope).scenario != generate(8, *n, scope).scenario;
        let different = (0..200).filter(differs).count();
        assert!(different > 190, "{different}");
    }

    #[test]
    fn every_case_is_sound_and_read_again_as_it_was_written() {
        let upstream = Scope { upstream: true, ..Scope::default() };
        let mut with = 0;
        for number in 0..600 {
            for scope in [Scope::default(), upstream] {
                let case = generate(1, number, scope);
                assert!(case.is_sound(), "{number}: {}", case.text());
                read_again(&case);
                with += u32::from(case.needs_upstream());
                assert!(scope.upstream || !case.needs_upstream(), "{number}: {}", case.text());
            }
        }
        assert!((200..450).contains(&with), "{with}");
    }

    #[test]
    fn whatever_bytes_decide_is_a_sound_case() {
        assert!(decided(&Scope::default(), b"").ingredients.is_empty());
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut struck, mut texts) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..2500 {
            let bytes: Vec<u8> = (0..rng.usize(1..400)).map(|_| rng.u8(..)).collect();
            let case = decided(&Scope::default(), &bytes);
            assert!(case.is_sound(), "{bytes:?}: {}", case.text());
            struck.extend(mutations(&case));
            texts.insert(case.text());
        }
        assert_eq!(struck, Mutation::OF_REQUESTS.iter().map(|m| m.name().to_owned()).collect());
        assert!(texts.len() > 1800, "{}", texts.len());
    }

    #[test]
    fn mutations_stay_when_what_is_lawful_changes() {
        let junk = Mutation::OF_REQUESTS.iter().position(|m| *m == Mutation::Junk).unwrap();
        for lawful in 1..50 {
            let mut bytes = [lawful; 400];
            // One mutation, and which.
            bytes[..3].copy_from_slice(&[0, 128, junk as u8]);
            let case = decided(&Scope::default(), &bytes);
            assert_eq!(mutations(&case), ["junk".to_owned()].into(), "{lawful}: {}", case.text());
        }
    }

    #[test]
    fn every_mutation_strikes_and_less_than_half_are_left_alone() {
        let mut struck: BTreeMap<String, u32> = BTreeMap::new();
        let mut plain = 0;
        for number in 0..3000 {
            let case = generate(1, number, Scope::default());
            plain += u32::from(case.ingredients.is_empty());
            for mutation in mutations(&case) {
                *struck.entry(mutation).or_default() += 1;
            }
        }
        let all: BTreeSet<String> = Mutation::OF_REQUESTS.iter().map(|m| m.name().to_owned()).collect();
        assert_eq!(struck.keys().cloned().collect::<BTreeSet<_>>(), all, "{struck:?}");
        assert!((1000..1800).contains(&plain), "{plain}");
    }

    #[test]
    fn every_mutation_of_an_upstream_strikes_and_every_kind_of_request_is_answered() {
        let scope = Scope { upstream: true, ..Scope::default() };
        let (mut struck, mut kinds) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..4000 {
            for ingredient in generate(1, number, scope).ingredients {
                if let Some((mutation, kind)) =
                    ingredient.strip_prefix("reply-").and_then(|i| i.split_once(':'))
                {
                    struck.insert(mutation.to_owned());
                    kinds.insert(kind.to_owned());
                }
            }
        }
        assert_eq!(struck, Mutation::OF_REPLIES.iter().map(|m| m.name().to_owned()).collect());
        let expected = ["barrier_in", "get", "lookup_name", "publish_name", "spawn", "unpublish_name"];
        assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn without_mutations_every_answer_of_an_upstream_is_proper_or_usual() {
        use crate::case::ServerStep;
        use pmi_scenario::ast::UpstreamAction;
        let scope = Scope { mutate: false, upstream: true, ..Scope::default() };
        for number in 0..400 {
            let case = generate(1, number, scope);
            assert!(case.ingredients.is_empty());
            for stmt in &case.scenario.body {
                match ServerStep::of(stmt) {
                    Some(ServerStep::Upstream(UpstreamAction::Answer { lines, partial, .. })) => {
                        let line = lines[0].literal().unwrap();
                        let reading = pmi_wire::ValueReading::ToEndOfLine;
                        let read = pmi_wire::Response::parse(line.as_bytes(), reading);
                        assert!(!partial && lines.len() == 1 && read.is_ok(), "{line:?}");
                    }
                    Some(ServerStep::Upstream(action)) => {
                        assert!(matches!(action, UpstreamAction::Usual { .. }), "{action:?}");
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn nothing_is_asked_for_that_is_out_of_scope() {
        let scope = Scope { ranks: 2, spawn: false, names: false, mutate: false, upstream: false };
        for number in 0..500 {
            let case = generate(3, number, scope);
            let text = case.text();
            assert!(case.ranks() <= 2 && !text.contains("spawn") && !text.contains("_name "), "{text}");
        }
    }
}
