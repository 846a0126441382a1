//! Steps that change a session.

use super::session::{ClientSession, SPAWN, SPAWN_TWO, SessionAction, SessionStep};
use crate::circumstances::Circumstances;
use crate::edit::{Editable, UnknownStep, VerbAndArguments, fill};

impl Editable for ClientSession {
    fn step(&mut self, words: VerbAndArguments, circumstances: &Circumstances) -> Result<bool, UnknownStep> {
        let text = |text: &str| {
            let text = text.replace("{spawn}", SPAWN).replace("{spawn-two}", SPAWN_TWO);
            fill(&text, circumstances)
        };
        match words {
            // The step's process also writes this line, before the step's request or after its response.
            ["before", place, line] => self.insert_at(self.place(place)?, 0, false, &text(line)),
            ["after", place, line] => self.insert_at(self.place(place)?, 1, false, &text(line)),
            // The step's process writes this line without waiting for the response to the step's request.
            ["meanwhile", place, line] => self.insert_at(self.place(place)?, 1, true, &text(line)),
            ["rank-1-before", place, line] => {
                let at = self.place(place)?;
                self.insert_at(at, 0, false, &text(line));
                self.steps[at].rank = 1;
            }
            ["hundred-times-before", place, line] => {
                let at = self.place(place)?;
                let act = self.send(&[text(line)]);
                let round = [0, 1].map(|rank| SessionStep {
                    rank,
                    op: None,
                    ..step_of(&self.steps[at], act.clone())
                });
                self.steps.splice(at..at, std::iter::repeat_n(round, 100).flatten());
            }
            ["spawn-again"] => {
                let at = self.place("spawn")? + 1;
                let act = SessionAction::Write(SPAWN.replace("{agent}", "/nowhere").into());
                self.steps.insert(at, SessionStep { rank: 1, ..step_of(&self.steps[0], act) });
            }
            ["two-programs"] => {
                self.step(&["instead", "spawn", "{spawn-two}"], circumstances)?;
                // The group now has a second process, which must also enter the barrier.
                let at = self.steps.iter().position(|s| s.group == 1 && s.op == Some("barrier"));
                let at = at.ok_or(UnknownStep)?;
                let lines =
                    ["cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=barrier_in\n", "cmd=finalize\n"];
                for (at, line) in [at, at + 2, at + 3].into_iter().zip(lines) {
                    let step = step_of(&self.steps[at], SessionAction::Write(line.into()));
                    self.steps.insert(at, SessionStep { group: 1, rank: 1, ..step });
                }
            }
            // These messages replace the request, and are sent in a single write.
            ["instead", place, messages @ ..] => {
                let at = self.place(place)?;
                let messages: Vec<String> = messages.iter().map(|message| text(message)).collect();
                self.steps[at].action = self.send(&messages);
            }
            ["bytes", place, bytes] => {
                let at = self.place(place)?;
                self.steps[at].action = SessionAction::Write((*bytes).into());
            }
            ["instead-binary", place] => {
                let at = self.place(place)?;
                self.steps[at].action = SessionAction::Write(vec![0x16, 0x03, 0x01, 0x02, 0xff, b'\n']);
            }
            ["replace", place, from, to] => {
                let at = self.place(place)?;
                if let SessionAction::Write(bytes) = &mut self.steps[at].action {
                    replace(bytes, from, &text(to));
                } else if let SessionAction::Frames(bodies) = &mut self.steps[at].action {
                    bodies.iter_mut().for_each(|body| replace(body, from, &text(to)));
                }
            }
            // Another request follows in the same write, before any response.
            ["together", place, line] => {
                let at = self.place(place)?;
                if let SessionAction::Write(bytes) = &mut self.steps[at].action {
                    bytes.extend(text(line).bytes());
                }
            }
            ["without", op] => self.steps.retain(|step| step.op != Some(op)),
            ["only", ops @ ..] => {
                self.steps.retain(|step| match step.op {
                    Some(op) => ops.contains(&op),
                    None => true,
                });
            }
            ["childless"] => self.steps.retain(|step| step.group == 0 && step.op != Some("spawn")),
            ["stop-after", place] => self.steps.truncate(self.place(place)? + 1),
            ["move", place, to] => {
                let step = self.steps.remove(self.place(place)?);
                let to = self.place(to)?;
                self.steps.insert(to, step);
            }
            ["piece", length] => self.max_write = length.parse().map_err(|_| UnknownStep)?,
            ["old-server"] => self.pmi12 = false,
            ["against", fault] => self.server_fault = Some(fault),
            _ => return Err(UnknownStep),
        }
        Ok(true)
    }
}

/// Creates a step in which the process of `other` performs `act`.
fn step_of(other: &SessionStep, act: SessionAction) -> SessionStep {
    SessionStep::new(other.group, other.rank, act)
}

fn replace(bytes: &mut Vec<u8>, from: &str, to: &str) {
    *bytes = String::from_utf8_lossy(bytes).replacen(from, to, 1).into_bytes();
}

impl ClientSession {
    /// Returns the index of the step that `place` names: `put` is the first put of the session, `put-2` the second and
    /// `put-last` the last. A number is the index of a step.
    fn place(&self, place: &str) -> Result<usize, UnknownStep> {
        if let Ok(number) = place.parse() {
            return Ok(number);
        }
        let of =
            |op: &str| (0..self.steps.len()).filter(|at| self.steps[*at].op == Some(op)).collect::<Vec<_>>();
        let found = if let Some(op) = place.strip_suffix("-last") {
            of(op).pop()
        } else if let Some(op) = place.strip_suffix("-2") {
            of(op).get(1).copied()
        } else {
            of(place).first().copied()
        };
        found.ok_or(UnknownStep)
    }

    /// Returns the action that sends these messages in the session's dialect.
    fn send(&self, messages: &[String]) -> SessionAction {
        match self.pmi2 {
            true => SessionAction::Frames(messages.iter().map(|message| message.clone().into()).collect()),
            false => SessionAction::Write(messages.concat().into()),
        }
    }

    /// Inserts a message at the index `at + offset`, from the process of step `at`. If `ahead` is true, the process sends the message
    /// without waiting for the answer to its previous write.
    fn insert_at(&mut self, at: usize, offset: usize, ahead: bool, message: &str) {
        let act = self.send(&[message.to_owned()]);
        let step = SessionStep { without_waiting: ahead, ..step_of(&self.steps[at], act) };
        self.steps.insert(at + offset, step);
    }
}
