//! What the upstream of a proxy says in a session: requests that the proxy must pass on, and our answers, with none to
//! two mutations.

use std::collections::BTreeSet;

use super::dice::Dice;
use pmi_wire::Operation;

use super::generate::{Field, Plan, field, line};
use super::mutate;
use super::session::{Answer, Length, Line, Piece, Says, Step};

/// A kind of mutation of what the upstream says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutation {
    Token,
    Separator,
    Length,
    Number,
    Count,
    Bytes,
    Junk,
    /// No `cmd=`.
    NoCommand,
    /// An answer to another request.
    Another,
    /// Pairs for the proxy's cache, some of them none.
    Cache,
    Twice,
    /// After another process's request, or after the end of who asked.
    Late,
    /// To who asked last first.
    Order,
    Half,
    /// Two answers in one.
    Two,
    /// Before anything was asked.
    Before,
    Never,
    Close,
}

impl Mutation {
    const ALL: [Self; 18] = [
        Self::Token,
        Self::Separator,
        Self::Length,
        Self::Number,
        Self::Count,
        Self::Bytes,
        Self::Junk,
        Self::NoCommand,
        Self::Another,
        Self::Cache,
        Self::Twice,
        Self::Late,
        Self::Order,
        Self::Half,
        Self::Two,
        Self::Before,
        Self::Never,
        Self::Close,
    ];

    /// Its name in `avoid`.
    fn name(self) -> &'static str {
        match self {
            Self::Token => "reply-token",
            Self::Separator => "reply-separator",
            Self::Length => "reply-length",
            Self::Number => "reply-number",
            Self::Count => "reply-count",
            Self::Bytes => "reply-bytes",
            Self::Junk => "reply-junk",
            Self::NoCommand => "reply-no-command",
            Self::Another => "reply-another",
            Self::Cache => "reply-cache",
            Self::Twice => "reply-twice",
            Self::Late => "reply-late",
            Self::Order => "reply-order",
            Self::Half => "reply-half",
            Self::Two => "reply-two",
            Self::Before => "reply-before",
            Self::Never => "reply-never",
            Self::Close => "reply-close",
        }
    }
}

/// Pairs of which some are none.
const CACHES: &[&str] = &[
    "",
    " ",
    " alone",
    " =",
    " =x",
    " a=",
    " a=1 alone",
    " alone a=1",
    " a=1  b=2",
    " a==b",
    " a=1 a=2",
    "\ta=1",
    " a=1\tb=2",
    " a=1\\",
    " a=b c",
    " cmd=put a=1",
    " a=\"b c\"",
    " PMI_process_mapping=x",
    " k0-0=other",
];

/// One answer.
struct Reply {
    /// Which of the requests it answers, from 1.
    number: u32,
    rank: u32,
    messages: Vec<Vec<Field>>,
    /// What is said when it is no longer made of fields.
    lines: Option<Vec<Line>>,
    partial: bool,
    /// What a proper upstream says, instead.
    usual: bool,
    before: Vec<Plan>,
    after: Vec<Plan>,
    close: bool,
    never: bool,
}

/// Requests of one kind, what the upstream says to them, and what was done to it.
pub(super) struct Exchange {
    pub(super) plan: Vec<Plan>,
    pub(super) ingredients: BTreeSet<String>,
}

/// What kind of request a session leaves to the upstream's steps.
pub(super) fn held(names: bool, spawn: bool, rng: &mut Dice<'_>) -> Operation {
    match rng.u32(0..100) {
        0..25 if names => Operation::Lookup,
        25..35 if names => Operation::Publish,
        35..42 if names => Operation::Unpublish,
        42..52 if spawn => Operation::Spawn,
        52..60 => Operation::Barrier,
        _ => Operation::Get,
    }
}

/// Makes the exchange, with so many mutations.
pub(super) fn exchange(op: Operation, ranks: u32, mutations: usize, rng: &mut Dice<'_>) -> Exchange {
    let mut askers: Vec<u32> = (0..ranks).collect();
    rng.shuffle(&mut askers);
    if op != Operation::Barrier {
        askers.truncate(rng.usize(1..=askers.len()));
    }
    let mut plan = Vec::new();
    let mut numbers = 0;
    // What was put goes up before the barrier.
    if op == Operation::Barrier && rng.bool() {
        let rank = askers[0];
        let fields =
            [("cmd", "put"), ("kvsname", ""), ("key", "early"), ("value", "x")].map(|(k, v)| match k {
                "kvsname" => field(k, Piece::Kvs),
                _ => field(k, v),
            });
        plan.push(Plan::Ask { rank, op: Operation::Put, messages: vec![fields.to_vec()] });
        plan.push(Plan::Step(Step::Await { rank, answer: Answer::Due(Operation::Put) }));
        numbers += 1;
    }
    let together = rng.bool();
    let alike = rng.u32(0..6) == 0;
    let mut takes = Vec::new();
    for (i, rank) in askers.iter().enumerate() {
        plan.push(request(op, *rank, if alike { 0 } else { i }));
        if op != Operation::Barrier {
            let at = if together { &mut takes } else { &mut plan };
            at.push(Plan::Step(Step::Passed { op }));
        }
    }
    // Those of one node come as one.
    if op == Operation::Barrier {
        takes.extend((0..=numbers).map(|_| Plan::Step(Step::Passed { op })));
    }
    plan.extend(takes);
    let proper = |(i, rank): (usize, &u32)| Reply {
        number: i as u32 + 1 + numbers,
        rank: *rank,
        messages: answer(op, i, rng.u32(0..4) == 0),
        lines: None,
        partial: false,
        usual: mutations == 0 && rng.u32(0..5) < 3,
        before: Vec::new(),
        after: Vec::new(),
        close: false,
        never: false,
    };
    let mut replies: Vec<Reply> = askers.iter().enumerate().map(proper).collect();
    if op == Operation::Barrier {
        replies.truncate(1);
    }
    let mut ingredients = BTreeSet::new();
    let mut first = Vec::new();
    for _ in 0..mutations {
        let mutation = Mutation::ALL[rng.usize(..Mutation::ALL.len())];
        if mutate(mutation, op, ranks, &mut replies, &mut first, rng) {
            ingredients.insert(format!("{}:{}", mutation.name(), op.request_cmd()));
        }
    }
    first.extend(plan);
    let mut plan = first;
    for reply in replies {
        plan.extend(reply.before);
        if reply.never {
            continue;
        }
        let says = match (reply.close, reply.usual) {
            (true, _) => Says::Close,
            (_, true) => Says::Usual,
            _ => {
                let lines = reply.lines.unwrap_or_else(|| Plan::lines(&reply.messages));
                Says::Words { lines, partial: reply.partial }
            }
        };
        let to = (!reply.close).then_some(reply.number);
        plan.push(Plan::Step(Step::Upstream { to, says }));
        let waiting: &[u32] = if op == Operation::Barrier { &askers } else { &[reply.rank] };
        plan.extend(waiting.iter().map(|rank| wait(*rank)));
        plan.extend(reply.after);
        if reply.close {
            break;
        }
    }
    Exchange { plan, ingredients }
}

fn wait(rank: u32) -> Plan {
    Plan::Step(Step::Await { rank, answer: Answer::Perhaps })
}

/// A request that a proxy of one node cannot answer by itself.
fn request(op: Operation, rank: u32, number: usize) -> Plan {
    let cmd = field("cmd", op.request_cmd());
    let fields = match op {
        Operation::Get => {
            vec![cmd, field("kvsname", Piece::Kvs), field("key", format!("elsewhere-{number}").as_str())]
        }
        Operation::Publish => {
            vec![cmd, field("service", format!("far-{number}").as_str()), field("port", "tag#0$port#4242$")]
        }
        Operation::Lookup | Operation::Unpublish => {
            vec![cmd, field("service", format!("far-{number}").as_str())]
        }
        Operation::Spawn => {
            let mut fields =
                vec![field("mcmd", "spawn"), field("nprocs", "1"), field("execname", Piece::Agent)];
            fields.extend(["totspawns", "spawnssofar"].map(|key| field(key, "1")));
            fields.extend(["argcnt", "preput_num", "info_num"].map(|key| field(key, "0")));
            let end = Field { key: "endcmd".into(), value: Line::new() };
            let messages = fields.into_iter().chain([end]).map(|f| vec![f]).collect();
            return Plan::Ask { rank, op, messages };
        }
        _ => vec![cmd],
    };
    Plan::Ask { rank, op, messages: vec![fields] }
}

/// What an upstream answers, or that it will not.
fn answer(op: Operation, number: usize, fails: bool) -> Vec<Vec<Field>> {
    let mut fields = vec![field("cmd", op.response_cmd().unwrap_or_default())];
    if op != Operation::Barrier {
        fields.push(field("rc", if fails { "-1" } else { "0" }));
        fields.push(field("msg", if fails { "not_found" } else { "success" }));
    }
    match op {
        Operation::Get if !fails => fields.push(field("value", format!("from-afar-{number}").as_str())),
        Operation::Lookup if !fails => fields.push(field("port", "tag#0$port#4242$")),
        Operation::Spawn if !fails => fields.push(field("errcodes", "0")),
        _ => {}
    }
    vec![fields]
}

/// Makes one mutation. False if there is nothing that it could strike.
fn mutate(
    mutation: Mutation,
    op: Operation,
    ranks: u32,
    replies: &mut [Reply],
    first: &mut Vec<Plan>,
    rng: &mut Dice<'_>,
) -> bool {
    let count = replies.len();
    let at = rng.usize(..count);
    let reply = &mut replies[at];
    let words = |lines: Vec<Line>, partial: bool, to: Option<u32>| {
        Plan::Step(Step::Upstream { to, says: Says::Words { lines, partial } })
    };
    // Only what is still made of fields can have others.
    let fields = reply.lines.is_none();
    match mutation {
        Mutation::Token if fields => mutate::token(&mut reply.messages, rng),
        Mutation::Length if fields => return mutate::length(&mut reply.messages, rng).is_some(),
        Mutation::Number if fields => return mutate::number(&mut reply.messages, rng).is_some(),
        Mutation::Count if fields => mutate::count(&mut reply.messages, rng),
        Mutation::NoCommand if fields => {
            reply.messages[0].remove(0);
        }
        Mutation::Another if fields => {
            let others =
                [Operation::Get, Operation::Lookup, Operation::Publish, Operation::Spawn, Operation::Barrier];
            let others =
                [&others[..], &[Operation::Maxes, Operation::Init, Operation::Finalize, Operation::Put]]
                    .concat();
            reply.messages = answer(others[rng.usize(..others.len())], 0, rng.bool());
        }
        Mutation::Separator | Mutation::Bytes => {
            let mut line = line(&reply.messages[0]);
            match mutation {
                Mutation::Separator => mutate::separator(&mut line, rng),
                _ => mutate::bytes(&mut line, rng),
            }
            reply.lines = Some(vec![line]);
        }
        Mutation::Junk => reply.lines = Some(vec![mutate::junk(rng)]),
        Mutation::Cache => {
            let mut said: Line = vec!["cmd=keyval_cache".into()];
            match rng.u32(0..10) {
                0 => (0..[100, 500, 2000][rng.usize(..3)])
                    .for_each(|i| super::generate::push(&mut said, format!(" key-{i}=v").as_str().into())),
                1 => said.extend([" a=".into(), Piece::Fill(mutate::any_length(rng))]),
                2 => said.extend([" ".into(), Piece::Fill(mutate::any_length(rng)), "=1".into()]),
                _ => super::generate::push(&mut said, CACHES[rng.usize(..CACHES.len())].into()),
            }
            mutate::tidy(&mut said);
            said.retain(|piece| *piece != Piece::Fill(Length::of(0)));
            reply.before.push(words(vec![said], false, None));
        }
        Mutation::Twice => {
            let lines = reply.lines.clone().unwrap_or_else(|| Plan::lines(&reply.messages));
            for _ in 0..rng.usize(1..3) {
                reply.after.push(words(lines.clone(), false, Some(reply.number)));
            }
            reply.after.push(wait(reply.rank));
        }
        Mutation::Late => match rng.u32(0..4) {
            0 => reply.before.push(Plan::Step(Step::Close { rank: reply.rank })),
            1 => reply.before.push(Plan::Step(Step::Exit { rank: reply.rank, status: 0 })),
            _ => {
                let other = (reply.rank + 1) % ranks.max(1);
                let op = Operation::Universe;
                let messages = vec![vec![field("cmd", op.request_cmd())]];
                reply.before.push(Plan::Ask { rank: other, op, messages });
                reply.before.push(wait(other));
            }
        },
        Mutation::Order => {
            replies.reverse();
            return count > 1;
        }
        Mutation::Half => {
            let lines = reply.lines.take().unwrap_or_else(|| Plan::lines(&reply.messages));
            let (start, rest) = mutate::split(&lines[0], rng);
            reply.lines = Some(vec![start]);
            reply.partial = true;
            if rng.bool() {
                reply.after.insert(0, words(vec![rest], false, Some(reply.number)));
                reply.after.insert(1, wait(reply.rank));
            }
        }
        Mutation::Two if fields => {
            let second = answer(op, 7, rng.bool());
            reply.messages.extend(second);
        }
        Mutation::Before => {
            let lines = if rng.bool() { Plan::lines(&answer(op, 0, false)) } else { vec![mutate::junk(rng)] };
            first.push(words(lines, false, None));
        }
        Mutation::Never => reply.never = true,
        Mutation::Close => reply.close = true,
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::super::generate::{Scope, generate};
    use super::super::session::Session;
    use super::*;
    use crate::lang::ast::Source;

    fn scope() -> Scope {
        Scope { upstream: true, ..Scope::default() }
    }

    #[test]
    fn sessions_with_an_upstream_are_sound_and_scenarios() {
        let mut with = 0;
        for number in 0..800 {
            let session = generate(1, number, scope()).session;
            assert!(session.is_sound(), "{number}: {session:?}");
            with += u32::from(session.needs_upstream());
            let text = session.to_scenario("Generated.", &["rfc13.error.close"]);
            let source = Arc::new(Source { path: "x.pmi".into(), text: text.clone() });
            let scenario =
                crate::lang::parse(source, "x").unwrap_or_else(|e| panic!("{number}: {e:?}\n{text}"));
            assert_eq!(scenario.answers(), session.holds(), "{number}\n{text}");
            assert_eq!(Session::from_scenario(&scenario), Ok(session), "{number}\n{text}");
        }
        assert!((300..600).contains(&with), "{with}");
    }

    #[test]
    fn every_mutation_strikes_and_every_kind_of_request_is_answered() {
        let mut struck: BTreeMap<String, u32> = BTreeMap::new();
        let mut kinds = BTreeSet::new();
        for number in 0..4000 {
            let generated = generate(1, number, scope());
            for ingredient in generated.ingredients {
                let (mutation, kind) = ingredient.split_once(':').unwrap();
                if mutation.starts_with("reply-") {
                    *struck.entry(mutation.to_owned()).or_default() += 1;
                    kinds.insert(kind.to_owned());
                }
            }
        }
        let all: BTreeSet<String> = Mutation::ALL.iter().map(|m| m.name().to_owned()).collect();
        assert_eq!(struck.keys().cloned().collect::<BTreeSet<_>>(), all, "{struck:?}");
        let expected = ["barrier_in", "get", "lookup_name", "publish_name", "spawn", "unpublish_name"];
        assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn without_an_upstream_nothing_is_said_for_one() {
        assert!((0..400).all(|number| !generate(1, number, Scope::default()).session.needs_upstream()));
    }

    #[test]
    fn without_mutations_every_answer_is_proper_or_usual() {
        let scope = Scope { mutate: false, ..scope() };
        for number in 0..400 {
            let generated = generate(1, number, scope);
            assert_eq!(generated.ingredients, BTreeSet::new());
            for step in &generated.session.steps {
                let Step::Upstream { says: Says::Words { lines, partial: false }, .. } = step else {
                    assert!(!matches!(step, Step::Upstream { says: Says::Words { .. } | Says::Close, .. }));
                    continue;
                };
                let [line] = &lines[..] else { panic!("{lines:?}") };
                let [Piece::Bytes(bytes)] = &line[..] else { panic!("{line:?}") };
                let reading = pmi_wire::ValueReading::ToEndOfLine;
                assert!(pmi_wire::Response::parse(bytes, reading).is_ok(), "{line:?}");
            }
        }
    }
}
