//! Makes sessions from a model of PMI-1: what processes lawfully say, in an order over all ranks that is drawn, with
//! none to two mutations. A session depends on the seed and its number alone, or on the bytes that decide in the place of
//! random numbers.

use std::collections::BTreeSet;

use fastrand::Rng;
use pmi_wire::Operation;

use super::dice::Dice;
use super::mutate::{self, Mutation};
use super::replies;
use super::session::{Answer, Base, Length, Limit, Line, Piece, Session, Step};

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

/// A session and what went into it.
#[derive(Debug, Clone)]
pub struct Generated<I = Session> {
    /// The session.
    pub session: I,
    /// Each mutation with the kind of message that it struck, `token:put`.
    pub ingredients: BTreeSet<String>,
}

/// A field of a message.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) key: String,
    pub(super) value: Line,
}

/// A step before it is bytes.
#[derive(Debug, Clone)]
pub(super) enum Plan {
    /// A request: its messages (one but for a spawn), tuple by tuple.
    Ask { rank: u32, op: Operation, messages: Vec<Vec<Field>> },
    /// Anything else.
    Step(Step),
}

impl Plan {
    pub(super) fn rank(&self) -> Option<u32> {
        match self {
            Self::Ask { rank, .. } => Some(*rank),
            Self::Step(step) => step.rank(),
        }
    }

    /// The bytes that it stands for, with the newlines between its messages left to the caller.
    pub(super) fn lines(messages: &[Vec<Field>]) -> Vec<Line> {
        messages.iter().map(|fields| line(fields)).collect()
    }
}

/// Puts tuples together.
pub(super) fn line(fields: &[Field]) -> Line {
    let mut line = Line::new();
    for (i, field) in fields.iter().enumerate() {
        let blank = if i == 0 { "" } else { " " };
        let equals = if field.value.is_empty() && field.key == "endcmd" { "" } else { "=" };
        push(&mut line, format!("{blank}{}{equals}", field.key).as_str().into());
        field.value.iter().for_each(|piece| push(&mut line, piece.clone()));
    }
    line
}

/// Appends a piece; bytes join the bytes before them.
pub(super) fn push(line: &mut Line, piece: Piece) {
    match (line.last_mut(), piece) {
        (_, Piece::Bytes(bytes)) if bytes.is_empty() => {}
        (Some(Piece::Bytes(last)), Piece::Bytes(bytes)) => last.extend(bytes),
        (_, piece) => line.push(piece),
    }
}

pub(super) fn field(key: &str, value: impl Into<Piece>) -> Field {
    let mut line = Line::new();
    push(&mut line, value.into());
    Field { key: key.to_owned(), value: line }
}

/// The random numbers of one session.
pub(super) fn rng(seed: u64, number: u64) -> Dice<'static> {
    // So that neighbouring seeds and numbers have nothing in common (the finalizer of SplitMix64).
    let mut x = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Dice::Random(Rng::with_seed(x ^ (x >> 31)))
}

/// Makes the session of this number.
pub fn generate(seed: u64, number: u64, scope: Scope) -> Generated {
    draw(rng(seed, number), scope)
}

/// Makes the session that these bytes decide on, whatever they are. What is lawful is decided from the front, mutations from
/// the end.
pub fn decided(bytes: &[u8], scope: Scope) -> Generated {
    draw(Dice::of_bytes(bytes), scope)
}

fn draw(mut rng: Dice<'_>, scope: Scope) -> Generated {
    let ranks = match rng.u32(0..100) {
        0..40 => 1,
        40..80 => 2,
        80..92 => 3,
        _ => 4,
    };
    let held =
        (scope.upstream && rng.u32(0..100) < 60).then(|| replies::held(scope.names, scope.spawn, &mut rng));
    let mut model = Model {
        ranks: ranks.min(scope.ranks.max(1)),
        scope,
        rng: &mut rng,
        plan: Vec::new(),
        keys: vec![0; ranks as usize],
        visible: Vec::new(),
        fresh: Vec::new(),
        services: 0,
        held,
        started: 0,
    };
    model.build();
    let (ranks, mut plan, started) = (model.ranks, model.plan, model.started);
    rng.turn();
    let mutations = match rng.u32(0..100) {
        _ if !scope.mutate => 0,
        0..40 => 0,
        40..85 => 1,
        _ => 2,
    };
    let mut ingredients = BTreeSet::new();
    let mut others = mutations;
    if let Some(op) = held {
        let of_replies = (0..mutations).filter(|_| rng.u32(0..4) > 0).count();
        others -= of_replies;
        let exchange = replies::exchange(op, ranks, of_replies, &mut rng);
        ingredients.extend(exchange.ingredients);
        plan.splice(started..started, exchange.plan);
    }
    for _ in 0..others {
        let mutation = Mutation::ALL[rng.usize(..Mutation::ALL.len())];
        if let Some(kind) = mutate::apply(mutation, &mut plan, ranks, &mut rng) {
            ingredients.insert(format!("{}:{kind}", mutation.name()));
        }
    }
    Generated { session: Session { ranks, steps: mutate::settle(plan) }, ingredients }
}

struct Model<'a, 'b> {
    ranks: u32,
    scope: Scope,
    rng: &'a mut Dice<'b>,
    plan: Vec<Plan>,
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
type Work = Vec<Vec<Plan>>;

impl Model<'_, '_> {
    fn build(&mut self) {
        if self.rng.u32(0..100) < 80 {
            self.plan.push(Plan::Step(Step::Join));
        } else {
            self.explicit_start();
        }
        self.started = self.plan.len();
        for _ in 0..self.rng.u32(1..4) {
            let work = (0..self.ranks).map(|rank| self.work(rank)).collect();
            self.interleave(work);
            if self.rng.u32(0..100) < 70 {
                self.barrier();
            }
        }
        if self.rng.u32(0..50) == 49 {
            self.soak();
        }
        self.end();
    }

    /// Very many requests of one rank: what overflows or leaks shows late.
    fn soak(&mut self) {
        let rank = self.rng.u32(..self.ranks);
        for _ in 0..self.rng.u32(100..200) {
            let put = self.put(rank);
            self.plan.extend(put);
        }
        self.barrier();
        for _ in 0..20 {
            let get = self.get(rank);
            self.plan.extend(get);
        }
    }

    /// The start as single requests, which mutations can strike.
    fn explicit_start(&mut self) {
        let mut all = Vec::new();
        for rank in 0..self.ranks {
            let init = vec![field("cmd", "init"), field("pmi_version", "1"), field("pmi_subversion", "1")];
            let mut work = vec![ask(rank, Operation::Init, init)];
            work.push(ask(rank, Operation::Maxes, vec![field("cmd", "get_maxes")]));
            work.push(ask(rank, Operation::Kvsname, vec![field("cmd", "get_my_kvsname")]));
            all.push(work);
        }
        self.interleave(all);
    }

    fn work(&mut self, rank: u32) -> Work {
        (0..self.rng.u32(0..6)).map(|_| self.request(rank)).collect()
    }

    fn request(&mut self, rank: u32) -> Vec<Plan> {
        let plain = |op: Operation| ask(rank, op, vec![field("cmd", op.request_cmd())]);
        let request = self.any_request(rank);
        match request.first() {
            Some(Plan::Ask { op, .. }) if self.held == Some(*op) && *op != Operation::Get => {
                plain(Operation::Universe)
            }
            _ => request,
        }
    }

    fn any_request(&mut self, rank: u32) -> Vec<Plan> {
        let plain = |op: Operation| ask(rank, op, vec![field("cmd", op.request_cmd())]);
        match self.rng.u32(0..100) {
            0..35 => self.put(rank),
            35..60 => self.get(rank),
            60..66 => plain(Operation::Maxes),
            66..72 => plain(Operation::Kvsname),
            72..78 => plain(Operation::Universe),
            78..84 => plain(Operation::Appnum),
            84..94 if self.scope.names => self.name(rank),
            94.. if self.scope.spawn => self.spawn(rank),
            _ => self.get(rank),
        }
    }

    fn put(&mut self, rank: u32) -> Vec<Plan> {
        let n = self.keys[rank as usize];
        self.keys[rank as usize] += 1;
        let key = format!("k{rank}-{n}");
        self.fresh.push((rank, key.clone()));
        let length = |base, plus| Piece::Fill(Length { base: Base::Limit(base), plus });
        let value: Piece = match self.rng.u32(0..12) {
            0 => length(Limit::Value, -1),
            1 => length(Limit::Value, -2),
            2 => "a".into(),
            3 => "tag#0$description#host$port#4242$ifname#127.0.0.1$".into(),
            4 => Piece::Fill(Length::of(self.rng.i64(1..200))),
            _ => format!("v{}", self.rng.u32(..)).as_str().into(),
        };
        let key = if self.rng.u32(0..12) == 0 {
            // As long as a key may be; the number keeps it apart from others.
            let mut long = field("key", key.as_str());
            let rest = Length { base: Base::Limit(Limit::Key), plus: -1 - key.len() as i64 };
            long.value.push(Piece::Fill(rest));
            self.fresh.pop();
            long
        } else {
            field("key", key.as_str())
        };
        let fields = vec![field("cmd", "put"), field("kvsname", Piece::Kvs), key, field("value", value)];
        ask(rank, Operation::Put, fields)
    }

    fn get(&mut self, rank: u32) -> Vec<Plan> {
        let own: Vec<String> =
            self.fresh.iter().filter(|(r, _)| *r == rank).map(|(_, key)| key.clone()).collect();
        let all: Vec<&String> = self.visible.iter().chain(&own).collect();
        let key = match self.rng.u32(0..10) {
            // Only what the proxy has by itself.
            _ if self.held == Some(Operation::Get) && all.is_empty() => return self.put(rank),
            0 | 1 if self.held == Some(Operation::Get) => all[0].clone(),
            0 => "missing".to_owned(),
            1 => "PMI_process_mapping".to_owned(),
            _ if all.is_empty() => format!("k{}-0", self.rng.u32(..self.ranks)),
            _ => all[self.rng.usize(..all.len())].clone(),
        };
        let fields = vec![field("cmd", "get"), field("kvsname", Piece::Kvs), field("key", key.as_str())];
        ask(rank, Operation::Get, fields)
    }

    fn name(&mut self, rank: u32) -> Vec<Plan> {
        let known = format!("service-{}", self.rng.u32(..=self.services));
        match self.rng.u32(0..4) {
            0 | 1 => {
                self.services += 1;
                let service = format!("service-{}", self.services);
                let fields = vec![
                    field("cmd", "publish_name"),
                    field("service", service.as_str()),
                    field("port", "tag#0$port#4242$"),
                ];
                ask(rank, Operation::Publish, fields)
            }
            2 => ask(
                rank,
                Operation::Lookup,
                vec![field("cmd", "lookup_name"), field("service", known.as_str())],
            ),
            _ => ask(
                rank,
                Operation::Unpublish,
                vec![field("cmd", "unpublish_name"), field("service", known.as_str())],
            ),
        }
    }

    fn spawn(&mut self, rank: u32) -> Vec<Plan> {
        let programs = self.rng.usize(1..3);
        let mut messages = Vec::new();
        for so_far in 1..=programs {
            let mut fields = vec![
                field("mcmd", "spawn"),
                field("nprocs", self.rng.u32(1..3).to_string().as_str()),
                field("execname", Piece::Agent),
                field("totspawns", programs.to_string().as_str()),
                field("spawnssofar", so_far.to_string().as_str()),
            ];
            // From 1, as every implementation counts them and RFC 13 does in its example.
            let args = self.rng.usize(0..3);
            fields.extend((1..=args).map(|i| field(&format!("arg{i}"), "-x")));
            fields.push(field("argcnt", args.to_string().as_str()));
            let preput = self.rng.usize(0..3);
            fields.push(field("preput_num", preput.to_string().as_str()));
            for i in 0..preput {
                fields.push(field(&format!("preput_key_{i}"), format!("parent{i}").as_str()));
                fields.push(field(&format!("preput_val_{i}"), "tag#0$port#4242$"));
            }
            let info = self.rng.usize(0..2);
            fields.push(field("info_num", info.to_string().as_str()));
            for i in 0..info {
                fields.push(field(&format!("info_key_{i}"), "wdir"));
                fields.push(field(&format!("info_val_{i}"), "/"));
            }
            messages.extend(fields.into_iter().map(|f| vec![f]));
            messages.push(vec![Field { key: "endcmd".into(), value: Line::new() }]);
        }
        vec![
            Plan::Ask { rank, op: Operation::Spawn, messages },
            Plan::Step(Step::Await { rank, answer: Answer::Due(Operation::Spawn) }),
        ]
    }

    fn barrier(&mut self) {
        if self.held == Some(Operation::Barrier) {
            return;
        }
        let mut order: Vec<u32> = (0..self.ranks).collect();
        self.rng.shuffle(&mut order);
        for rank in &order {
            // Who comes later may still read while others wait.
            if self.rng.u32(0..5) == 0 {
                let get = self.get(*rank);
                self.plan.extend(get);
            }
            let fields = vec![field("cmd", "barrier_in")];
            self.plan.push(Plan::Ask { rank: *rank, op: Operation::Barrier, messages: vec![fields] });
        }
        self.rng.shuffle(&mut order);
        for rank in order {
            self.plan.push(Plan::Step(Step::Await { rank, answer: Answer::Due(Operation::Barrier) }));
        }
        self.visible.extend(self.fresh.drain(..).map(|(_, key)| key));
    }

    fn end(&mut self) {
        let rank = self.rng.u32(..self.ranks);
        match self.rng.u32(0..20) {
            0 => {
                let fields = vec![field("cmd", "abort"), field("exitcode", "7")];
                self.plan.push(Plan::Ask { rank, op: Operation::Abort, messages: vec![fields] });
                self.plan.push(Plan::Step(Step::Await { rank, answer: Answer::Perhaps }));
            }
            1 => self.plan.push(Plan::Step(Step::Exit { rank, status: 3 })),
            2..6 => {
                let fields = |op: Operation| vec![field("cmd", op.request_cmd())];
                let work = (0..self.ranks)
                    .map(|rank| vec![ask(rank, Operation::Finalize, fields(Operation::Finalize))])
                    .collect();
                self.interleave(work);
            }
            _ => self.plan.push(Plan::Step(Step::Leave)),
        }
    }

    /// Merges what the ranks do, request by request; often the requests of several are under way at once.
    fn interleave(&mut self, mut all: Vec<Work>) {
        all.iter_mut().for_each(|work| work.reverse());
        let mut open: Vec<Vec<Plan>> = vec![Vec::new(); all.len()];
        loop {
            let busy: Vec<usize> =
                (0..all.len()).filter(|i| !open[*i].is_empty() || !all[*i].is_empty()).collect();
            let Some(i) = (!busy.is_empty()).then(|| busy[self.rng.usize(..busy.len())]) else { return };
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
fn ask(rank: u32, op: Operation, fields: Vec<Field>) -> Vec<Plan> {
    vec![
        Plan::Ask { rank, op, messages: vec![fields] },
        Plan::Step(Step::Await { rank, answer: Answer::Due(op) }),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::lang::ast::Source;

    #[test]
    fn a_session_depends_on_seed_and_number_alone() {
        let scope = Scope::default();
        for number in 0..200 {
            assert_eq!(generate(7, number, scope).session, generate(7, number, scope).session);
        }
        let different =
            (0..200).filter(|n| generate(7, *n, scope).session != generate(8, *n, scope).session).count();
        assert!(different > 190, "{different}");
    }

    #[test]
    fn every_session_is_sound_and_a_scenario() {
        for number in 0..800 {
            let session = generate(1, number, Scope::default()).session;
            assert!(session.is_sound(), "{number}: {session:?}");
            let text = session.to_scenario("Generated.", &["rfc13.error.close"]);
            let source = Arc::new(Source { path: "x.pmi".into(), text: text.clone() });
            let scenario =
                crate::lang::parse(source, "x").unwrap_or_else(|e| panic!("{number}: {e:?}\n{text}"));
            assert_eq!(Session::from_scenario(&scenario), Ok(session), "{number}\n{text}");
        }
    }

    #[test]
    fn whatever_bytes_decide_is_a_sound_session() {
        assert!(decided(b"", Scope::default()).ingredients.is_empty());
        let mut rng = Dice::Random(Rng::with_seed(1));
        let (mut struck, mut texts) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..4000 {
            let bytes: Vec<u8> = (0..rng.usize(1..400)).map(|_| rng.u8(..)).collect();
            let Generated { session, ingredients } = decided(&bytes, Scope::default());
            assert!(session.is_sound(), "{bytes:?}: {session:?}");
            struck.extend(ingredients.iter().filter_map(|i| Some(i.split_once(':')?.0.to_owned())));
            texts.insert(session.to_scenario("Decided.", &[]));
        }
        assert_eq!(struck, Mutation::ALL.iter().map(|m| m.name().to_owned()).collect());
        assert!(texts.len() > 3000, "{}", texts.len());
    }

    #[test]
    fn mutations_stay_when_what_is_lawful_changes() {
        let junk = Mutation::ALL.iter().position(|m| m.name() == "junk").unwrap();
        for front in 0..50 {
            let mut bytes = [front; 400];
            // From the end: one mutation, and which.
            bytes[398..].copy_from_slice(&[junk as u8, 50]);
            let ingredients = decided(&bytes, Scope::default()).ingredients;
            assert!(ingredients.iter().all(|i| i.starts_with("junk:")), "{front}: {ingredients:?}");
            assert_eq!(ingredients.len(), 1, "{front}");
        }
    }

    #[test]
    fn every_mutation_strikes_and_less_than_half_are_left_alone() {
        let mut struck: BTreeMap<String, u32> = BTreeMap::new();
        let mut plain = 0;
        for number in 0..3000 {
            let generated = generate(1, number, Scope::default());
            plain += u32::from(generated.ingredients.is_empty());
            for ingredient in generated.ingredients {
                let (mutation, _) = ingredient.split_once(':').unwrap();
                *struck.entry(mutation.to_owned()).or_default() += 1;
            }
        }
        let all: BTreeSet<String> = Mutation::ALL.iter().map(|m| m.name().to_owned()).collect();
        assert_eq!(struck.keys().cloned().collect::<BTreeSet<_>>(), all, "{struck:?}");
        assert!((1000..1800).contains(&plain), "{plain}");
    }

    #[test]
    fn nothing_is_asked_for_that_is_out_of_scope() {
        let scope = Scope { ranks: 2, spawn: false, names: false, mutate: false, upstream: false };
        for number in 0..500 {
            let session = generate(3, number, scope).session;
            let text = session.to_scenario("Generated.", &[]);
            assert!(session.ranks <= 2 && !text.contains("spawn") && !text.contains("_name "), "{text}");
        }
    }
}
