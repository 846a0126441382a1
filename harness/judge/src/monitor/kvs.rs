//! The keyval space: puts, gets and their responses.

use pmi_scenario::ids::{self, rules};
use pmi_wire::{Decoded, Framing, Outcome, Proc};

use super::pmi2::{pair_rule, values_rule};
use super::state::{COMPLETE, FULL, IN_PIECES, Monitor, RESERVED};
use crate::kvs::{PREPUT, is_ambiguous, without_tuples};
use crate::seen::{Seen, show};

/// Returns true if a key is also a field name of the protocol.
fn is_protocol_word(key: &[u8]) -> bool {
    const WORDS: [&[u8]; 7] = [b"cmd", b"mcmd", b"rc", b"msg", b"kvsname", b"key", b"value"];
    WORDS.contains(&key)
}

impl Monitor {
    /// Judges the response to a put. `lawful` is true if the server has no reason to refuse it.
    pub(super) fn put_answered(
        &mut self,
        p: Proc,
        key: &[u8],
        value: &[u8],
        lawful: bool,
        message: &Decoded<'_>,
    ) {
        let full = self.is_full(p, key, value);
        let is_irregular = self.is_irregular(p);
        let group = self.group(p.group);
        if message.is_success() {
            group.puts_protocol_words |= is_protocol_word(key);
            if full {
                group.puts_full = true;
                group.full_keys.insert(key.to_vec());
            }
            // An irregular put may have been understood in another way, so that the pair need not be there.
            if !is_irregular {
                group.kvs.acknowledged(key, value, p.rank);
            }
            return;
        }
        if message.framing == Framing::Lines {
            group.kvs.refused(key, value, p.rank);
        }
        if lawful && !self.may_abort(p) {
            let id = match message.framing {
                Framing::Lines if full => self.in_pieces_or(p, FULL),
                Framing::Lines => self.in_pieces_or(p, ids::RFC13_ABNF_C_PUT),
                Framing::Frames => ids::PMI2_COMMON_PUT,
            };
            let seen = Seen::message(message.text);
            self.server_error(p, id, "a put within all limits succeeds", seen);
        }
    }

    /// Returns true if a key or a value has the greatest length within the limits of get_maxes.
    pub(super) fn is_full(&mut self, p: Proc, key: &[u8], value: &[u8]) -> bool {
        let full = |length: usize, most: u64| length as u64 + 1 == most;
        self.rank(p).maxes.is_some_and(|m| full(key.len(), m.keylen_max) || full(value.len(), m.vallen_max))
    }

    /// Judges the response to a get of a key of the process's own keyval space. The process had left `left` barriers when it sent
    /// the request.
    pub(super) fn get_answered(
        &mut self,
        p: Proc,
        key: &[u8],
        left: u64,
        srcid: Option<i64>,
        message: &Decoded<'_>,
    ) {
        if self.group(p.group).unjudged_keys.contains(key) || self.state_unknown(p) {
            return;
        }
        match message.outcome() {
            Some(Outcome::Success) => self.found(p, key, message),
            Some(Outcome::Miss | Outcome::Failure) => self.missed(p, key, left, srcid, message),
            None => {
                let expected = "found=TRUE or found=FALSE";
                self.server_error(p, ids::PMI2_COMMON_GET_FOUND, expected, Seen::message(message.text));
            }
        }
    }

    fn found(&mut self, p: Proc, key: &[u8], message: &Decoded<'_>) {
        let is_line = message.framing == Framing::Lines;
        let Some(group) = self.groups.get(&p.group) else { return };
        let puts = group.kvs.puts(key);
        let values = || format!("the value of {}, {}", show(key), group.kvs.shown(key));
        let (id, expected) = match message.field("value") {
            None if !is_line => (ids::PMI2_COMMON_GET_VALUE, "a value, since it is found".to_owned()),
            _ if puts.is_empty() && key.starts_with(RESERVED) => return,
            _ if puts.is_empty() && is_line => {
                let unended = group.unended_puts.contains(key);
                let id = if unended { IN_PIECES } else { ids::RFC13_ERROR_RC_NONZERO };
                (id, format!("an error, since nobody has put the key {}", show(key)))
            }
            _ if puts.is_empty() => {
                let elsewhere =
                    self.groups.iter().any(|(id, group)| *id != p.group && group.kvs.contains(key));
                let id = if elsewhere { ids::PMI2_COMMON_SPAWN_OWN_JOB } else { ids::PMI2_COMMON_GET_MISS };
                (id, format!("no value, since nobody of this job has put {}", show(key)))
            }
            None => (COMPLETE, values()),
            Some(value) if puts.iter().any(|put| put.value == *value) => return,
            Some(value) if is_line => {
                let alone = without_tuples(&value);
                self.adds_tuples |= puts.iter().any(|put| put.value == alone);
                let ambiguous = puts.iter().any(|put| is_ambiguous(&put.value));
                (if ambiguous { ids::RFC13_VALUE_BLANK } else { ids::RFC13_GET_VALUE }, values())
            }
            Some(_) => {
                let id = values_rule(key, puts.iter().map(|put| &put.value), ids::PMI2_COMMON_GET_VALUE);
                (id, format!("the value that was put, {}", show(&puts[0].value)))
            }
        };
        self.server_error(p, id, expected, Seen::message(message.text));
    }

    fn missed(&mut self, p: Proc, key: &[u8], left: u64, srcid: Option<i64>, message: &Decoded<'_>) {
        let excused = self.may_abort(p);
        let framing = message.framing;
        let group = self.group(p.group);
        if framing == Framing::Frames {
            group.pmi2.misses.entry(key.to_vec()).or_default().insert(p.rank, left);
        }
        if excused {
            return;
        }
        let Some(put) = group.kvs.due(key, left) else {
            if group.ranks.get(p.rank).is_some_and(|rank| group.kvs.is_known(key, &rank.knows)) {
                self.group_value_missing(p, key, message.text);
            }
            return;
        };
        let visible = rules::PUT_VISIBLE[framing as usize];
        let id = match (put.by, framing) {
            (PREPUT, _) => rules::SPAWN_PREPUT[framing as usize],
            (_, Framing::Lines) if group.full_keys.contains(key) => FULL,
            (_, Framing::Lines) => visible,
            (by, Framing::Frames) if srcid.is_some_and(|id| id >= 0 && id != i64::from(by)) => {
                ids::PMI2_COMMON_SRCID
            }
            (_, Framing::Frames) => pair_rule(key, &put.value, visible),
        };
        let which = match (put.by, framing) {
            (_, Framing::Lines) => format!(", {}", group.kvs.shown(key)),
            (PREPUT, _) => " put for the new processes".to_owned(),
            (by, _) if id == ids::PMI2_COMMON_SRCID => {
                format!(" that rank {by} put before the fence, whatever srcid says")
            }
            (by, _) => format!(" that rank {by} put before the fence"),
        };
        let expected = format!("the value of {}{which}", show(key));
        self.server_error(p, id, expected, Seen::message(message.text));
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::event::{Bytes, Event, What};

    /// A put of a spawned process becomes visible with a barrier; a preput pair is visible from the start.
    #[rstest]
    #[case::preput("a", &["rfc13.spawn.preput"])]
    #[case::put_by_another_rank("b", &[])]
    fn only_preput_pairs_are_due_before_a_barrier(#[case] key: &str, #[case] broken: &[&str]) {
        let said = |group, rank, text: &str| What::ToServer {
            proc: Proc { group, rank },
            bytes: Bytes(format!("{text}\n").into_bytes()),
        };
        let told = |group, rank, text: &str| What::FromServer {
            proc: Proc { group, rank },
            bytes: Bytes(format!("{text}\n").into_bytes()),
        };
        let joins = |group, rank| {
            [
                said(group, rank, "cmd=init pmi_version=1 pmi_subversion=1"),
                told(group, rank, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"),
                said(group, rank, "cmd=get_my_kvsname"),
                told(group, rank, &format!("cmd=my_kvsname rc=0 kvsname=k{group}")),
            ]
        };
        let spawn = "mcmd=spawn\nnprocs=2\nexecname=x\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=1\n\
                     preput_key_0=a\npreput_val_0=v\ninfo_num=0\nendcmd";
        let events = [What::Launched { command: Vec::new(), ranks: 1, nodes: 1 }]
            .into_iter()
            .chain(joins(0, 0))
            .chain([said(0, 0, spawn), told(0, 0, "cmd=spawn_result rc=0 errcodes=0,0")])
            .chain(joins(1, 0))
            .chain(joins(1, 1))
            .chain([said(1, 0, "cmd=put kvsname=k1 key=b value=v"), told(1, 0, "cmd=put_result rc=0")])
            .chain([
                said(1, 1, &format!("cmd=get kvsname=k1 key={key}")),
                told(1, 1, "cmd=get_result rc=-1"),
            ]);
        let mut monitor = Monitor::new();
        for (what, seq) in events.zip(0..) {
            monitor.observe(&Event::new(seq, what));
        }
        let found: Vec<String> = monitor.take_findings().into_iter().map(|f| f.requirement).collect();
        assert_eq!(found, broken);
    }
}
