//! Keyval spaces beside those of the process groups, which RFC 13 does not have: any process may create one, and use it by its name.

use pmi_wire::{KeyvalSpaceRequest, Operation, Proc};

use super::config::Action;
use super::state::{KeyvalSpace, Phase, Server};
use crate::fault::{Effect, KeyvalSpaceEffect};
use crate::reply::Reply;

/// Most of them, so that nobody can make a server grow.
const MOST: usize = 4096;

impl Server {
    /// Does what a line asks for, if it is a request of this kind and they are served.
    pub(super) fn keyval_space_request(&mut self, from: Proc, line: &[u8]) -> bool {
        if !self.config.keyval_spaces || self.proc(from).phase != Phase::Joined {
            return false;
        }
        let effect = self.effect(from, |e| if let Effect::KeyvalSpace(f) = e { Some(*f) } else { None });
        match KeyvalSpaceRequest::parse(line) {
            Some(KeyvalSpaceRequest::Create) => self.create_space(from, effect),
            Some(KeyvalSpaceRequest::Destroy { kvsname }) => self.destroy_space(from, kvsname, effect),
            Some(KeyvalSpaceRequest::ByIndex { kvsname, index }) => {
                self.pair_by_index(from, kvsname, index, effect);
            }
            None => return false,
        }
        true
    }

    /// The space of this name that a process has created.
    pub(super) fn space(&mut self, kvsname: &[u8]) -> Option<&mut KeyvalSpace> {
        self.spaces.iter_mut().find(|space| space.name == kvsname)
    }

    /// A put into such a space.
    pub(super) fn put_into_space(&mut self, kvsname: &[u8], key: &[u8], value: &[u8]) -> Option<Reply> {
        let space = self.space(kvsname)?;
        Some(match space.get(key) {
            Some(_) => Reply::fail(Operation::Put, "key is there already"),
            None => {
                space.pairs.push((key.to_vec(), value.to_vec()));
                Reply::ok(Operation::Put)
            }
        })
    }

    /// A get from such a space.
    pub(super) fn get_from_space(&mut self, kvsname: &[u8], key: &[u8]) -> Option<Reply> {
        let space = self.space(kvsname)?;
        Some(match space.get(key) {
            Some(value) => Reply::ok(Operation::Get).with("value", value.clone()),
            None => Reply::fail(Operation::Get, "key not found"),
        })
    }

    fn create_space(&mut self, from: Proc, effect: Option<KeyvalSpaceEffect>) {
        if self.spaces.len() >= MOST {
            return self.say(from, &[("cmd", b"newkvs"), ("rc", b"-1")]);
        }
        self.created += 1;
        let number = if effect == Some(KeyvalSpaceEffect::OneName) { 1 } else { self.created };
        let name = match effect {
            Some(KeyvalSpaceEffect::OwnName) => self.groups[from.group as usize].kvsname.clone(),
            _ => format!("{}-created-{number}", self.config.kvs_prefix).into_bytes(),
        };
        self.spaces.push(KeyvalSpace { name: name.clone(), pairs: Vec::new() });
        self.say(from, &[("cmd", b"newkvs"), ("rc", b"0"), ("kvsname", &name)]);
    }

    fn destroy_space(&mut self, from: Proc, kvsname: &[u8], effect: Option<KeyvalSpaceEffect>) {
        let known = self.space(kvsname).is_some();
        match effect {
            Some(KeyvalSpaceEffect::DestroyKeeps) => {}
            Some(KeyvalSpaceEffect::DestroyTakesAll) => self.spaces.clear(),
            _ => self.spaces.retain(|space| space.name != kvsname),
        }
        let ok = known || effect == Some(KeyvalSpaceEffect::UnknownDestroyed);
        self.say(from, &[("cmd", b"kvs_destroyed"), ("rc", if ok { b"0" } else { b"-1" })]);
    }

    /// The pairs of a group's own space have no order of their own; they get that of their keys.
    fn pair_by_index(&mut self, from: Proc, kvsname: &[u8], index: u64, effect: Option<KeyvalSpaceEffect>) {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let at = match effect {
            Some(KeyvalSpaceEffect::IndexFromOne) => index.saturating_sub(1),
            Some(KeyvalSpaceEffect::IndexStays) => 0,
            _ => index,
        };
        let group = &self.groups[from.group as usize];
        let pair = match self.spaces.iter().find(|space| space.name == kvsname) {
            Some(space) => space.pairs.get(at).cloned(),
            None if group.kvsname == kvsname => {
                let mut own: Vec<_> = group.kvs.iter().collect();
                own.sort_unstable();
                own.get(at).map(|(key, value)| ((*key).clone(), (*value).clone()))
            }
            None => None,
        };
        match &pair {
            Some((key, value)) => {
                let next = (index + 1).to_string().into_bytes();
                let words = [
                    ("cmd", &b"getbyidx_results"[..]),
                    ("rc", b"0"),
                    ("nextidx", &next),
                    ("key", key),
                    ("val", value),
                ];
                self.say(from, &words);
            }
            None => {
                self.say(from, &[("cmd", b"getbyidx_results"), ("rc", b"-1"), ("reason", b"no_more_keyvals")])
            }
        }
    }

    /// Answers with these tuples.
    fn say(&mut self, to: Proc, tuples: &[(&str, &[u8])]) {
        let words: Vec<Vec<u8>> =
            tuples.iter().map(|(key, value)| [key.as_bytes(), b"=", value].concat()).collect();
        let mut bytes = words.join(&b' ');
        bytes.push(b'\n');
        self.actions.push_back(Action::Send { to, bytes });
    }
}
