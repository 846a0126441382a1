//! What programs and libraries under test are put through: a scenario for them as data.
//!
//! We are the server, so what is drawn is what the server answers. For a program that is derived from what it asks by itself
//! ([`program`]); for a library we also draw the calls ([`library`]). `answers` changes an answer, [`trial`] plays an ordeal,
//! `symptom` says what is wrong afterwards.

mod answers;
pub mod library;
pub mod program;
mod symptom;
pub mod trial;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use pmi_wire::Operation;

use super::input::Input;
use super::session::{Line, read_line, show_line};
use super::shrink::line_weight;
use super::store;
use crate::lang::UnderTest;
use crate::lang::ast::{
    Action, ProcessAction, RankSet, Role, Scenario, Source, Stmt, UnderTest as Party, Who, WriteMode,
};

/// One session with a program or a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordeal {
    /// Who is under test.
    pub tests: UnderTest,
    /// Processes of the first group.
    pub ranks: u32,
    /// What is said, in this order.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A line of the head, as `vary two-blanks`.
    Head(String),
    /// What we say.
    Say {
        /// To whom; all if `None`.
        whom: Option<u32>,
        /// The messages in it.
        lines: Vec<Line>,
        /// How they are written.
        mode: WriteMode,
    },
    /// Any other step, as it is written behind the rank: which request is answered otherwise, a call, a process that is killed.
    Else {
        /// Whose; of all if `None`.
        whom: Option<u32>,
        /// As `C: every cmd=get`.
        text: String,
    },
}

impl Step {
    fn whom(&self) -> Option<u32> {
        match self {
            Self::Head(_) => None,
            Self::Say { whom, .. } | Self::Else { whom, .. } => *whom,
        }
    }

    fn whom_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::Head(_) => None,
            Self::Say { whom, .. } | Self::Else { whom, .. } => whom.as_mut(),
        }
    }

    fn write(&self, text: &mut String) {
        let rank = self.whom().map_or("*".to_owned(), |rank| rank.to_string());
        match self {
            Self::Head(_) => return,
            Self::Else { text: what, .. } => *text += &format!("{rank}  {what}"),
            Self::Say { lines, mode, .. } => {
                let bytewise = if mode.bytewise { "bytewise " } else { "" };
                let partial = if mode.partial { "partial " } else { "" };
                let shown: Vec<String> = lines.iter().map(|line| show_line(line)).collect();
                *text += &format!("{rank}  S: {bytewise}{partial}{}", shown.join("\n      "));
            }
        }
        text.push('\n');
    }
}

/// Plays the server's half of a transcript without us.
const SCRIPT: &str = include_str!("replay.py");

/// What is expected of a program, whatever it is told.
const ENDS: &str = "*  P: ends\n";

impl Ordeal {
    /// As a scenario that can be played; `None` where nothing can be made of what is left.
    fn scenario(&self) -> Option<Scenario> {
        let text = self.to_scenario("Drawn.", &[self.cited("")]);
        crate::lang::parse(Arc::new(Source { path: "drawn.pmi".into(), text }), "drawn").ok()
    }
}

impl Input for Ordeal {
    /// What is to be done by whoever gets what is no message.
    fn cited(&self, _: &str) -> &'static str {
        "rfc13.error.abort"
    }

    fn to_scenario(&self, summary: &str, requires: &[&str]) -> String {
        let mut text: String = summary.lines().map(|line| format!("# {line}\n")).collect();
        let tests = if self.tests == Party::Client { "client" } else { "library" };
        text += &format!("requires {}\ntests {tests}\nranks {}\n", requires.join(" "), self.ranks);
        for step in &self.steps {
            if let Step::Head(line) = step {
                text += &format!("{line}\n");
            }
        }
        text.push('\n');
        self.steps.iter().for_each(|step| step.write(&mut text));
        if self.tests == Party::Client {
            text += ENDS;
        }
        text
    }

    fn from_scenario(scenario: &Scenario) -> Result<Self, usize> {
        let source = &scenario.source;
        let mut steps = Vec::new();
        let serving = &scenario.serving;
        let heads = [
            ("vary", serving.variations.iter().map(|name| name.span).collect::<Vec<_>>()),
            ("fault", serving.fault.iter().map(|name| name.span).collect()),
            ("serve", serving.settings.iter().map(|(setting, _)| setting.span).collect()),
        ];
        for (word, spans) in heads {
            let line = |span: &crate::lang::ast::Span| {
                Step::Head(format!("{word} {}", &source.text[span.start..span.end]))
            };
            steps.extend(spans.iter().map(line));
        }
        for stmt in &scenario.body {
            let step = match stmt {
                Stmt::Step(step) => step,
                Stmt::Use(name) | Stmt::Let { name, .. } => return Err(source.line_of(name.span.start)),
                Stmt::Repeat { span, .. } => return Err(source.line_of(span.start)),
            };
            if matches!(step.action, Action::Process(ProcessAction::Over)) {
                continue;
            }
            steps.push(read_step(step, source).ok_or_else(|| source.line_of(step.span.start))?);
        }
        match scenario.tests {
            Party::Server => Err(1),
            tests => Ok(Self { tests, ranks: scenario.ranks, steps }),
        }
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
        self.steps.retain(|step| step.whom() != Some(rank));
        for step in &mut self.steps {
            if let Some(whom) = step.whom_mut().filter(|whom| **whom > rank) {
                *whom -= 1;
            }
        }
    }

    fn lines(&self, step: usize) -> Option<&Vec<Line>> {
        match self.steps.get(step) {
            Some(Step::Say { lines, .. }) => Some(lines),
            _ => None,
        }
    }

    fn lines_mut(&mut self, step: usize) -> Option<&mut Vec<Line>> {
        match self.steps.get_mut(step) {
            Some(Step::Say { lines, .. }) => Some(lines),
            _ => None,
        }
    }

    fn weight(&self) -> usize {
        let step = |step: &Step| match step {
            Step::Say { lines, .. } => 10 + lines.iter().map(|l| 2 + line_weight(l)).sum::<usize>(),
            Step::Head(_) | Step::Else { .. } => 10,
        };
        self.ranks as usize * 100 + self.steps.iter().map(step).sum::<usize>()
    }

    fn settle(&mut self) -> bool {
        let ranks = self.ranks;
        self.steps.iter().all(|step| step.whom().is_none_or(|rank| rank < ranks)) && self.scenario().is_some()
    }

    /// What a program or a library does not do is found without the scenario's help.
    fn tighten(&mut self, _: &[(usize, Operation)], _: bool) {}

    /// Programs and libraries begin by themselves.
    fn joined(&self) -> Option<Self> {
        None
    }

    /// Programs and libraries are run to their end.
    fn awaited(&self) -> Option<Self> {
        None
    }

    /// For a program, the transcript says what the server said to it; a library needs a program that calls it.
    fn store_script(&self, folder: &Path, bucket: &str, _: &[String], replay: &str) -> std::io::Result<()> {
        match self.tests {
            Party::Client => {
                let play = "folder=$(dirname \"$0\")\nexec python3 \"$folder/replay.py\" \"$folder/transcript.ndjson\" \"$@\"\n";
                store::store_free_script(folder, bucket, SCRIPT, play)
            }
            Party::Library | Party::Server => {
                store::store_our_script(folder, bucket, "functions of a library are called", replay)
            }
        }
    }
}

fn read_step(step: &crate::lang::ast::Step, source: &Source) -> Option<Step> {
    let whom = match &step.who {
        Who::Ranks { group: 0, set: RankSet::All } => None,
        Who::Ranks { group: 0, set: RankSet::Ranges(ranges) } => match ranges[..] {
            [(rank, last)] if rank == last => Some(rank),
            _ => return None,
        },
        _ => return None,
    };
    if let (Role::Server, Action::Message { mode, lines }) = (step.role, &step.action)
        && let Some(lines) = lines.iter().map(read_line).collect::<Option<Vec<_>>>()
    {
        return Some(Step::Say { whom, lines, mode: *mode });
    }
    let (_, text) =
        source.text.get(step.span.start..step.span.end)?.trim().split_once(char::is_whitespace)?;
    Some(Step::Else { whom, text: text.trim().to_owned() })
}
