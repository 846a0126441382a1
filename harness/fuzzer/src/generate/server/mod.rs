//! Cases for servers, generated from a model of PMI. A case consists of valid requests from processes, in random order across all ranks,
//! with at most two mutations.

mod course;
pub mod free;
pub(crate) mod jobs;
pub(super) mod model;
mod pmi12;
pub(super) mod requests;
pub mod scope;
pub(super) mod swarm;
pub(super) mod sweep;

use std::collections::BTreeSet;

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::ImplementationKind;
use pmi_wire::Framing;

use super::{Generator, upstream};
use crate::mutate::mutate_requests;
use crate::session::case::Case;
use crate::session::decisions::percent;
use crate::session::plan::to_statements;
use model::SessionModel;
use scope::SessionFeatures;
use swarm::Swarm;

impl Generator for SessionFeatures {
    fn generate(&self, valid: &mut Unstructured<'_>, mutations: &mut Unstructured<'_>) -> Result<Case> {
        let dialect = self.dialects.draw(valid)?;
        let ranks = match percent(valid)? {
            0..30 => 1,
            30..70 => 2,
            70..87 => 3,
            _ => 4,
        };
        let ranks = ranks.min(self.ranks.max(1));
        let nodes = if self.nodes > 1 && ranks > 1 && valid.ratio(1, 3)? { 2 } else { 1 };
        // Only a PMI-1 session can have steps of the upstream, because a proxy does not forward PMI-2 requests as text.
        let in_lines = dialect.framing() == Framing::Lines;
        let held = (self.upstream && in_lines && percent(valid)? < 60)
            .then(|| upstream::draw_operation(self.names, self.spawn, valid))
            .transpose()?;
        let swarm = Swarm::draw(valid)?;
        // A session with steps of the upstream does not use PMI-1.2, because a proxy forwards PMI-1.2 barriers in a form that the harness
        // does not answer.
        let speaks12 = self.pmi12 && in_lines && held.is_none() && valid.ratio(2, 3)?;
        let mut model = SessionModel::new(*self, dialect, ranks, nodes, swarm, valid);
        (model.upstream_operation, model.offers_pmi12) = (held, speaks12);
        model.build()?;
        let SessionModel { mut plan, started, .. } = model;
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
        let pristine = others == 0;
        let settled = |plan| {
            let statements = to_statements(plan, dialect, pristine);
            let mut case = Case::in_dialect(dialect, ImplementationKind::Server, ranks, statements);
            case.scenario.nodes = nodes;
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

#[cfg(test)]
mod tests {
    use pmi_scenario::ast::{Capability, Dialect};
    use pmi_wire::{Decoded, Direction, Framing};

    use super::scope::DialectChoice;
    use super::*;
    use crate::generate::{case_from_bytes, case_from_number};
    use crate::mutate::Mutation;
    use crate::session::op::Op;
    use crate::session::testing::{assert_round_trip, mutations, mutations_of};

    const PMI2: DialectChoice = DialectChoice::One(Dialect::Pmi2);

    #[test]
    fn pmi2_sessions_are_sound_and_use_every_mutation() {
        let scope = SessionFeatures { dialects: PMI2, nodes: 2, ..SessionFeatures::default() };
        let mut texts = String::new();
        let changed = mutations_of(&scope, 1500, |case| {
            assert!(case.is_sound() && case.is_bounded(), "{}", case.text());
            texts += &case.text();
        });
        let all: BTreeSet<String> = Mutation::of_requests(Framing::Frames).iter().map(|m| m.name()).collect();
        assert_eq!(changed, all);
        for part in [
            "wait=TRUE",
            "thrid=",
            "$jobid",
            "nodes 2",
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
    fn sessions_request_every_operation_of_a_dialect() {
        // No known server supports connect and disconnect, and only Slurm supports the ring, so sessions do not request these operations.
        let is_asked_for =
            |op: &Op| op.exchange().omission().is_none() && !op.is(&["connect", "disconnect", "ring"]);
        for dialect in Dialect::ALL {
            let scope = SessionFeatures {
                dialects: DialectChoice::One(dialect),
                mutate: false,
                ..SessionFeatures::default()
            };
            let texts: Vec<String> = (0..600).map(|number| generate(1, number, scope).text()).collect();
            let words = || texts.iter().flat_map(|text| text.split([' ', ';', '\n']));
            let commands: BTreeSet<&str> = words().filter(|word| word.contains("cmd=")).collect();
            for op in Op::all(dialect).filter(is_asked_for) {
                let command = format!("{}={op}", op.command_key());
                assert!(commands.contains(&*command), "{dialect}: {command}");
            }
        }
    }

    #[test]
    fn unmutated_pmi2_requests_are_valid() {
        let scope = SessionFeatures { dialects: PMI2, mutate: false, ..SessionFeatures::default() };
        for number in 0..400 {
            let case = generate(1, number, scope);
            let text = case.text();
            assert!(
                case.ingredients.is_empty() && !text.contains("<bytes>") && !text.contains("<partial>"),
                "{text}"
            );
            for line in
                text.lines().filter_map(|line| line.split_once("send    <body> ")).map(|(_, body)| body)
            {
                let message = Decoded::new(Direction::ToServer, Framing::Frames, line.as_bytes());
                let is_filled = line.contains('$') || line.contains('<');
                assert!(message.is_well_formed() || is_filled, "{line}: {message:?}");
            }
        }
    }

    #[test]
    fn all_members_enter_pmi12_group_barriers() {
        let scope = SessionFeatures { pmi12: true, mutate: false, nodes: 2, ..SessionFeatures::default() };
        let (mut texts, mut of_12) = (String::new(), 0);
        for number in 0..300 {
            let case = generate(1, number, scope);
            assert!(case.is_sound() && case.is_bounded(), "{}", case.text());
            assert_round_trip(&case);
            // `<|>` separates two writes of a request, which does not matter here.
            let text = case.text().replace("<|>", "");
            let named: Vec<(u32, &str)> = text
                .lines()
                .filter_map(|line| line.split_once("  send    cmd=barrier_in group="))
                .map(|(rank, group)| (rank.trim().parse().unwrap(), group))
                .collect();
            assert_eq!(named.is_empty(), !case.needs().contains(&Capability::Pmi12), "{text}");
            of_12 += u32::from(!named.is_empty());
            for (_, group) in &named {
                let list = group.split(':').next().unwrap();
                if list.starts_with(|c: char| c.is_ascii_digit()) {
                    // All ranks in the list enter the barrier the same number of times.
                    let times = |rank: u32| named.iter().filter(|entry| **entry == (rank, *group)).count();
                    let times: Vec<usize> =
                        list.split(',').map(|rank| times(rank.parse().unwrap())).collect();
                    assert!(times[0] > 0 && times.iter().all(|n| *n == times[0]), "{group}: {text}");
                }
            }
            texts += &text;
        }
        assert!((150..250).contains(&of_12), "{of_12}");
        for part in ["group=NODE:", "group=WORLD:", ":2147483647", "group=0,1", "pmi_subversion=2"] {
            assert!(texts.contains(part), "{part}");
        }
        // If PMI-1.2 is outside the scope, no request uses it.
        let without = |number| generate(1, number, SessionFeatures { pmi12: false, ..scope }).text();
        assert!((0..100).all(|number| !without(number).contains("barrier_in group=")));
    }

    #[test]
    fn generator_mixes_dialects_if_both_are_allowed() {
        let scope = SessionFeatures { dialects: DialectChoice::Any, ..SessionFeatures::default() };
        let of_pmi2 = |number: &u64| generate(1, *number, scope).scenario.dialect == Dialect::Pmi2;
        let count = (0..400).filter(of_pmi2).count();
        assert!((100..300).contains(&count), "{count}");
    }

    fn generate(seed: u64, number: u64, scope: SessionFeatures) -> Case {
        case_from_number(&scope, seed, number)
    }

    #[test]
    fn upstream_sessions_are_sound_and_frequent() {
        let scope = SessionFeatures { upstream: true, ..SessionFeatures::default() };
        let mut with = 0;
        mutations_of(&scope, 600, |case| {
            assert!(case.is_sound(), "{}", case.text());
            with += u32::from(case.needs_upstream());
        });
        assert!((200..450).contains(&with), "{with}");
    }

    #[test]
    fn any_byte_string_produces_a_sound_session() {
        assert!(case_from_bytes(&SessionFeatures::default(), b"").ingredients.is_empty());
        let mut rng = fastrand::Rng::with_seed(1);
        let mut texts = BTreeSet::new();
        for _ in 0..2500 {
            let bytes: Vec<u8> = (0..rng.usize(1..400)).map(|_| rng.u8(..)).collect();
            let case = case_from_bytes(&SessionFeatures::default(), &bytes);
            assert!(case.is_sound(), "{bytes:?}: {}", case.text());
            texts.insert(case.text());
        }
        assert!(texts.len() > 1800, "{}", texts.len());
    }

    #[test]
    fn first_bytes_alone_select_the_mutation() {
        let junk = Mutation::of_requests(Framing::Lines).iter().position(|m| *m == Mutation::Junk).unwrap();
        for valid in 1..50 {
            let mut bytes = [valid; 400];
            // These bytes select exactly one mutation: the one with the index `junk`.
            bytes[..3].copy_from_slice(&[0, 128, junk as u8]);
            let case = case_from_bytes(&SessionFeatures::default(), &bytes);
            assert_eq!(mutations(&case), ["junk".to_owned()].into(), "{valid}: {}", case.text());
        }
    }

    #[test]
    fn generates_every_mutation_and_unmutated_sessions() {
        let mut plain = 0;
        let changed = mutations_of(&SessionFeatures::default(), 3000, |case| {
            assert!(case.is_sound() && !case.needs_upstream(), "{}", case.text());
            plain += u32::from(case.ingredients.is_empty());
        });
        let all: BTreeSet<String> = Mutation::of_requests(Framing::Lines).iter().map(|m| m.name()).collect();
        assert_eq!(changed, all);
        assert!((1000..1800).contains(&plain), "{plain}");
    }

    #[test]
    fn every_upstream_mutation_occurs() {
        let scope = SessionFeatures { upstream: true, ..SessionFeatures::default() };
        let (mut changed, mut kinds) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..4000 {
            for ingredient in generate(1, number, scope).ingredients {
                if let Some((mutation, kind)) =
                    ingredient.strip_prefix("reply-").and_then(|i| i.split_once(':'))
                {
                    changed.insert(mutation.to_owned());
                    kinds.insert(kind.to_owned());
                }
            }
        }
        assert_eq!(changed, Mutation::OF_REPLIES.iter().map(|m| m.name()).collect());
        let expected = ["barrier_in", "get", "lookup_name", "publish_name", "spawn", "unpublish_name"];
        assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn unmutated_upstream_responses_are_valid() {
        use crate::session::statement::ServerStep;
        use pmi_scenario::ast::UpstreamAction;
        let scope = SessionFeatures { mutate: false, upstream: true, ..SessionFeatures::default() };
        for number in 0..400 {
            let case = generate(1, number, scope);
            assert!(case.ingredients.is_empty());
            for statement in &case.scenario.body {
                match ServerStep::of(statement) {
                    Some(ServerStep::Upstream(UpstreamAction::Response { lines, partial, .. })) => {
                        let line = lines[0].literal().unwrap();
                        let message = Decoded::new(Direction::FromServer, Framing::Lines, line.as_bytes());
                        assert!(!partial && lines.len() == 1 && message.is_well_formed(), "{line:?}");
                    }
                    Some(ServerStep::Upstream(action)) => {
                        assert!(matches!(action, UpstreamAction::CorrectResponse { .. }), "{action:?}");
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn server_sessions_use_only_enabled_features() {
        for spoken in [DialectChoice::default(), PMI2] {
            let scope = SessionFeatures {
                dialects: spoken,
                ranks: 2,
                spawn: false,
                names: false,
                mutate: false,
                ..SessionFeatures::default()
            };
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
