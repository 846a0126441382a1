//! Cases for servers from a model of PMI: what processes lawfully say, in an order over all ranks that is drawn, with none to
//! two mutations. The course of a session is here; what is said in it, each protocol has in a module of its own.

use std::collections::BTreeSet;

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Dialect, Need, UnderTest};
use pmi_wire::Operation;
use pmi_wire::pmi2::Command;

use super::pmi1::plain;
use super::pmi2::Threads;
use super::{Generator, upstream};
use crate::case::{Case, exit, join, leave, unplaced};
use crate::decisions::{percent, pick, shuffle};
use crate::fields::field;
use crate::mutate::mutate_requests;
use crate::op::Op;
use crate::plan::{Planned, may_answer, must_answer, request, settle};

/// Which protocol the sessions of a campaign are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// This.
    One(Dialect),
    /// Any; each session is in one.
    Any,
}

impl Default for Spoken {
    fn default() -> Self {
        Self::One(Dialect::default())
    }
}

impl Spoken {
    /// Whether a session may be in it.
    pub fn has(self, dialect: Dialect) -> bool {
        self == Self::Any || self == Self::One(dialect)
    }

    fn draw(self, u: &mut Unstructured<'_>) -> Result<Dialect> {
        match self {
            Self::One(dialect) => Ok(dialect),
            Self::Any => pick(u, &Dialect::NAMES.map(|(_, dialect)| dialect)),
        }
    }
}

/// What only the draft of PMI-2 has, as far as a server offers it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DraftOnly {
    /// A command in several messages.
    pub concat: bool,
    /// The values of another job.
    pub job_connect: bool,
    /// All pairs of a job.
    pub kvs_getall: bool,
    /// A spawn with a message for each program.
    pub spawn_cmd: bool,
}

impl DraftOnly {
    /// Those of these needs that sessions use.
    pub fn of(offers: impl Fn(Need) -> bool) -> Self {
        Self {
            concat: offers(Need::Concat),
            job_connect: offers(Need::JobConnect),
            kvs_getall: offers(Need::KvsGetall),
            spawn_cmd: offers(Need::SpawnCmd),
        }
    }

    /// What both have.
    pub fn and(self, other: Self) -> Self {
        Self::of(|need| self.has(need) && other.has(need))
    }

    /// Whether this is offered; what is not only the draft's is no matter of ours.
    pub fn has(self, need: Need) -> bool {
        match need {
            Need::Concat => self.concat,
            Need::JobConnect => self.job_connect,
            Need::KvsGetall => self.kvs_getall,
            Need::SpawnCmd => self.spawn_cmd,
            Need::Auth
            | Need::Spawn
            | Need::Names
            | Need::Upstream
            | Need::Fd
            | Need::Port
            | Need::Singleton
            | Need::Pmi12 => !need.is_of_draft_only(),
        }
    }
}

/// What may be asked for.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// The protocol.
    pub spoken: Spoken,
    /// Most ranks.
    pub ranks: u32,
    /// Most nodes, one or two.
    pub nodes: u32,
    /// What only the draft of PMI-2 has.
    pub draft: DraftOnly,
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
        let (spoken, draft) = (Spoken::default(), DraftOnly::default());
        Self { spoken, ranks: 4, nodes: 1, draft, spawn: true, names: true, mutate: true, upstream: false }
    }
}

impl Generator for Scope {
    fn generate(&self, lawful: &mut Unstructured<'_>, mutations: &mut Unstructured<'_>) -> Result<Case> {
        let dialect = self.spoken.draw(lawful)?;
        let ranks = match percent(lawful)? {
            0..40 => 1,
            40..80 => 2,
            80..92 => 3,
            _ => 4,
        };
        let ranks = ranks.min(self.ranks.max(1));
        let nodes = if self.nodes > 1 && ranks > 1 && lawful.ratio(1, 3)? { 2 } else { 1 };
        // What a proxy passes on of PMI-2 is no text that we answer.
        let held = (self.upstream && dialect == Dialect::Pmi1 && percent(lawful)? < 60)
            .then(|| upstream::held(self.names, self.spawn, lawful))
            .transpose()?;
        let mut model = Model {
            dialect,
            ranks,
            nodes,
            scope: *self,
            u: lawful,
            plan: Vec::new(),
            keys: vec![0; ranks as usize],
            visible: Vec::new(),
            fresh: Vec::new(),
            services: 0,
            threads: Threads::of(ranks),
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
        let settled = |plan| {
            let mut case = Case::speaking(dialect, UnderTest::Server, ranks, settle(plan, dialect));
            case.scenario.nodes = nodes;
            let in_series = case.needs().contains(&Need::SpawnCmd);
            case.scenario.needs.extend(in_series.then_some(unplaced(Need::SpawnCmd)));
            case
        };
        for _ in 0..others {
            let before = plan.clone();
            let ingredient = mutate_requests(&mut plan, dialect, u)?;
            if settled(plan.clone()).is_bounded() {
                ingredients.extend(ingredient);
            } else {
                plan = before;
            }
        }
        let mut case = settled(plan);
        case.ingredients = ingredients;
        Ok(case)
    }
}

pub(super) struct Model<'a, 'b> {
    dialect: Dialect,
    pub(super) ranks: u32,
    pub(super) nodes: u32,
    pub(super) scope: Scope,
    pub(super) u: &'a mut Unstructured<'b>,
    pub(super) plan: Vec<Planned>,
    /// How many keys each rank has put.
    pub(super) keys: Vec<u32>,
    /// Keys that all ranks must see.
    pub(super) visible: Vec<String>,
    /// Keys put since the last barrier.
    pub(super) fresh: Vec<(u32, String)>,
    pub(super) services: u32,
    /// What only a session of PMI-2 has.
    pub(super) threads: Threads,
    /// Requests of this kind are the upstream's, whose steps are made elsewhere.
    pub(super) held: Option<Operation>,
    /// Length of the plan when every rank had begun.
    started: usize,
}

/// What one rank does between two barriers.
pub(super) type Work = Vec<Vec<Planned>>;

impl Model<'_, '_> {
    fn build(&mut self) -> Result<()> {
        if percent(self.u)? < 80 {
            self.plan.push(Planned::Stmt(join(self.dialect)));
        } else {
            match self.dialect {
                Dialect::Pmi1 => self.pmi1_start()?,
                Dialect::Pmi2 => self.pmi2_start()?,
            }
        }
        if self.dialect == Dialect::Pmi2 {
            self.ask_jobid()?;
        }
        self.started = self.plan.len();
        for _ in 0..self.u.int_in_range(1..=3)? {
            let work = (0..self.ranks).map(|rank| self.work(rank)).collect::<Result<_>>()?;
            self.interleave(work)?;
            if self.dialect == Dialect::Pmi2 {
                self.wait_for_attribute()?;
            }
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

    pub(super) fn any_rank(&mut self) -> Result<u32> {
        self.u.int_in_range(0..=self.ranks - 1)
    }

    fn work(&mut self, rank: u32) -> Result<Work> {
        (0..self.u.int_in_range(0..=5)?).map(|_| self.request(rank)).collect()
    }

    fn request(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let request = match self.dialect {
            Dialect::Pmi1 => self.pmi1_request(rank)?,
            Dialect::Pmi2 => self.pmi2_requests(rank)?,
        };
        Ok(match request.first() {
            Some(Planned::Request { op: Op::Pmi1(op), .. })
                if self.held == Some(*op) && *op != Operation::Get =>
            {
                plain(rank, Operation::Universe)
            }
            _ => request,
        })
    }

    fn put(&mut self, rank: u32) -> Result<Vec<Planned>> {
        match self.dialect {
            Dialect::Pmi1 => self.pmi1_put(rank),
            Dialect::Pmi2 => self.pmi2_put(rank),
        }
    }

    fn get(&mut self, rank: u32) -> Result<Vec<Planned>> {
        match self.dialect {
            Dialect::Pmi1 => self.pmi1_get(rank),
            Dialect::Pmi2 => self.pmi2_get(rank),
        }
    }

    fn barrier(&mut self) -> Result<()> {
        if self.held == Some(Operation::Barrier) {
            return Ok(());
        }
        let op = match self.dialect {
            Dialect::Pmi1 => Op::Pmi1(Operation::Barrier),
            Dialect::Pmi2 => Op::Pmi2(Command::KvsFence),
        };
        let mut order: Vec<u32> = (0..self.ranks).collect();
        shuffle(self.u, &mut order)?;
        for rank in &order {
            // Who comes later may still read while others wait.
            if self.u.ratio(1, 5)? {
                let get = self.get(*rank)?;
                self.plan.extend(get);
            }
            self.plan.push(request(*rank, op, vec![field("cmd", op.name())]));
        }
        shuffle(self.u, &mut order)?;
        self.plan.extend(order.into_iter().map(|rank| must_answer(rank, op)));
        self.visible.extend(self.fresh.drain(..).map(|(_, key)| key));
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let rank = self.any_rank()?;
        match self.u.int_in_range(0..=19)? {
            18 => {
                let abort = match self.dialect {
                    Dialect::Pmi1 => Self::pmi1_abort(rank),
                    Dialect::Pmi2 => self.pmi2_abort(rank)?,
                };
                self.plan.push(abort);
                self.plan.push(may_answer(rank));
            }
            19 => self.plan.push(Planned::Stmt(exit(rank, 3))),
            0..4 => {
                let op = match self.dialect {
                    Dialect::Pmi1 => Op::Pmi1(Operation::Finalize),
                    Dialect::Pmi2 => Op::Pmi2(Command::Finalize),
                };
                let finalize = |rank| vec![plain(rank, op)];
                self.interleave((0..self.ranks).map(finalize).collect())?;
            }
            _ => self.plan.push(Planned::Stmt(leave(self.dialect))),
        }
        Ok(())
    }

    /// Merges what the ranks do, request by request; often the requests of several are under way at once.
    pub(super) fn interleave(&mut self, mut all: Vec<Work>) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::generate::{decided, numbered};
    use crate::mutate::Mutation;
    use crate::testing::{mutations, read_again};

    const PMI2: Spoken = Spoken::One(Dialect::Pmi2);
    const DRAFT: DraftOnly = DraftOnly { concat: true, job_connect: true, kvs_getall: true, spawn_cmd: true };

    #[test]
    fn cases_of_pmi2_are_as_sound_as_others_and_every_mutation_strikes() {
        let scope = Scope { spoken: PMI2, draft: DRAFT, nodes: 2, ..Scope::default() };
        let mut struck = BTreeSet::new();
        let mut texts = String::new();
        for number in 0..1500 {
            let case = generate(1, number, scope);
            assert!(case.is_sound() && case.is_bounded(), "{}", case.text());
            assert_eq!(case.scenario, generate(1, number, scope).scenario);
            read_again(&case);
            struck.extend(mutations(&case));
            texts += &case.text();
        }
        let all: BTreeSet<String> = Mutation::OF_PMI2_REQUESTS.iter().map(|m| m.name().to_owned()).collect();
        assert_eq!(struck, all);
        use Command as C;
        // A handshake is made by no start of a case, and no server of ours has a ring.
        let had = |command: &C| !matches!(command, C::AuthResponse | C::AuthResponseComplete | C::Ring);
        for command in C::ALL.into_iter().filter(had) {
            assert!(texts.contains(&format!("cmd={};", command.name())), "{}", command.name());
        }
        for part in [
            "wait=TRUE",
            "thrid=",
            "$jobid",
            "concat=",
            "npair=2;",
            "nodes 2",
            "needs spawn-cmd",
            "child:*",
            "<fill 1024>",
            "isworld=TRUE",
            "exitcode=7",
            "<bytes>",
            "<|>",
        ] {
            assert!(texts.contains(part), "{part}");
        }
    }

    #[test]
    fn without_mistakes_every_request_of_pmi2_is_one() {
        let scope = Scope { spoken: PMI2, mutate: false, ..Scope::default() };
        for number in 0..400 {
            let case = generate(1, number, scope);
            let text = case.text();
            assert!(
                case.ingredients.is_empty() && !text.contains("<bytes>") && !text.contains("<partial>"),
                "{text}"
            );
            for line in text.lines().filter_map(|line| line.split_once("C: <body> ")).map(|(_, body)| body) {
                let read =
                    pmi_wire::pmi2::Request::parse(line.as_bytes(), pmi_wire::pmi2::Semicolons::Doubled);
                assert!(read.is_ok() || line.contains('$') || line.contains('<'), "{line}: {read:?}");
            }
        }
    }

    #[test]
    fn where_any_protocol_may_be_spoken_both_are() {
        let scope = Scope { spoken: Spoken::Any, ..Scope::default() };
        let of_pmi2 = |number: &u64| generate(1, *number, scope).scenario.dialect == Dialect::Pmi2;
        let count = (0..400).filter(of_pmi2).count();
        assert!((100..300).contains(&count), "{count}");
    }

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
        for spoken in [Spoken::default(), PMI2] {
            let scope =
                Scope { spoken, ranks: 2, spawn: false, names: false, mutate: false, ..Scope::default() };
            for number in 0..500 {
                let case = generate(3, number, scope);
                let text = case.text();
                let names = ["_name ", "name-"].iter().any(|part| text.contains(part));
                assert!(case.ranks() <= 2 && !text.contains("spawn") && !names, "{text}");
                let draft = ["concat", "job-connect", "kvs-getall", "kvs-putall", "nodes 2"];
                assert!(!draft.iter().any(|part| text.contains(part)), "{text}");
            }
        }
    }
}
