//! Makes a session smaller as long as it shows the same.

use super::input::Input;
use super::mutate::tidy;
use super::session::{Base, Length, Line, Piece};

/// Shrinks `session`. `shows` plays a candidate and says whether it still shows what it should; it is called `budget`
/// times at most. The result has been shown, unless nothing smaller was. `bytes` tries single bytes as well, which
/// only says something where it is the bytes that matter.
pub fn shrink<I: Input>(session: I, budget: usize, bytes: bool, shows: &mut dyn FnMut(&I) -> bool) -> I {
    let mut shrinker = Shrinker { best: session, left: budget, bytes, shows };
    loop {
        let before = shrinker.best.weight();
        shrinker.cut_tail();
        shrinker.drop_steps();
        shrinker.drop_ranks();
        shrinker.simplify_lines();
        if shrinker.best.weight() >= before || shrinker.left == 0 {
            return shrinker.best;
        }
    }
}

/// Leaves out steps and ranks only; otherwise like [`shrink`].
pub fn leave_out<I: Input>(session: I, budget: usize, shows: &mut dyn FnMut(&I) -> bool) -> I {
    let mut shrinker = Shrinker { best: session, left: budget, bytes: false, shows };
    shrinker.cut_tail();
    shrinker.drop_steps();
    shrinker.drop_ranks();
    shrinker.best
}

/// What shrinking makes less of a line.
pub(super) fn line_weight(line: &Line) -> usize {
    line.iter()
        .map(|piece| match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Kvs | Piece::Agent => 3,
            Piece::Fill(Length { base: Base::Zero, plus }) => {
                3 + (plus.unsigned_abs().checked_ilog2().unwrap_or(0) as usize)
            }
            Piece::Fill(_) => 5,
        })
        .sum()
}

struct Shrinker<'a, I> {
    best: I,
    left: usize,
    bytes: bool,
    shows: &'a mut dyn FnMut(&I) -> bool,
}

impl<I: Input> Shrinker<'_, I> {
    /// Tries a candidate; takes it if it shows the same.
    fn try_one(&mut self, mut candidate: I) -> bool {
        if self.left == 0 || !candidate.settle() || candidate == self.best {
            return false;
        }
        self.left -= 1;
        let shown = (self.shows)(&candidate);
        if shown {
            self.best = candidate;
        }
        shown
    }

    /// Finds the shortest beginning by halving.
    fn cut_tail(&mut self) {
        let mut low = 0;
        while low < self.best.len() {
            let middle = low + (self.best.len() - low) / 2;
            let mut candidate = self.best.clone();
            candidate.drop_steps(middle..candidate.len());
            if !self.try_one(candidate) {
                low = middle + 1;
            }
            if self.left == 0 {
                return;
            }
        }
    }

    /// Leaves out runs of steps, long ones first.
    fn drop_steps(&mut self) {
        let mut size = self.best.len().max(1).div_ceil(2);
        loop {
            let mut at = 0;
            while at < self.best.len() && self.left > 0 {
                let mut candidate = self.best.clone();
                candidate.drop_steps(at..(at + size).min(candidate.len()));
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

    /// Leaves out ranks with all that they do; the others move up.
    fn drop_ranks(&mut self) {
        let mut rank = self.best.ranks();
        while rank > 0 && self.best.ranks() > 1 {
            rank -= 1;
            let mut candidate = self.best.clone();
            candidate.drop_rank(rank);
            self.try_one(candidate);
        }
    }

    fn simplify_lines(&mut self) {
        let mut at = 0;
        while at < self.best.len() && self.left > 0 {
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

    fn lines(&self, at: usize) -> Option<&Vec<Line>> {
        self.best.lines(at)
    }

    fn with_lines(&self, at: usize, change: impl FnOnce(&mut Vec<Line>)) -> I {
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
            while self.left > 0 && self.lines(at).is_some_and(|l| l.len() > 1 && i < l.len()) {
                let candidate = self.with_lines(at, |lines| {
                    let end = (i + size).min(lines.len());
                    drop(lines.drain(i.min(end)..end));
                    if lines.is_empty() {
                        lines.push(Line::new());
                    }
                });
                if !self.try_one(candidate) {
                    i += size;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }

    /// Leaves out runs of blank-separated words, then runs of bytes.
    fn drop_words(&mut self, at: usize, line: usize) {
        for by_bytes in [false, true].into_iter().take(1 + usize::from(self.bytes)) {
            let mut units = self.units(at, line, by_bytes);
            let mut size = units.len().div_ceil(2);
            while size > 0 && self.left > 0 {
                let mut i = 0;
                while i < units.len() && self.left > 0 {
                    let mut fewer = units.clone();
                    fewer.drain(i..(i + size).min(fewer.len()));
                    let candidate = self.with_lines(at, |lines| {
                        // Steps before it may have been left out since.
                        if let Some(line) = lines.get_mut(line) {
                            *line = fewer.concat();
                            tidy(line);
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

    /// The line in parts that can be left out: words with the blank before them, or single bytes.
    fn units(&self, at: usize, line: usize, by_bytes: bool) -> Vec<Line> {
        let Some(line) = self.lines(at).and_then(|lines| lines.get(line)) else { return Vec::new() };
        let mut units: Vec<Line> = Vec::new();
        for piece in line {
            match piece {
                Piece::Bytes(bytes) => {
                    for b in bytes {
                        let starts = by_bytes || *b == b' ' || units.is_empty();
                        if starts {
                            units.push(Line::new());
                        }
                        if let Some(last) = units.last_mut() {
                            last.push(Piece::Bytes(vec![*b]));
                        }
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

    /// Replaces names by a letter, lengths by smaller ones.
    fn smaller_pieces(&mut self, at: usize, line: usize) {
        let count = self.lines(at).and_then(|l| l.get(line)).map_or(0, Vec::len);
        for i in 0..count {
            let Some(piece) = self.lines(at).and_then(|l| l.get(line)?.get(i)).cloned() else { return };
            let replace = |this: &Self, piece: Piece| {
                this.with_lines(at, |lines| {
                    if let Some(old) = lines.get_mut(line).and_then(|line| line.get_mut(i)) {
                        *old = piece;
                    }
                })
            };
            match piece {
                Piece::Kvs | Piece::Fill(Length { base: Base::Limit(_), .. }) => {
                    let candidate = replace(self, "a".into());
                    self.try_one(candidate);
                }
                Piece::Fill(Length { base: Base::Zero, plus }) => {
                    let (mut low, mut high) = (1, plus);
                    while low < high && self.left > 0 {
                        let middle = low + (high - low) / 2;
                        let candidate = replace(self, Piece::Fill(Length::of(middle)));
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
    use crate::campaign::generate::{Scope, generate};
    use crate::campaign::session::{Answer, Session, Step};

    fn text(session: &Session) -> String {
        session.to_scenario("x", &[])
    }

    #[test]
    fn the_needed_message_is_all_that_is_left() {
        let mut tried = 0;
        for number in 0..400 {
            let session = generate(5, number, Scope::default()).session;
            let mut shows = |s: &Session| text(s).contains("barrier_in");
            if !shows(&session) {
                continue;
            }
            tried += 1;
            let small = shrink(session, 2000, true, &mut shows);
            assert_eq!((small.ranks, small.steps.len()), (1, 1), "{}", text(&small));
            assert!(
                text(&small).ends_with("0  C: barrier_in\n")
                    || text(&small).ends_with("0  C: partial barrier_in\n"),
                "{}",
                text(&small)
            );
        }
        assert!(tried > 200, "{tried}");
    }

    #[test]
    fn what_needs_two_ranks_in_one_order_keeps_them() {
        let write = |rank, text: &str| Step::Write { rank, lines: vec![vec![text.into()]], partial: false };
        let other = Step::Await { rank: 2, answer: Answer::Perhaps };
        let steps = vec![
            Step::Join,
            write(2, "cmd=put key=a"),
            other,
            write(0, "cmd=get key=b"),
            write(1, "cmd=get key=c"),
            Step::Leave,
        ];
        let shows = |s: &Session| {
            let find = |part: &str| {
                s.steps.iter().position(|step| {
                    matches!(step, Step::Write { lines, .. } if matches!(&lines[0][..], [Piece::Bytes(b)] if b.ends_with(part.as_bytes())))
                })
            };
            matches!((find("=a"), find("=c")), (Some(a), Some(c)) if a < c && s.steps[a].rank() != s.steps[c].rank())
        };
        let small = shrink(Session { ranks: 4, steps }, 500, true, &mut { shows });
        assert_eq!(small, Session { ranks: 2, steps: vec![write(1, "=a"), write(0, "=c")] });
    }

    #[test]
    fn lengths_shrink_to_the_boundary_and_the_budget_is_kept() {
        let long = vec![vec!["key=".into(), Piece::Fill(Length::of(70_000))]];
        let session = Session { ranks: 1, steps: vec![Step::Write { rank: 0, lines: long, partial: false }] };
        let length = |s: &Session| match s.steps.first() {
            Some(Step::Write { lines, .. }) => lines[0].iter().fold(0, |n, p| match p {
                Piece::Fill(length) => n + length.plus,
                _ => n,
            }),
            _ => 0,
        };
        let small = shrink(session.clone(), 200, true, &mut |s| length(s) >= 1025);
        assert_eq!(length(&small), 1025);
        assert_eq!(small.weight(), 100 + 10 + 2 + 3 + 10);
        let mut calls = 0;
        shrink(session, 7, true, &mut |_| {
            calls += 1;
            true
        });
        assert!(calls <= 7);
    }
}
