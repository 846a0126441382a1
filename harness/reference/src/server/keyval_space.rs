//! Keyval spaces beside those of the process groups, which RFC 13 does not have: any process may create one, and use it by its name.

use pmi_wire::{KeyvalSpaceRequest, Operation, Proc};

use super::config::Action;
use super::state::{KeyvalSpace, Server};
use crate::reply::Reply;

/// Most of them, so that no client can make a server grow.
const MAX_SPACES: usize = 4096;

impl Server {
    pub(super) fn keyval_space_request(&mut self, from: Proc, request: KeyvalSpaceRequest<'_>) {
        match request {
            KeyvalSpaceRequest::Create => {
                let name = self.new_space_name();
                self.create_space(from, name);
            }
            KeyvalSpaceRequest::Destroy { kvsname } => {
                let known = self.space(kvsname).is_some();
                self.spaces.retain(|space| space.name != kvsname);
                self.reply_destroyed(from, known);
            }
            KeyvalSpaceRequest::ByIndex { kvsname, index } => self.pair_by_index(from, kvsname, index, index),
        }
    }

    /// The space of this name that a process has created.
    pub fn space(&mut self, kvsname: &[u8]) -> Option<&mut KeyvalSpace> {
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

    /// A name that no space has had.
    pub fn new_space_name(&mut self) -> Vec<u8> {
        self.created += 1;
        format!("{}-created-{}", self.config.kvs_prefix, self.created).into_bytes()
    }

    /// Creates a space and replies with its name.
    pub fn create_space(&mut self, from: Proc, name: Vec<u8>) {
        if self.spaces.len() >= MAX_SPACES {
            return self.reply_words(from, &[("cmd", b"newkvs"), ("rc", b"-1")]);
        }
        self.reply_words(from, &[("cmd", b"newkvs"), ("rc", b"0"), ("kvsname", &name)]);
        self.spaces.push(KeyvalSpace { name, pairs: Vec::new() });
    }

    /// Replies whether a space was destroyed.
    pub fn reply_destroyed(&mut self, to: Proc, ok: bool) {
        self.reply_words(to, &[("cmd", b"kvs_destroyed"), ("rc", if ok { b"0" } else { b"-1" })]);
    }

    /// Replies with the pair at an index, and with the index after `index`. The pairs of a group's own space have the order of their
    /// keys.
    pub fn pair_by_index(&mut self, from: Proc, kvsname: &[u8], index: u64, at: u64) {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
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
        let cmd = ("cmd", &b"getbyidx_results"[..]);
        match pair {
            Some((key, value)) => {
                let next = (index + 1).to_string();
                let words = [("rc", &b"0"[..]), ("nextidx", next.as_bytes()), ("key", &key), ("val", &value)];
                self.reply_words(from, &[&[cmd], &words[..]].concat());
            }
            None => self.reply_words(from, &[cmd, ("rc", b"-1"), ("reason", b"no_more_keyvals")]),
        }
    }

    fn reply_words(&mut self, to: Proc, tuples: &[(&str, &[u8])]) {
        let words: Vec<Vec<u8>> =
            tuples.iter().map(|(key, value)| [key.as_bytes(), b"=", value].concat()).collect();
        let mut bytes = words.join(&b' ');
        bytes.push(b'\n');
        self.act(Action::Send { to, bytes });
    }
}
