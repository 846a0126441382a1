//! What a campaign needs of its sessions, whoever is under test: to write and read them as scenarios, and to make
//! them smaller.

use std::io;
use std::ops::Range;
use std::path::Path;

use pmi_wire::Operation;

use super::session::{Answer, Line, Says, Session, Step};
use super::shrink::line_weight;
use super::store;
use crate::lang::ast::Scenario;

/// A session as data: ranks, and steps of which any may be left out.
pub trait Input: Clone + PartialEq + Send + Sync {
    /// The requirement that a stored scenario of this bucket cites where the judge knows none.
    fn cited(&self, bucket: &str) -> &'static str;

    /// Writes it as a scenario file.
    fn to_scenario(&self, summary: &str, requires: &[&str]) -> String;
    /// Reads a scenario that [`Self::to_scenario`] could have written.
    ///
    /// # Errors
    ///
    /// The line of the first step that is of another kind.
    fn from_scenario(scenario: &Scenario) -> Result<Self, usize>;
    /// Number of processes.
    fn ranks(&self) -> u32;
    /// Number of steps.
    fn len(&self) -> usize;
    /// Whether nothing is left.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Leaves out steps.
    fn drop_steps(&mut self, steps: Range<usize>);
    /// Leaves out a rank with all that concerns it alone; the others move up.
    fn drop_rank(&mut self, rank: u32);
    /// The messages that a step writes, if it writes any.
    fn lines(&self, step: usize) -> Option<&Vec<Line>>;
    /// The same, to be changed.
    fn lines_mut(&mut self, step: usize) -> Option<&mut Vec<Line>>;
    /// What shrinking makes less.
    fn weight(&self) -> usize;
    /// Makes the rest fit what was left out; false if it cannot be played.
    fn settle(&mut self) -> bool;
    /// Notes at which steps an answer was due that did not come; `held_up` if half a request may be why.
    fn tighten(&mut self, unanswered: &[(usize, Operation)], held_up: bool);
    /// The same behind a start in good order, if it has none.
    fn joined(&self) -> Option<Self>;
    /// The same with a wait for what its last words lead to, if it has none: a scenario ends with its last step.
    fn awaited(&self) -> Option<Self>;
    /// Writes a script that plays it: with nothing of ours if that is possible, else by `replay`.
    ///
    /// # Errors
    ///
    /// Whatever writing files brings.
    fn store_script(&self, folder: &Path, bucket: &str, command: &[String], replay: &str) -> io::Result<()>;
}

impl Input for Session {
    fn cited(&self, bucket: &str) -> &'static str {
        store::cited(self, bucket)
    }

    fn to_scenario(&self, summary: &str, requires: &[&str]) -> String {
        self.to_scenario(summary, requires)
    }

    fn from_scenario(scenario: &Scenario) -> Result<Self, usize> {
        Self::from_scenario(scenario)
    }

    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn len(&self) -> usize {
        self.steps.len()
    }

    fn drop_steps(&mut self, steps: Range<usize>) {
        self.steps.drain(steps);
    }

    fn drop_rank(&mut self, rank: u32) {
        self.ranks -= 1;
        self.steps.retain(|step| step.rank() != Some(rank));
        for step in &mut self.steps {
            match step {
                Step::Write { rank: r, .. }
                | Step::Await { rank: r, .. }
                | Step::Close { rank: r }
                | Step::Exit { rank: r, .. }
                | Step::Kill { rank: r, .. }
                    if *r > rank =>
                {
                    *r -= 1;
                }
                _ => {}
            }
        }
    }

    fn lines(&self, step: usize) -> Option<&Vec<Line>> {
        self.steps.get(step)?.lines()
    }

    fn lines_mut(&mut self, step: usize) -> Option<&mut Vec<Line>> {
        self.steps.get_mut(step)?.lines_mut()
    }

    fn weight(&self) -> usize {
        let step = |step: &Step| match step {
            Step::Write { lines, .. } | Step::Upstream { says: Says::Words { lines, .. }, .. } => {
                10 + lines.iter().map(|l| 2 + line_weight(l)).sum::<usize>()
            }
            Step::Join | Step::Leave => 5,
            _ => 10,
        };
        self.ranks as usize * 100 + self.steps.iter().map(step).sum::<usize>()
    }

    fn settle(&mut self) -> bool {
        self.realign();
        self.is_sound()
    }

    fn tighten(&mut self, unanswered: &[(usize, Operation)], held_up: bool) {
        for (index, op) in unanswered {
            if let Some(Step::Await { answer, .. }) = self.steps.get_mut(*index) {
                *answer = if held_up { Answer::InTime(*op) } else { Answer::Due(*op) };
            }
        }
    }

    fn joined(&self) -> Option<Self> {
        if self.steps.contains(&Step::Join) {
            return None;
        }
        let mut joined = self.clone();
        joined.steps.insert(0, Step::Join);
        Some(joined)
    }

    fn awaited(&self) -> Option<Self> {
        let gone = |rank: &u32| {
            let ends = |s: &Step| matches!(s, Step::Close { .. } | Step::Exit { .. } | Step::Kill { .. });
            self.steps.iter().any(|step| ends(step) && step.rank() == Some(*rank))
        };
        let speaker = match self.steps.last()? {
            Step::Join | Step::Leave | Step::Await { .. } | Step::Passed { .. } => return None,
            last => last.rank(),
        };
        let rank = speaker.into_iter().chain(0..self.ranks).find(|rank| !gone(rank))?;
        let mut awaited = self.clone();
        awaited.steps.push(Step::Await { rank, answer: Answer::Perhaps });
        Some(awaited)
    }

    fn store_script(&self, folder: &Path, bucket: &str, command: &[String], replay: &str) -> io::Result<()> {
        store::store_script(self, folder, bucket, command, replay)
    }
}
