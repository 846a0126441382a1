//! Minimizes a case that shows a failure.

use std::ops::Range;

use pmi_scenario::ast::{Expr, ImplementationKind, Piece, Template};
use pmi_wire::Framing;

use crate::session::case::Case;
use crate::session::pieces::{length, letters, literal, template};

/// Minimizes `case`. `shows_failure` plays a candidate and returns whether it still shows the failure. `shows_failure` is called at most
/// `budget` times. Returns the smallest candidate that showed the failure, or `case` if no candidate did. If `bytes` is true, single bytes
/// are removed as well, which helps only if the failure depends on bytes. The removal of the case's earlier job is tried first: few
/// failures need that job, and a candidate without it takes one launch instead of two. The earlier job itself is minimized last.
pub(crate) fn shrink(
    case: Case,
    budget: usize,
    bytes: bool,
    shows_failure: &mut dyn FnMut(&Case) -> bool,
) -> Case {
    let mut shrinker = Shrinker::new(case, budget, bytes, shows_failure);
    shrinker.drop_earlier();
    shrinker.order();
    shrinker.shrink();
    shrinker.order();
    let Shrinker { mut best, budget: left, .. } = shrinker;
    let Some(earlier) = best.earlier.take() else { return best };
    let mut shows_after =
        |earlier: &Case| best.with_earlier_job(earlier).is_some_and(|case| shows_failure(&case));
    let mut shrinker = Shrinker::new(*earlier, left, false, &mut shows_after);
    shrinker.shrink();
    let earlier = shrinker.best;
    best.earlier = Some(Box::new(earlier));
    best
}

/// Minimizes `case` like [`shrink`], but removes only the earlier job, steps and ranks.
pub(crate) fn drop_steps_only(
    case: Case,
    budget: usize,
    shows_failure: &mut dyn FnMut(&Case) -> bool,
) -> Case {
    let mut shrinker = Shrinker::new(case, budget, false, shows_failure);
    shrinker.drop_earlier();
    shrinker.cut_tail();
    shrinker.drop_steps();
    shrinker.drop_ranks();
    shrinker.best
}

struct Shrinker<'a> {
    best: Case,
    budget: usize,
    bytes: bool,
    shows_failure: &'a mut dyn FnMut(&Case) -> bool,
    /// True if all ranks enter every barrier of the case. A smaller case must then keep this property, so that its barriers are answered.
    whole_barriers: bool,
}

impl<'a> Shrinker<'a> {
    fn new(best: Case, budget: usize, bytes: bool, shows_failure: &'a mut dyn FnMut(&Case) -> bool) -> Self {
        let whole_barriers = best.tests() == ImplementationKind::Server && best.has_whole_barriers();
        Self { best, budget, bytes, shows_failure, whole_barriers }
    }

    /// Minimizes the case in every way, until its size no longer decreases.
    fn shrink(&mut self) {
        loop {
            let before = self.best.size();
            if let Some(whole) = self.best.in_whole_writes() {
                self.try_one(whole);
            }
            self.cut_tail();
            self.drop_steps();
            self.drop_ranks();
            self.drop_nodes();
            self.simplify_lines();
            if self.best.size() >= before || self.budget == 0 {
                return;
            }
        }
    }

    /// Plays a candidate, and keeps it if it shows the failure.
    fn try_one(&mut self, mut candidate: Case) -> bool {
        if self.budget == 0
            || !candidate.repair()
            || candidate.is_same(&self.best)
            || self.whole_barriers && !candidate.has_whole_barriers()
        {
            return false;
        }
        self.budget -= 1;
        let shown = (self.shows_failure)(&candidate);
        if shown {
            self.best = candidate;
        }
        shown
    }

    /// Gives a free session a fixed schedule: between two barriers, each rank plays all of its steps before the next rank begins.
    fn order(&mut self) {
        let mut candidate = self.best.clone();
        candidate.scenario.is_free = false;
        self.try_one(candidate);
    }

    fn drop_earlier(&mut self) {
        if self.best.earlier.is_some() {
            let candidate = Case { earlier: None, ..self.best.clone() };
            self.try_one(candidate);
        }
    }

    fn without_steps(&self, steps: Range<usize>) -> Case {
        let mut candidate = self.best.clone();
        if self.whole_barriers {
            candidate.drop_steps_and_barriers(steps);
        } else {
            candidate.drop_steps(steps);
        }
        candidate
    }

    /// Searches for the shortest prefix of the steps that shows the failure, by bisection.
    fn cut_tail(&mut self) {
        let mut low = 0;
        while low < self.best.len() {
            let middle = low + (self.best.len() - low) / 2;
            let candidate = self.without_steps(middle..self.best.len());
            if !self.try_one(candidate) {
                low = middle + 1;
            }
            if self.budget == 0 {
                return;
            }
        }
    }

    /// Removes sequences of steps, the longest first.
    fn drop_steps(&mut self) {
        let mut size = self.best.len().max(1).div_ceil(2);
        loop {
            let mut at = 0;
            while at < self.best.len() && self.budget > 0 {
                let candidate = self.without_steps(at..(at + size).min(self.best.len()));
                if !self.try_one(candidate) {
                    at += size;
                }
            }
            if size == 1 {
                return;
            }
            size = size.div_ceil(2);
        }
    }

    /// Removes ranks with all of their steps, and renumbers higher ranks.
    fn drop_ranks(&mut self) {
        let mut rank = self.best.ranks();
        while rank > 0 && self.best.ranks() > 1 {
            rank -= 1;
            let mut candidate = self.best.clone();
            candidate.drop_rank(rank);
            self.try_one(candidate);
        }
    }

    /// Reduces the case to one node.
    fn drop_nodes(&mut self) {
        if self.best.scenario.nodes > 1 {
            let mut candidate = self.best.clone();
            candidate.scenario.nodes = 1;
            self.try_one(candidate);
        }
    }

    fn simplify_lines(&mut self) {
        let mut at = 0;
        while at < self.best.len() && self.budget > 0 {
            if self.lines(at).is_some() {
                self.drop_lines(at);
                let lines = self.lines(at).map_or(0, |l| l.len());
                for line in 0..lines {
                    self.drop_words(at, line);
                    self.smaller_pieces(at, line);
                }
            }
            at += 1;
        }
    }

    fn lines(&self, at: usize) -> Option<&Vec<Template>> {
        self.best.lines(at)
    }

    fn with_lines(&self, at: usize, change: impl FnOnce(&mut Vec<Template>)) -> Case {
        let mut candidate = self.best.clone();
        if let Some(lines) = candidate.lines_mut(at) {
            change(lines);
        }
        candidate
    }

    fn drop_lines(&mut self, at: usize) {
        let mut size = self.lines(at).map_or(0, Vec::len).div_ceil(2);
        while size > 0 {
            let mut i = 0;
            while self.budget > 0 && self.lines(at).is_some_and(|l| l.len() > 1 && i < l.len()) {
                let candidate = self.with_lines(at, |lines| {
                    let end = (i + size).min(lines.len());
                    drop(lines.drain(i.min(end)..end));
                    if lines.is_empty() {
                        lines.push(Template::default());
                    }
                });
                if !self.try_one(candidate) {
                    i += size;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }

    /// Removes sequences of words or tuples from a line and then, if the failure may depend on single bytes, sequences of bytes.
    fn drop_words(&mut self, at: usize, line: usize) {
        for by_bytes in [false, true].into_iter().take(1 + usize::from(self.bytes)) {
            let mut units = self.units(at, line, by_bytes);
            let mut size = units.len().div_ceil(2);
            while size > 0 && self.budget > 0 {
                let mut i = 0;
                while i < units.len() && self.budget > 0 {
                    let mut fewer = units.clone();
                    fewer.drain(i..(i + size).min(fewer.len()));
                    let candidate = self.with_lines(at, |lines| {
                        // The repair of an earlier candidate may have removed the line.
                        if let Some(line) = lines.get_mut(line) {
                            *line = template(fewer.concat());
                        }
                    });
                    if self.try_one(candidate) {
                        units = fewer;
                    } else {
                        i += size;
                    }
                }
                size = if size == 1 { 0 } else { size.div_ceil(2) };
            }
        }
    }

    /// Splits a line into units that can be removed: words with the space before them, tuples with the semicolon after them, or single
    /// bytes.
    fn units(&self, at: usize, line: usize, by_bytes: bool) -> Vec<Vec<Piece>> {
        let Some(line) = self.lines(at).and_then(|lines| lines.get(line)) else { return Vec::new() };
        let frames = self.best.scenario.dialect.framing() == Framing::Frames;
        let mut ended = false;
        let mut units: Vec<Vec<Piece>> = Vec::new();
        for piece in &line.pieces {
            match piece {
                Piece::Literal { bytes, .. } => {
                    for b in bytes {
                        let starts = by_bytes || *b == b' ' || units.is_empty() || ended;
                        if starts {
                            units.push(Vec::new());
                        }
                        if let Some(last) = units.last_mut() {
                            last.push(literal([*b]));
                        }
                        // In a frame, the separator belongs to the tuple before it.
                        ended = frames && *b == b';';
                    }
                }
                other if by_bytes || units.is_empty() => units.push(vec![other.clone()]),
                other => {
                    if let Some(last) = units.last_mut() {
                        last.push(other.clone());
                    }
                }
            }
        }
        units
    }

    /// Replaces variables and lengths that are relative to a limit with a single letter, and other lengths with smaller ones.
    fn smaller_pieces(&mut self, at: usize, line: usize) {
        let count = self.lines(at).and_then(|l| l.get(line)).map_or(0, |line| line.pieces.len());
        for i in 0..count {
            let Some(piece) = self.lines(at).and_then(|l| l.get(line)?.pieces.get(i)).cloned() else {
                return;
            };
            let replace = |this: &Self, piece: Piece| {
                this.with_lines(at, |lines| {
                    if let Some(old) = lines.get_mut(line).and_then(|line| line.pieces.get_mut(i)) {
                        *old = piece;
                    }
                })
            };
            match piece {
                Piece::Fill(ref expr) if matches!(length(expr), Some((Some(_), _))) => {
                    let candidate = replace(self, literal("a"));
                    self.try_one(candidate);
                }
                Piece::Var(name) if matches!(name.as_str(), "kvs" | "jobid") => {
                    let candidate = replace(self, literal("a"));
                    self.try_one(candidate);
                }
                Piece::Fill(Expr::Number(plus)) => {
                    let (mut low, mut high) = (1, plus);
                    while low < high && self.budget > 0 {
                        let middle = low + (high - low) / 2;
                        let candidate = replace(self, letters(middle));
                        if self.try_one(candidate) {
                            high = middle;
                        } else {
                            low = middle + 1;
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::case_from_number;
    use crate::generate::server::free;
    use crate::generate::server::scope::{DialectChoice, SessionFeatures};
    use crate::session::decisions::draw_bytes;
    use crate::session::fields::text;
    use crate::session::pieces::bytes_of;
    use crate::session::statement::{AwaitedResponse, join, leave, rank_of, sent, wait, write};
    use pmi_scenario::ast::Dialect;
    use pmi_scenario::ast::Statement;

    fn server(ranks: u32, body: Vec<Statement>) -> Case {
        Case::new(ImplementationKind::Server, ranks, body)
    }

    #[test]
    fn shrinking_keeps_only_the_needed_message() {
        let mut tried = 0;
        for number in 0..400 {
            let case = case_from_number(&SessionFeatures::default(), 5, number);
            let sends = |statement: &Statement| {
                let lines =
                    sent(statement, ImplementationKind::Server).filter(|_| rank_of(statement).is_some());
                lines
                    .into_iter()
                    .flatten()
                    .any(|line| memchr::memmem::find(&bytes_of(line), b"barrier_in").is_some())
            };
            let mut shows_failure = |case: &Case| case.scenario.body.iter().any(sends);
            if !shows_failure(&case) {
                continue;
            }
            tried += 1;
            let small = shrink(case, 2000, true, &mut shows_failure);
            assert_eq!((small.ranks(), small.len()), (1, 1), "{}", small.text());
            assert!(
                small.text().ends_with("0  send    barrier_in\n")
                    || small.text().ends_with("0  send    <partial> barrier_in\n"),
                "{}",
                small.text()
            );
        }
        assert!(tried > 200, "{tried}");
    }

    #[test]
    fn shrunk_spawn_stays_bounded() {
        let scope = SessionFeatures {
            dialects: DialectChoice::One(Dialect::Pmi2),
            mutate: false,
            ..SessionFeatures::default()
        };
        let mut shows_failure = |case: &Case| {
            assert!(case.is_bounded(), "{}", case.text());
            case.text().contains("subcmd=")
        };
        let spawning: Vec<Case> = (0..300)
            .map(|number| case_from_number(&scope, 5, number))
            .filter(&mut shows_failure)
            .take(20)
            .collect();
        assert_eq!(spawning.len(), 20);
        for case in spawning {
            let small = shrink(case, 2000, true, &mut shows_failure);
            assert_eq!((small.ranks(), small.len()), (1, 1), "{}", small.text());
        }
    }

    #[test]
    fn shrunk_free_session_has_only_complete_barriers() {
        let scope = SessionFeatures { free_ranks: 4, spawn: false, ..SessionFeatures::default() };
        for number in 0..10 {
            let bytes = draw_bytes(5, number);
            let case = free::session(scope, &mut arbitrary::Unstructured::new(&bytes)).unwrap();
            assert!(case.scenario.is_free && case.has_whole_barriers(), "{}", case.text());
            let mut plays = 0;
            // Only a free session with at least two ranks and a barrier shows this failure.
            let small = shrink(case, 2000, true, &mut |case: &Case| {
                plays += 1;
                assert!(case.has_whole_barriers(), "{}", case.text());
                case.scenario.is_free && case.ranks() > 1 && case.text().contains("barrier_in")
            });
            let text = small.text();
            assert!(plays > 10 && small.ranks() == 2, "{text}");
            let entries = text.lines().filter(|line| line.contains("send") && line.contains("barrier_in"));
            assert_eq!(entries.count(), 2, "{text}");
        }
    }

    #[test]
    fn incomplete_barrier_needs_no_response() {
        let enters = |rank| write(rank, vec![text("cmd=barrier_in")], false);
        let released = |rank| wait(rank, AwaitedResponse::Due(pmi_wire::Operation::Barrier.into()));
        let with = |ranks| {
            let mut steps = vec![join(Dialect::Pmi1), enters(0)];
            steps.extend((1..ranks).map(enters));
            steps.extend([released(0), enters(0), released(0)]);
            let mut case = server(2, steps);
            assert!(case.repair());
            case.scenario.body.into_iter().filter(|step| *step == released(0)).count()
        };
        assert_eq!((with(1), with(2)), (0, 1));
    }

    #[test]
    fn shrinking_keeps_the_order_of_two_ranks_messages() {
        let write = |rank, line: &str| write(rank, vec![text(line)], false);
        let steps = vec![
            join(Dialect::Pmi1),
            write(2, "cmd=put key=a"),
            wait(2, AwaitedResponse::Optional),
            write(0, "cmd=get key=b"),
            write(1, "cmd=get key=c"),
            leave(Dialect::Pmi1),
        ];
        let shows_failure = |case: &Case| {
            let body = &case.scenario.body;
            let find = |part: &str| {
                let has = |line: &Template| line.literal().is_some_and(|text| text.ends_with(part));
                body.iter().position(|statement| {
                    sent(statement, ImplementationKind::Server).is_some_and(|lines| has(&lines[0]))
                })
            };
            matches!((find("=a"), find("=c")), (Some(a), Some(c)) if a < c && rank_of(&body[a]) != rank_of(&body[c]))
        };
        let small = shrink(server(4, steps), 500, true, &mut { shows_failure });
        assert_eq!(small.scenario, server(2, vec![write(1, "=a"), write(0, "=c")]).scenario);
    }

    /// Returns a job that sends `cmd=get key=c` and the given line.
    fn job(line: &str) -> Case {
        let send = |line: &str| write(0, vec![text(line)], false);
        server(2, vec![join(Dialect::Pmi1), send("cmd=get key=c"), send(line), leave(Dialect::Pmi1)])
    }

    fn contains(case: &Case, line: &str) -> bool {
        case.text().contains(line)
    }

    #[test]
    fn shrinking_drops_an_unneeded_earlier_job_first() {
        let case = job("cmd=get key=b").with_earlier_job(&job("cmd=put key=a")).unwrap();
        let mut with = 0;
        let small = shrink(case.clone(), 500, true, &mut |case| {
            with += usize::from(case.earlier.is_some());
            contains(case, "key=b")
        });
        assert_eq!((with, small.earlier.is_none(), small.len()), (0, true, 1));
        let mut shows_failure = |case: &Case| contains(case, "key=b");
        assert!(drop_steps_only(case, 500, &mut shows_failure).earlier.is_none());
    }

    #[test]
    fn shrinking_reduces_a_needed_earlier_job() {
        let case = job("cmd=get key=b").with_earlier_job(&job("cmd=put key=a")).unwrap();
        let needs = |case: &Case| {
            contains(case, "key=b") && case.earlier.as_ref().is_some_and(|earlier| contains(earlier, "key=a"))
        };
        let small = shrink(case.clone(), 500, true, &mut { needs });
        let earlier = small.earlier.as_ref().unwrap();
        assert_eq!((small.ranks(), small.len(), earlier.ranks(), earlier.len()), (1, 1, 1, 1));
        assert!(needs(&small), "{}{}", small.text(), earlier.text());
        // If the failure occurs after any earlier job, that job is minimized to an idle one.
        let small = shrink(case.clone(), 500, true, &mut |case| case.earlier.is_some());
        assert!(small.is_empty() && small.earlier.unwrap().is_empty());
        let mut calls = 0;
        shrink(case, 9, true, &mut |case| {
            calls += 1;
            needs(case)
        });
        assert!(calls <= 9);
    }

    #[test]
    fn shrinks_lengths_to_the_boundary_within_budget() {
        let long = vec![template(vec![literal("key="), letters(70_000)])];
        let case = server(1, vec![write(0, long, false)]);
        let length = |case: &Case| {
            let lines =
                case.scenario.body.first().and_then(|statement| sent(statement, ImplementationKind::Server));
            lines.into_iter().flatten().flat_map(|line| &line.pieces).fold(0, |n, piece| match piece {
                Piece::Fill(Expr::Number(length)) => n + length,
                _ => n,
            })
        };
        let small = shrink(case.clone(), 200, true, &mut |case| length(case) >= 1025);
        assert_eq!(length(&small), 1025);
        assert_eq!(small.size(), 100 + 10 + 2 + 3 + 10);
        let mut calls = 0;
        shrink(case, 7, true, &mut |_| {
            calls += 1;
            true
        });
        assert!(calls <= 7);
    }
}
