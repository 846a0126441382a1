//! A case of a campaign: a scenario with metadata.

mod barriers;
pub(crate) mod bindings;
mod bodies;
mod spawn_guard;
pub(crate) mod waits;

use pmi_scenario::ids;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use pmi_scenario::ast::{
    Arg, Capability, Dialect, Encoding, Expr, ImplementationKind, Piece, RankSet, Role, Scenario, Statement,
    Step, StepAction, StepTarget, Template,
};
use pmi_wire::{Framing, Proc};

use super::op::Op;
use super::pieces::{agent, bytes_of, join_adjacent, letters, without_span, written_bytes};
use super::reading::request;
use super::statement::{
    AwaitedResponse, ServerStep, command, encoding_of, end_step, is_end, join, rank_of, sent, sent_mut,
    set_rank, wait,
};
use bindings::BoundNames;
use bodies::encode_bodies;

/// The requirement to cite for a PMI-1 server if the judge reported no requirement. It states how a server must react to an invalid
/// message.
const SERVER_CITES: &str = ids::RFC13_ERROR_CLOSE;
/// The requirement to cite for a PMI-2 server if the judge reported no requirement. This requirement is only informative.
const PMI2_SERVER_CITES: &str = ids::PMI2_DRAFT_UNKNOWN_COMMAND;
/// The requirement to cite for a program or a library if the judge reported no requirement.
const CLIENT_CITES: &str = ids::RFC13_ERROR_ABORT;

/// A scenario with the metadata of a campaign.
#[derive(Debug, Clone)]
pub struct Case {
    /// The scenario. It contains only steps that [`Case::from_scenario`] accepts.
    pub scenario: Scenario,
    /// Each mutation with the kind of message that it changed, as in `token:put`.
    pub ingredients: BTreeSet<String>,
    /// A job that runs on the same server before this case. It is not judged, but files, daemons and published names that it leaves behind
    /// may affect the case. An earlier job never has an earlier job itself.
    pub earlier: Option<Box<Case>>,
}

impl Case {
    /// Creates a PMI-1 case with `ranks` processes and these statements.
    pub fn new(tests: ImplementationKind, ranks: u32, body: Vec<Statement>) -> Self {
        Self::in_dialect(Dialect::Pmi1, tests, ranks, body)
    }

    pub(crate) fn in_dialect(
        dialect: Dialect,
        tests: ImplementationKind,
        ranks: u32,
        mut body: Vec<Statement>,
    ) -> Self {
        if tests == ImplementationKind::Client {
            body.push(end_step());
        }
        let mut scenario = Scenario::new("generated", "", &[]);
        (scenario.tests, scenario.ranks, scenario.body) = (tests, ranks, body);
        scenario.dialect = dialect;
        scenario.server_setup.has_rank_count = true;
        let mut case = Self { scenario, ingredients: BTreeSet::new(), earlier: None };
        case.cite(None);
        case
    }

    /// Converts a scenario to a case, if all of its steps can occur in a case.
    ///
    /// # Errors
    ///
    /// Returns an error with the line number of the first table row, or of the first step that cannot occur in a case.
    pub fn from_scenario(mut scenario: Scenario) -> Result<Self, usize> {
        if let Some(row) = scenario.rows.first() {
            return Err(scenario.source.line_of(row.name.span.start));
        }
        let (tests, dialect) = (scenario.tests, scenario.dialect);
        for statement in &mut scenario.body {
            if dialect.framing() == Framing::Frames {
                encode_bodies(statement, tests);
            }
            let fits = match tests {
                ImplementationKind::Server => ServerStep::of(statement).is_some(),
                ImplementationKind::Client | ImplementationKind::Library => is_of_client(statement),
            };
            if !fits {
                return Err(scenario.source.line_of(statement.start()));
            }
            // In a case, a wait step always binds the same names from the server's response, so the scenario's wait steps are replaced.
            if tests == ImplementationKind::Server
                && let Some(ServerStep::Wait { rank, answer }) = ServerStep::of(statement)
            {
                *statement = wait(rank, answer);
            }
            // A case does not distinguish escaped bytes from other bytes, so adjacent literals are joined.
            sent_mut(statement, tests).into_iter().flatten().for_each(join_adjacent);
            arguments_mut(statement).for_each(join_adjacent);
        }
        if tests == ImplementationKind::Client && !scenario.body.iter().any(is_end) {
            scenario.body.push(end_step());
        }
        // Mutations change the statements, so their line numbers are no longer valid.
        scenario.source = Arc::default();
        Ok(Self { scenario, ingredients: BTreeSet::new(), earlier: None })
    }

    /// Returns this case as the job after `earlier`. Returns `None` if this case already has an earlier job, or if no server is under test.
    pub(crate) fn with_earlier_job(&self, earlier: &Self) -> Option<Self> {
        let alone = self.tests() == ImplementationKind::Server && self.earlier.is_none();
        let earlier = Self { earlier: None, ..earlier.clone() };
        alone.then(|| Self { earlier: Some(Box::new(earlier)), ..self.clone() })
    }

    /// Returns whether the other case plays the same steps.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let earlier = [self, other].map(|case| case.earlier.as_ref().map(|earlier| &earlier.scenario));
        self.scenario == other.scenario && earlier[0] == earlier[1]
    }

    /// Returns the kind of implementation under test.
    pub fn tests(&self) -> ImplementationKind {
        self.scenario.tests
    }

    /// Returns whether the case kills a process of the harness with this signal.
    pub(crate) fn kills_by(&self, signal: i32) -> bool {
        let is = |statement: &Statement| matches!(ServerStep::of(statement), Some(ServerStep::Kill { signal: by, .. }) if i32::from(by) == signal);
        self.scenario.body.iter().any(is)
    }

    /// Returns the number of processes.
    pub fn ranks(&self) -> u32 {
        self.scenario.ranks
    }

    /// Returns the case as the text of a scenario file.
    pub fn text(&self) -> String {
        let mut scenario = self.scenario.clone();
        for statement in &mut scenario.body {
            sent_mut(statement, self.scenario.tests)
                .into_iter()
                .flatten()
                .for_each(|line| *line = escaped(line));
            let sent = arguments_mut(statement).filter(|text| !text.is_empty());
            sent.for_each(|text| *text = escaped(text));
        }
        pmi_scenario::print(&scenario)
    }

    /// Cites `requirement`, or a default for the kind of implementation if the requirement is `None`.
    pub fn cite(&mut self, requirement: Option<&str>) {
        let fits = match (self.scenario.tests, self.scenario.dialect.framing()) {
            (ImplementationKind::Server, Framing::Frames) => PMI2_SERVER_CITES,
            (ImplementationKind::Server, Framing::Lines) => SERVER_CITES,
            (ImplementationKind::Client | ImplementationKind::Library, _) => CLIENT_CITES,
        };
        self.scenario.requires = vec![without_span(requirement.unwrap_or(fits).to_owned())];
    }

    /// Returns whether the case can be played only against a proxy whose upstream is the harness.
    pub fn needs_upstream(&self) -> bool {
        let is = |statement: &Statement| {
            matches!(
                statement,
                Statement::Step(Step { target: StepTarget::Ranks { group: Proc::PROXY_GROUP, .. }, .. })
            )
        };
        self.scenario.body.iter().any(is)
    }

    /// Returns whether the case contains a request to spawn the agent.
    fn needs_spawn(&self) -> bool {
        let has = |statement: &Statement| {
            let lines = sent(statement, ImplementationKind::Server).into_iter().flatten();
            lines.flat_map(|line| &line.pieces).any(|piece| *piece == agent())
        };
        self.tests() == ImplementationKind::Server && self.scenario.body.iter().any(has)
    }

    /// Returns the features that a server needs for the case.
    pub(crate) fn needs(&self) -> Vec<Capability> {
        let group = |line: &Template| {
            let text = bytes_of(line);
            let key = request(Framing::Lines, &text).0?.key("group")?;
            memchr::memmem::find(&text, format!(" {key}=").as_bytes())
        };
        let mut lines = self
            .scenario
            .body
            .iter()
            .filter_map(|statement| sent(statement, ImplementationKind::Server))
            .flatten();
        let names_groups = self.tests() == ImplementationKind::Server
            && self.scenario.dialect.framing() == Framing::Lines
            && lines.any(|line| group(line).is_some());
        let all = [
            (Capability::Pmi12, names_groups),
            (Capability::Spawn, self.needs_spawn()),
            (Capability::Upstream, self.needs_upstream()),
        ];
        all.into_iter().filter(|(_, is)| *is).map(|(need, _)| need).collect()
    }

    /// Returns the number of steps that can be left out: server settings and statements.
    pub fn len(&self) -> usize {
        self.settings() + self.scenario.body.iter().filter(|statement| !is_end(statement)).count()
    }

    /// Returns whether the case has no steps.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn settings(&self) -> usize {
        let serving = &self.scenario.server_setup;
        serving.variations.len() + usize::from(serving.fault.is_some()) + serving.settings.len()
    }

    pub(crate) fn drop_steps(&mut self, steps: Range<usize>) {
        let mut at = 0;
        let mut stays = || {
            at += 1;
            !steps.contains(&(at - 1))
        };
        let serving = &mut self.scenario.server_setup;
        serving.variations.retain(|_| stays());
        serving.fault.take_if(|_| !stays());
        serving.settings.retain(|_| stays());
        self.scenario.body.retain(|statement| is_end(statement) || stays());
    }

    /// Removes a rank with all statements that belong only to this rank, and renumbers the higher ranks.
    pub(crate) fn drop_rank(&mut self, rank: u32) {
        self.scenario.ranks -= 1;
        self.scenario.body.retain(|statement| rank_of(statement) != Some(rank));
        for statement in &mut self.scenario.body {
            if let Some(other) = rank_of(statement).filter(|other| *other > rank) {
                set_rank(statement, other - 1);
            }
        }
    }

    /// Returns this case with each split request moved completely into the last of its writes. Returns `None` if no request is split, if
    /// the result could not be played, or if no server is under test.
    pub(crate) fn in_whole_writes(&self) -> Option<Self> {
        if self.tests() != ImplementationKind::Server {
            return None;
        }
        let mut whole = self.clone();
        let mut begun: BTreeMap<u32, usize> = BTreeMap::new();
        let mut joined = BTreeSet::new();
        for at in 0..whole.scenario.body.len() {
            let Some(ServerStep::Write { rank, encoding, lines, partial }) =
                ServerStep::of(&self.scenario.body[at])
            else {
                continue;
            };
            let first =
                begun.remove(&rank).filter(|first| encoding_of(&whole.scenario.body[*first]) == encoding);
            if partial || encoding == Encoding::Bytes {
                begun.insert(rank, at);
            }
            let Some(first) = first else { continue };
            let mut lines = lines.iter().cloned();
            let mut all = sent(&whole.scenario.body[first], ImplementationKind::Server)?.clone();
            if let (Some(half), Some(rest)) = (all.last_mut(), lines.next()) {
                half.pieces.extend(rest.pieces);
                join_adjacent(half);
            }
            all.extend(lines);
            *sent_mut(&mut whole.scenario.body[at], ImplementationKind::Server)? = all;
            joined.insert(first);
        }
        for first in joined.into_iter().rev() {
            whole.scenario.body.remove(first);
        }
        for line in whole
            .scenario
            .body
            .iter_mut()
            .filter_map(|statement| sent_mut(statement, ImplementationKind::Server))
            .flatten()
        {
            line.pieces.retain(|piece| *piece != Piece::Cut);
        }
        (whole.scenario != self.scenario && whole.repair()).then_some(whole)
    }

    /// Returns the lines that a step sends, if any.
    pub(crate) fn lines(&self, step: usize) -> Option<&Vec<Template>> {
        sent(self.scenario.body.get(step.checked_sub(self.settings())?)?, self.tests())
    }

    /// Returns a mutable reference to the lines that a step sends, if any.
    pub(crate) fn lines_mut(&mut self, step: usize) -> Option<&mut Vec<Template>> {
        let (at, tests) = (step.checked_sub(self.settings())?, self.tests());
        sent_mut(self.scenario.body.get_mut(at)?, tests)
    }

    /// Returns the size that shrinking minimizes.
    pub(crate) fn size(&self) -> usize {
        let weigh = |statement: &Statement| match (statement, sent(statement, self.tests())) {
            (Statement::Use { .. }, _) => 5,
            (_, Some(lines)) => 10 + lines.iter().map(|line| 2 + line_weight(line)).sum::<usize>(),
            _ => 10,
        };
        (self.scenario.ranks + self.scenario.nodes - 1) as usize * 100
            + self.settings() * 10
            + self.scenario.body.iter().map(weigh).sum::<usize>()
    }

    /// Adapts the case after steps were removed. Returns false if the case can no longer be played.
    pub(crate) fn repair(&mut self) -> bool {
        let ranks = self.ranks();
        self.scenario.nodes = self.scenario.nodes.min(ranks.max(1));
        if self.tests() == ImplementationKind::Server {
            waits::adapt_waits(&mut self.scenario);
            return self.is_sound() && self.is_bounded();
        }
        self.scenario.body.iter().all(|statement| rank_of(statement).is_none_or(|rank| rank < ranks))
    }

    /// Returns whether every name is bound before it is used, and every rank and request that steps refer to exists. The case must test
    /// a server.
    pub(crate) fn is_sound(&self) -> bool {
        let mut bound = BoundNames::default();
        self.scenario.body.iter().all(|statement| {
            bound.take(statement)
                && rank_of(statement).is_none_or(|rank| rank < self.ranks())
                && sent(statement, ImplementationKind::Server)
                    .into_iter()
                    .flatten()
                    .all(|line| bound.binds(line))
        })
    }

    /// Returns whether the spawns in the case request few processes, regardless of how the server parses them. Returns true for every
    /// PMI-1 case. The case must test a server.
    pub(crate) fn is_bounded(&self) -> bool {
        if self.scenario.dialect.framing() == Framing::Lines {
            return true;
        }
        let mut sent_bytes = vec![Vec::new(); self.ranks() as usize];
        for statement in &self.scenario.body {
            if let Some(ServerStep::Write { rank, encoding, lines, partial }) = ServerStep::of(statement)
                && let Some(sent_bytes) = sent_bytes.get_mut(rank as usize)
            {
                let text = written_bytes(encoding, lines, partial);
                // Reject a write with two spawns, because the groups could not be matched with the spawns.
                if memchr::memmem::find_iter(&text, b"cmd=spawn;").nth(1).is_some() {
                    return false;
                }
                sent_bytes.extend(text);
            }
        }
        let of_children =
            |statement: &&Statement| matches!(ServerStep::of(statement), Some(ServerStep::Children { .. }));
        let spawns = |statement: &Statement| {
            let lines = sent(statement, ImplementationKind::Server).into_iter().flatten();
            lines.map(bytes_of).any(|text| memchr::memmem::find(&text, b"spawn").is_some())
        };
        // Spawned processes must not spawn further processes.
        !self.scenario.body.iter().filter(of_children).any(spawns)
            && sent_bytes.iter().all(|sent_bytes| spawn_guard::is_bounded(sent_bytes))
    }

    /// Returns this case with an additional step that starts all ranks. Returns `None` if the case already has such a step, or if no server
    /// is under test.
    pub(crate) fn joined(&self) -> Option<Self> {
        let joins = |statement: &Statement| matches!(ServerStep::of(statement), Some(ServerStep::Join));
        if self.tests() != ImplementationKind::Server || self.scenario.body.iter().any(joins) {
            return None;
        }
        let mut joined = self.clone();
        joined.scenario.body.insert(0, join(self.scenario.dialect));
        Some(joined)
    }

    /// Returns this case with a regular start in place of the individual ranks' start requests. Returns `None` if the case already has a
    /// regular start, or if no server is under test.
    pub(crate) fn with_regular_start(&self) -> Option<Self> {
        // A request for the job id is not part of the start, since a process may send it at any time.
        let begins = |op: &Op| *op == Op::offer() || op.is(&["init", "maxes"]) || op.binds("kvs");
        let own = Op::all(self.scenario.dialect).chain([Op::offer()]).filter(begins);
        let words: Vec<&str> = own.map(Op::name).collect();
        let starts = |statement: &Statement| match statement {
            Statement::Step(Step {
                action: action @ StepAction::Message { .. }, role: Role::Client, ..
            }) => command(action).is_some_and(|word| words.contains(&word.as_str())),
            _ => false,
        };
        let mut joined = self.joined()?;
        joined.scenario.body.retain(|statement| !starts(statement));
        waits::adapt_waits(&mut joined.scenario);
        Some(joined)
    }

    /// Returns this case with a final wait for the effect of its last step. Without the wait, the scenario would end before the effect
    /// occurs. Returns `None` if there is nothing to wait for, or if no server is under test.
    pub(crate) fn with_final_wait(&self) -> Option<Self> {
        if self.tests() != ImplementationKind::Server {
            return None;
        }
        let body = &self.scenario.body;
        let gone = |rank: &u32| {
            body.iter().any(|statement| match ServerStep::of(statement) {
                Some(
                    ServerStep::Close { rank: r }
                    | ServerStep::Exit { rank: r, .. }
                    | ServerStep::Kill { rank: r, .. },
                ) => r == *rank,
                _ => false,
            })
        };
        let last = body.last()?;
        use ServerStep::{Children, Join, Leave, PassedOn, Wait};
        if matches!(
            ServerStep::of(last),
            None | Some(Join | Leave | Wait { .. } | PassedOn | Children { .. })
        ) {
            return None;
        }
        let rank = rank_of(last).into_iter().chain(0..self.ranks()).find(|rank| !gone(rank))?;
        let mut awaited = self.clone();
        awaited.scenario.body.push(wait(rank, AwaitedResponse::Optional));
        Some(awaited)
    }

    /// Completes the case for storage: adds a summary, the requirement that it tests and the features that it needs.
    pub(crate) fn finish(&mut self, summary: &str, requirement: Option<&str>) {
        self.cite(requirement);
        let plain: String = summary.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.scenario.heading = vec![plain];
        self.scenario.needs = self.needs().into_iter().map(without_span).collect();
        if let Some(earlier) = &mut self.earlier {
            earlier.finish("An earlier job, which is not judged.", None);
        }
    }
}

fn arguments_mut(statement: &mut Statement) -> impl Iterator<Item = &mut Template> {
    let args = match statement {
        Statement::Step(Step { action: StepAction::Call(call), .. }) => Some(&mut call.args),
        _ => None,
    };
    args.into_iter().flatten().filter_map(|arg| match arg {
        Arg::Text(text) => Some(text),
        _ => None,
    })
}

/// Escapes the bytes of a line that would have a special meaning in a scenario file.
fn escaped(line: &Template) -> Template {
    let mut out = Template::default();
    for (i, piece) in line.pieces.iter().enumerate() {
        out = match piece {
            Piece::Literal { bytes, .. } if i == 0 => Template::line(bytes),
            Piece::Literal { bytes, .. } => {
                bytes.chunk_by(|a, b| a.is_ascii() && b.is_ascii()).fold(out, |out, run| {
                    match std::str::from_utf8(run) {
                        Ok(text) => out.tuples(text),
                        Err(_) => out.bytes(run),
                    }
                })
            }
            other => out.with(other.clone()),
        };
    }
    // An empty line would disappear from the file, so it is written as a run of letters with length 0.
    if out.is_empty() { out.with(letters(0)) } else { out }
}

/// Returns whether campaigns generate statements of this form for programs and libraries.
fn is_of_client(statement: &Statement) -> bool {
    let Statement::Step(step) = statement else { return false };
    matches!(step.target, StepTarget::Ranks { group: 0, set: RankSet::All }) || rank_of(statement).is_some()
}

/// Returns the size of a line, which shrinking minimizes.
fn line_weight(line: &Template) -> usize {
    let weigh = |piece: &Piece| match piece {
        Piece::Literal { bytes, .. } => bytes.len(),
        Piece::Fill(Expr::Number(n)) => 3 + n.unsigned_abs().checked_ilog2().unwrap_or(0) as usize,
        Piece::Fill(_) => 5,
        _ => 3,
    };
    line.pieces.iter().map(weigh).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_scenario::ast::UpstreamAction;
    use pmi_wire::Operation;

    use crate::session::fields::text;
    use crate::session::pieces::{Limit, jobid, kvsname, letters_up_to, literal, own_rank, template};
    use crate::session::statement::{await_forwarded, close, exit, kill, leave, upstream, write, write_as};
    use crate::session::testing::assert_round_trip;

    fn server(ranks: u32, body: Vec<Statement>) -> Case {
        Case::new(ImplementationKind::Server, ranks, body)
    }

    fn frame(operation: &str) -> Op {
        Op::of(Dialect::Pmi2, operation).unwrap()
    }

    fn respond(to: Option<u32>, lines: Vec<Template>, partial: bool) -> Statement {
        upstream(UpstreamAction::Response { to, partial, lines })
    }

    #[test]
    fn joins_requests_that_are_split_across_writes() {
        let send = |rank, line: &str, partial| write(rank, vec![text(line)], partial);
        let split = |between: Vec<Statement>| {
            let mut body = vec![join(Dialect::Pmi1), send(0, "cmd=get_", true)];
            body.extend(between);
            server(2, body)
        };
        let rest = || send(0, "maxes", false);
        let asks = || send(1, "cmd=get_appnum", false);
        let whole = |first: Vec<Statement>| {
            let mut body = vec![join(Dialect::Pmi1)];
            body.extend(first);
            server(2, body).scenario
        };
        let maxes = || send(0, "cmd=get_maxes", false);
        let in_three = vec![asks(), send(0, "max", true), send(0, "es", false)];
        let cases = [
            (split(vec![asks(), rest()]), Some(whole(vec![asks(), maxes()]))),
            (split(in_three), Some(whole(vec![asks(), maxes()]))),
            // The rest of the request is never sent.
            (split(vec![asks()]), None),
            (server(2, vec![join(Dialect::Pmi1), maxes()]), None),
        ];
        for (case, expected) in cases {
            assert_eq!(case.in_whole_writes().map(|case| case.scenario), expected, "{}", case.text());
        }
        let cut = template(vec![literal(*b"cmd=kvs-"), Piece::Cut, literal(*b"fence;")]);
        let body = vec![join(Dialect::Pmi2), write_as(0, Encoding::Body, vec![cut], false)];
        let whole =
            Case::in_dialect(Dialect::Pmi2, ImplementationKind::Server, 1, body).in_whole_writes().unwrap();
        assert!(whole.text().contains("cmd=kvs-fence;") && !whole.text().contains("cut"), "{}", whole.text());
    }

    #[test]
    fn session_text_round_trips() {
        let nasty: Vec<u8> = (0..=255).filter(|b| *b != b'\n').collect();
        let empty = || template(Vec::new());
        let mut body = vec![
            join(Dialect::Pmi1),
            write(
                2,
                vec![
                    template(vec![literal("cmd=put kvsname="), kvsname(), literal(" key=a value=")]),
                    text(nasty.clone()),
                    template(vec![kvsname(), literal(nasty), kvsname(), literal(*b"\xff ")]),
                    text("# no comment "),
                    text(" "),
                    text("rc=ok"),
                    text("1,2 send    x"),
                    template(vec![literal("partial "), letters_up_to(Limit::Key, -1)]),
                    text("close"),
                ],
                true,
            ),
            wait(2, AwaitedResponse::Optional),
            wait(0, AwaitedResponse::Delayable(Operation::Put.into())),
            wait(0, AwaitedResponse::Due(Operation::Get.into())),
            write(0, vec![template(vec![literal("execname="), agent(), letters(70)])], false),
            await_forwarded(Operation::Get.into()),
            upstream(UpstreamAction::CorrectResponse { to: Some(1) }),
            await_forwarded(Operation::Spawn.into()),
            respond(Some(2), vec![template(vec![literal("to 1 cmd="), kvsname()]), empty()], true),
            respond(None, vec![text("close"), text("every one\n")], false),
            upstream(UpstreamAction::Close),
            close(1),
            exit(0, 3),
            kill(2, 9),
            leave(Dialect::Pmi1),
        ];
        let reserved =
            ["close", "empty", "silence", "usual", "right", "one of", "partial", "bytewise x", "to 1 x"];
        body.extend(reserved.iter().map(|word| write(0, vec![text(*word)], false)));
        body.extend(reserved.iter().map(|word| respond(None, vec![text(*word)], false)));
        let case = server(3, body);
        assert!(case.is_sound());
        assert_round_trip(&case);
    }

    #[test]
    fn pmi2_session_text_round_trips() {
        let nasty: Vec<u8> = (0..=255).collect();
        let body = |rank, bodies: Vec<Template>| write_as(rank, Encoding::Body, bodies, false);
        let steps = vec![
            write_as(0, Encoding::Line, vec![text("cmd=init pmi_version=2 pmi_subversion=0")], false),
            join(Dialect::Pmi2),
            wait(0, AwaitedResponse::Due(frame("kvsname"))),
            body(0, vec![template(vec![literal("cmd=kvs-get;jobid="), jobid(), literal(";key=a;")])]),
            body(
                1,
                vec![text(nasty.clone()), template(vec![literal("a"), Piece::Cut, literal("b"), agent()])],
            ),
            body(1, vec![template(vec![literal("cmd=fullinit;pmirank="), own_rank(), literal(";")])]),
            write_as(1, Encoding::Bytes, vec![text(nasty), text("    14cmd="), text("<body> x")], false),
            write_as(1, Encoding::Body, vec![text("cmd=job-getid;")], true),
            wait(1, AwaitedResponse::Due(frame("barrier"))),
            wait(1, AwaitedResponse::Optional),
            leave(Dialect::Pmi2),
        ];
        let case = Case::in_dialect(Dialect::Pmi2, ImplementationKind::Server, 2, steps);
        assert!(case.is_sound());
        assert_round_trip(&case);
    }

    #[test]
    fn scenario_tuples_become_pmi2_frame_bodies() {
        let text = "# A.\nrequires pmi2.common.put\ndialect pmi-2\n\n\
                    0  send    cmd=init pmi_version=2 pmi_subversion=0\n\
                    0  send    cmd=kvs-put key=k value=a<sp>b;c$rank\n\
                    0  expect  cmd=kvs-put-response rc=0\n";
        let source = Arc::new(pmi_scenario::ast::SourceFile { path: "a.pmi".into(), text: text.into() });
        let case = Case::from_scenario(pmi_scenario::parse(source, "a").unwrap()).unwrap();
        let text = case.text();
        assert!(text.contains("0  send    <line> cmd=init pmi_version=2 pmi_subversion=0\n"), "{text}");
        assert!(text.contains("0  send    <body> cmd=kvs-put;key=k;value=a b;;c$rank;\n"), "{text}");
        assert!(text.ends_with("0  expect  cmd=kvs-put-response\n"), "{text}");
    }

    #[test]
    fn adapts_response_waits_to_remaining_frames() {
        let bytes =
            |text: &str| write_as(0, Encoding::Bytes, vec![crate::session::fields::text(text)], false);
        let body = |text: &str| write_as(0, Encoding::Body, vec![crate::session::fields::text(text)], false);
        let due = |operation| wait(0, AwaitedResponse::Due(frame(operation)));
        let optional = || wait(0, AwaitedResponse::Optional);
        let of = |steps| Case::in_dialect(Dialect::Pmi2, ImplementationKind::Server, 1, steps);
        let mut case = of(vec![
            due("barrier"),
            bytes("    1"),
            bytes("4cmd=job-getid;"),
            due("barrier"),
            body("cmd=kvs-put;key=a;"),
            due("put"),
            body("cmd=kvs-fence;"),
            due("kvsname"),
        ]);
        waits::adapt_waits(&mut case.scenario);
        let expected = [
            bytes("    1"),
            bytes("4cmd=job-getid;"),
            due("kvsname"),
            body("cmd=kvs-put;key=a;"),
            optional(),
            body("cmd=kvs-fence;"),
            due("barrier"),
        ];
        assert_eq!(case.scenario.body, expected);
    }

    #[test]
    fn wait_for_attribute_that_no_rank_puts_is_optional() {
        let body = |rank, text: &str| {
            write_as(rank, Encoding::Body, vec![crate::session::fields::text(text)], false)
        };
        let get = || body(0, "cmd=info-getnodeattr;key=k;wait=TRUE;");
        let due = |rank, operation| wait(rank, AwaitedResponse::Due(frame(operation)));
        let of = |steps| Case::in_dialect(Dialect::Pmi2, ImplementationKind::Server, 2, steps);
        let put = |key| body(1, &format!("cmd=info-putnodeattr;key={key};value=v;"));
        let answer_to = |key| {
            let (get, got) = (get(), due(0, "get-node-attribute"));
            let mut case = of(vec![get, put(key), due(1, "put-node-attribute"), got]);
            waits::adapt_waits(&mut case.scenario);
            case.scenario.body.pop()
        };
        assert_eq!(answer_to("k"), Some(due(0, "get-node-attribute")));
        assert_eq!(answer_to("other"), Some(wait(0, AwaitedResponse::Optional)));
    }

    #[test]
    fn adapts_response_waits_to_remaining_requests() {
        let write = |line: &str, partial| write(0, vec![text(line)], partial);
        let due = |op: Operation| wait(0, AwaitedResponse::Due(op.into()));
        let optional = || wait(0, AwaitedResponse::Optional);
        let mut case = server(
            1,
            vec![
                due(Operation::Put),
                write("cmd=get_", true),
                write("appnum", false),
                due(Operation::Barrier),
                write("cmd=frob", false),
                due(Operation::Get),
                due(Operation::Get),
                optional(),
            ],
        );
        waits::adapt_waits(&mut case.scenario);
        let expected = [
            write("cmd=get_", true),
            write("appnum", false),
            due(Operation::Appnum),
            write("cmd=frob", false),
            optional(),
            optional(),
        ];
        assert_eq!(case.scenario.body, expected);
    }

    #[test]
    fn join_fragment_replaces_the_startup_requests() {
        let send = |rank, line: &str| write(rank, vec![text(line)], false);
        let get = || send(1, "cmd=get kvsname=a key=b");
        let case = server(
            2,
            vec![
                send(1, "cmd=init pmi_version=1 pmi_subversion=1"),
                wait(1, AwaitedResponse::Due(Operation::Init.into())),
                send(0, "cmd=get_my_kvsname"),
                get(),
                wait(0, AwaitedResponse::Due(Operation::Kvsname.into())),
                wait(1, AwaitedResponse::Due(Operation::Get.into())),
            ],
        );
        let joined = case.with_regular_start().unwrap();
        assert_eq!(
            joined.scenario.body,
            [join(Dialect::Pmi1), get(), wait(1, AwaitedResponse::Due(Operation::Get.into()))]
        );
        assert!(joined.with_regular_start().is_none() && joined.joined().is_none());
    }

    #[test]
    fn adds_a_wait_after_the_last_message() {
        let write = |rank| write(rank, vec![text("x")], false);
        let optional = |rank| wait(rank, AwaitedResponse::Optional);
        let waits = |steps: &[Statement]| {
            let awaited = server(2, steps.to_vec()).with_final_wait();
            awaited.map(|case| case.scenario.body[steps.len()..].to_vec())
        };
        assert_eq!(waits(&[write(1)]), Some(vec![optional(1)]));
        assert_eq!(waits(&[write(1), close(1)]), Some(vec![optional(0)]));
        assert_eq!(waits(&[respond(None, vec![text("")], true)]), Some(vec![optional(0)]));
        assert_eq!(waits(&[exit(0, 0), kill(1, 9)]), None);
        assert_eq!(waits(&[write(0), optional(0)]), None);
        assert_eq!(waits(&[write(0), leave(Dialect::Pmi1)]), None);
    }

    #[test]
    fn sound_session_binds_names_and_uses_existing_ranks() {
        let write = |rank| write(rank, vec![template(vec![kvsname()])], false);
        let sound = |body| server(1, body).is_sound();
        assert!(sound(vec![join(Dialect::Pmi1), write(0)]));
        assert!(!sound(vec![write(0)]));
        assert!(!sound(vec![join(Dialect::Pmi1), write(1)]));
        assert!(sound(vec![wait(0, AwaitedResponse::Due(Operation::Kvsname.into())), write(0)]));
        let passed = || await_forwarded(Operation::Lookup.into());
        let usual = |to| upstream(UpstreamAction::CorrectResponse { to });
        assert!(sound(vec![passed(), passed(), usual(Some(2)), usual(None)]));
        assert!(!sound(vec![passed(), usual(Some(2))]) && !sound(vec![usual(None), passed()]));
        assert!(sound(vec![respond(None, vec![], false)]));
        assert!(!sound(vec![respond(None, vec![template(vec![kvsname()])], false)]));
        let case = server(1, vec![passed(), await_forwarded(Operation::Get.into()), passed()]);
        assert_eq!(case.scenario.answers(), ["get", "lookup_name"]);
    }
}
