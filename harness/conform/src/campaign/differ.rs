//! The same sessions against several servers: where they answer differently.
//!
//! What may lawfully differ is left out of the comparison: names of keyval spaces, limits, sizes, mappings, texts of
//! messages. A difference is no breach: one of them, both or none may be right.

use std::collections::BTreeMap;
use std::io;

use pmi_wire::{Body, LineFramer, Response, ValueReading};

use super::arena::{Arena, Pace, Stage, Verdict};
use super::drive::Played;
use super::session::Session;
use super::symptom::{Symptom, kind, slug};
use crate::event::{Proc, What};

/// Several servers.
pub struct Differential {
    arenas: Vec<Arena>,
}

impl Differential {
    /// Compares these; the first is what the others are held against.
    pub fn new(arenas: Vec<Arena>) -> Self {
        Self { arenas }
    }
}

impl Stage for Differential {
    fn play(&self, session: &Session, pace: Pace) -> io::Result<Verdict> {
        let mut all = Vec::new();
        for arena in &self.arenas {
            let played = arena.play(session, pace)?.played;
            // What one of them could not be asked is no difference.
            if played.unjudged.is_some() {
                return Ok(Verdict { played, symptoms: Vec::new() });
            }
            all.push(played);
        }
        let symptoms = first_difference(&all).map(|d| d.symptom(&self.arenas)).into_iter().collect();
        let played = all.into_iter().next().ok_or_else(|| io::Error::other("no server to compare"))?;
        Ok(Verdict { played, symptoms })
    }

    fn label(&self) -> String {
        self.arenas.iter().map(Arena::label).collect::<Vec<_>>().join(" and ")
    }

    fn command(&self) -> &[String] {
        self.arenas.first().map_or(&[], Stage::command)
    }

    fn version(&self) -> String {
        self.arenas.iter().map(Stage::version).collect()
    }
}

/// Where servers part.
#[derive(Debug, PartialEq, Eq)]
struct Difference {
    proc: Proc,
    /// What was asked.
    asked: String,
    /// What each answered.
    answers: Vec<String>,
}

impl Difference {
    fn symptom(&self, arenas: &[Arena]) -> Symptom {
        let bucket: Vec<String> =
            [&self.asked].into_iter().chain(&self.answers).map(|part| slug(part)).collect();
        let told: Vec<String> = arenas
            .iter()
            .zip(&self.answers)
            .map(|(arena, answer)| format!("{} answers {answer}", arena.label()))
            .collect();
        Symptom {
            bucket: format!("differs--{}", bucket.join("--")),
            what: format!("to {} of rank {}: {}", self.asked, self.proc, told.join("; ")),
            requirement: None,
        }
    }
}

/// The first answer that is not the same everywhere, of the lowest rank that has one.
fn first_difference(all: &[Played]) -> Option<Difference> {
    let answers: Vec<_> = all.iter().map(exchanges).collect();
    let first = answers.first()?;
    for (proc, exchanges) in first {
        for (i, (asked, _)) in exchanges.iter().enumerate() {
            let at = |other: &BTreeMap<Proc, Vec<(String, String)>>| {
                other
                    .get(proc)
                    .and_then(|e| e.get(i))
                    .map_or("nothing".to_owned(), |(_, answer)| answer.clone())
            };
            let here: Vec<String> = answers.iter().map(at).collect();
            if here.iter().any(|answer| *answer != here[0]) {
                return Some(Difference { proc: *proc, asked: asked.clone(), answers: here });
            }
        }
    }
    None
}

/// For each process of the first group, what it asked and what it was answered, until its connection ended.
fn exchanges(played: &Played) -> BTreeMap<Proc, Vec<(String, String)>> {
    let mut all: BTreeMap<Proc, Vec<(String, String)>> = BTreeMap::new();
    let mut last: BTreeMap<Proc, String> = BTreeMap::new();
    let mut framers: BTreeMap<Proc, LineFramer> = BTreeMap::new();
    for event in &played.events {
        let (proc, answers) = match &event.what {
            What::ToServer { proc, bytes } => {
                last.insert(*proc, kind(&bytes.0));
                continue;
            }
            What::FromServer { proc, bytes } => {
                let framer = framers.entry(*proc).or_insert_with(|| LineFramer::new(1 << 20));
                framer.push(&bytes.0);
                let mut lines = Vec::new();
                while let Some(line) = framer.next_line() {
                    lines.push(normalized(line.unwrap_or(b"")));
                }
                (*proc, lines)
            }
            What::ClosedByServer { proc } if last.contains_key(proc) => (*proc, vec!["close".to_owned()]),
            What::NoAnswer { proc, .. } => (*proc, vec!["silence".to_owned()]),
            _ => continue,
        };
        if proc.group == 0 {
            let asked = last.get(&proc).cloned().unwrap_or_else(|| "start".into());
            all.entry(proc).or_default().extend(answers.into_iter().map(|answer| (asked.clone(), answer)));
        }
    }
    all
}

/// An answer without what may differ.
fn normalized(line: &[u8]) -> String {
    let Ok(response) = Response::parse(line, ValueReading::ToEndOfLine) else {
        return if line.is_empty() { "empty".into() } else { "unreadable".into() };
    };
    let cmd = response.operation().response_cmd().unwrap_or("empty");
    if !response.is_success() {
        return format!("{cmd} refused");
    }
    match response.body {
        Body::Get(Some(value)) if !value.starts_with(b"(vector,") => {
            format!("{cmd} {}", value[..value.len().min(40)].escape_ascii())
        }
        Body::Lookup(Some(port)) => format!("{cmd} {}", port[..port.len().min(40)].escape_ascii()),
        _ => format!("{cmd} ok"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pmi_reference::Config;
    use pmi_reference::fault::{Behaviour, faults};

    use super::*;
    use crate::campaign::arena::Target;
    use crate::campaign::generate::{Scope, generate};
    use crate::requirement::Catalogue;

    fn arena(config: Config) -> Arena {
        Arena::new(Target::Memory(config), Catalogue::default(), Duration::from_secs(1)).unwrap()
    }

    fn differences(other: Config) -> Vec<String> {
        let stage = Differential::new(vec![arena(Config::default()), arena(other)]);
        let scope = Scope { spawn: false, mutate: false, ..Scope::default() };
        let mut found: Vec<String> = (0..60)
            .flat_map(|n| stage.play(&generate(1, n, scope).session, Pace::Hasty).unwrap().symptoms)
            .map(|s| s.bucket)
            .collect();
        found.sort();
        found.dedup();
        found
    }

    #[test]
    fn what_may_differ_is_no_difference() {
        let other = Config { kvs_prefix: "other".into(), ..Config::default() };
        assert_eq!(differences(other), Vec::<String>::new());
    }

    #[test]
    fn a_server_that_answers_something_else_is_told() {
        let mut faults = faults().filter(|f| f.breaks.contains(&"rfc13.get.value"));
        // Some need more than these sessions hold.
        let told = faults.any(|fault| {
            let behaviour = Behaviour { fault: Some(fault), ..Behaviour::default() };
            let found = differences(Config { behaviour, ..Config::default() });
            found.iter().any(|bucket| bucket.starts_with("differs--get--"))
        });
        assert!(told);
    }

    #[test]
    fn answers_are_compared_by_what_they_say() {
        let same = |a: &[u8], b: &[u8]| assert_eq!(normalized(a), normalized(b));
        same(b"cmd=my_kvsname rc=0 kvsname=a", b"cmd=my_kvsname kvsname=b");
        same(b"cmd=get_result rc=-1 msg=no", b"cmd=get_result rc=2 msg=key_not_found");
        assert_ne!(normalized(b"cmd=get_result rc=0 value=a"), normalized(b"cmd=get_result rc=0 value=b"));
        assert_eq!(normalized(b"hello"), "unreadable");
    }
}
