//! Steps that change a process's environment or the messages sent to a singleton.

use pmi_wire::place;
use pmi_wire::singleton::SingletonInfo;

use super::step::{Editable, UnknownStep, VerbAndArguments, fill};
use crate::circumstances::Circumstances;

pub(crate) type ProcessVariables = Vec<(&'static str, String)>;

impl Editable for ProcessVariables {
    fn step(&mut self, words: VerbAndArguments, circumstances: &Circumstances) -> Result<bool, UnknownStep> {
        let Circumstances { group, rank, size, nodes, .. } = *circumstances;
        let places = place(size, nodes);
        let here = places.get(rank as usize).copied().unwrap_or(0);
        match *words {
            ["if-first-group"] => return Ok(group == 0),
            ["if-spawned"] => return Ok(group > 0),
            ["if-set", name] => return Ok(self.iter().any(|(n, _)| *n == name)),
            ["set", name, value] => set(self, name, fill(value, circumstances)),
            ["unset", name] => self.retain(|(n, _)| *n != name),
            ["rank-within-node"] => {
                let first = places.iter().position(|node| *node == here).unwrap_or(0);
                set(self, "PMI_RANK", (rank - first as u32).to_string());
            }
            ["size-of-node"] => {
                set(self, "PMI_SIZE", places.iter().filter(|node| **node == here).count().to_string());
            }
            ["more-variables"] => {
                // Without PMI_PORT, PMI_ID has no meaning and may have any value.
                if !self.iter().any(|(name, _)| *name == "PMI_PORT") {
                    self.push(("PMI_ID", "7".into()));
                }
                self.push(("PMI_DEBUG", "0".into()));
                self.push(("PMI_TOTALVIEW", String::new()));
            }
            _ => return Err(UnknownStep),
        }
        Ok(true)
    }
}

fn set(variables: &mut ProcessVariables, name: &'static str, value: String) {
    variables.retain(|(n, _)| *n != name);
    variables.push((name, value));
}

/// The messages to a process that has requested a process manager (singleton init). Each message is a line with its newline, or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SingletonMessages {
    /// The first message.
    pub request: Vec<u8>,
    /// The message after the response to `request`.
    pub info: Vec<u8>,
}

impl Editable for SingletonMessages {
    fn step(&mut self, words: VerbAndArguments, circumstances: &Circumstances) -> Result<bool, UnknownStep> {
        let line = |info: SingletonInfo| [info.line(), b"\n".to_vec()].concat();
        match words {
            ["asks", words @ ..] => return self.request.step(words, circumstances),
            ["info", words @ ..] => return self.info.step(words, circumstances),
            ["kvsname", name] => {
                self.info = line(SingletonInfo { kvsname: name.as_bytes().to_vec(), streams: false })
            }
            ["streams"] => {
                if let Ok(info) = SingletonInfo::parse(self.info.trim_ascii_end()) {
                    self.info = line(SingletonInfo { streams: true, ..info });
                }
            }
            _ => return Err(UnknownStep),
        }
        Ok(true)
    }
}
