//! The keyval space: puts, gets and their responses.

use std::borrow::Cow;

use pmi_scenario::ids::{self, rules};
use pmi_wire::grammar::parse_int;
use pmi_wire::pmi2::{KEY_MAX, VALUE_MAX, is_key};
use pmi_wire::{Decoded, Framing, Proc, ResponseOutcome};

use super::grammar::EMPTY;
use super::state::{
    COMPLETE_RESPONSE_REQUIREMENT, GetRequest, Monitor, RESERVED_PREFIX, RequestDetail,
    SPLIT_WRITE_REQUIREMENT, cite,
};
use crate::Severity;
use crate::finding::PartyKind;
use crate::kvs::{PREPUT, is_ambiguous, strip_tuples};
use crate::observation::{ObservationText, quote_bytes};

fn is_protocol_word(key: &[u8]) -> bool {
    const WORDS: [&[u8]; 7] = [b"cmd", b"mcmd", b"rc", b"msg", b"kvsname", b"key", b"value"];
    WORDS.contains(&key)
}

/// Returns true if the lengths of the pair are within the limits of every known server.
pub(super) fn is_within_common_limits(key: &[u8], value: &[u8]) -> bool {
    key.len() < KEY_MAX && value.len() < VALUE_MAX
}

/// Returns the requirement that a server breaks if it loses or changes this pair. In PMI-2, unusual pairs have separate requirements,
/// because the draft allows them but not all servers keep them.
fn pair_rule(message: &Decoded<'_>, key: &[u8], value: &[u8], rule: [&'static str; 2]) -> &'static str {
    if message.framing == Framing::Lines {
        rule[0]
    } else if value.is_empty() {
        EMPTY
    } else if value.contains(&b';') {
        ids::PMI2_DRAFT_SEMICOLONS
    } else if !is_within_common_limits(key, value) {
        ids::PMI2_DRAFT_LENGTHS_SERVED
    } else if value.iter().any(|b| !(b' '..=b'~').contains(b)) {
        ids::PMI2_DRAFT_ANY_BYTE
    } else {
        rule[1]
    }
}

/// Returns the requirement that a server breaks if it returns a value for `key` that is not among `values`, the values that were put.
pub(super) fn values_rule<'a>(
    message: &Decoded<'_>,
    key: &[u8],
    values: impl IntoIterator<Item = &'a Vec<u8>>,
    rule: [&'static str; 2],
) -> &'static str {
    let common = cite(message, rule);
    let mut rules = values.into_iter().map(|value| pair_rule(message, key, value, rule));
    rules.find(|rule| *rule != common).unwrap_or(common)
}

/// Returns true if every known PMI-2 server accepts this pair.
pub(super) fn is_within_limits(key: &[u8], value: &[u8]) -> bool {
    is_key(key)
        && !value.is_empty()
        && is_within_common_limits(key, value)
        && !value.contains(&b';')
        && !key.starts_with(RESERVED_PREFIX)
}

impl Monitor {
    pub(super) fn put_requested(&mut self, p: Proc, message: &Decoded<'_>) -> RequestDetail {
        let field = |name| message.field(name).map(Cow::into_owned);
        let (key, value) = (field("key").unwrap_or_default(), field("value").unwrap_or_default());
        let valid = match field("kvsname") {
            Some(kvsname) => self.record_put(p, &kvsname, &key, &value),
            None => self.put_to_job(p, &key, &value),
        };
        RequestDetail::Put { key, value, valid }
    }

    /// Records a put to an RFC 13 keyval space. Returns true if the server has no reason to refuse the put.
    fn record_put(&mut self, p: Proc, kvsname: &[u8], key: &[u8], value: &[u8]) -> bool {
        let (known, maxes) = (self.group(p.group).names[0].clone(), self.rank(p).limits);
        let Some(known) = known else {
            self.irregular = true;
            self.group(p.group).unjudged_keys.insert(key.to_vec());
            return false;
        };
        if known != kvsname {
            let expected = "the kvsname that get_my_kvsname returned";
            self.client_misuse(p, ids::RFC13_KVS_NAME_USED, expected, quote_bytes(kvsname));
            // A server may ignore the wrong kvsname and put the pair into the keyval space of the group, so the key is not judged.
            self.group(p.group).unjudged_keys.insert(key.to_vec());
            return false;
        }
        let entered = self.rank(p).barriers_entered;
        let group = self.group(p.group);
        let unjudged_keys = group.unjudged_keys.contains(key);
        let repeated = group.kvs.contains(key);
        group.kvs.record_put(key, value, p.rank, entered);
        let first = *group.writers.entry(key.to_vec()).or_insert(p.rank);
        self.check_prefix(p, key);
        if repeated {
            let (id, expected) = match first == p.rank {
                true => (ids::RFC13_PUT_ONCE, "each key is put at most once in a keyval space"),
                false => (ids::RFC13_PUT_UNIQUE, "no two processes put the same key"),
            };
            self.client_misuse(p, id, expected, quote_bytes(key));
        }
        // RFC 13, PMI_KVS_Get_key_length_max: the lengths count the terminating NUL.
        let fits =
            maxes.is_some_and(|m| (key.len() as u64) < m.keylen_max && (value.len() as u64) < m.vallen_max);
        if maxes.is_some() && !fits {
            let expected = "key and value within the limits of get_maxes";
            let seen = format!("a key of {} bytes and a value of {} bytes", key.len(), value.len());
            self.client_misuse(p, ids::RFC13_PUT_LENGTH, expected, seen);
            // RFC 13 does not specify whether the pair is truncated, kept or dropped.
            self.group(p.group).unjudged_keys.insert(key.to_vec());
        }
        let ordinary = !repeated
            && !unjudged_keys
            && !key.starts_with(RESERVED_PREFIX)
            && !value.is_empty()
            && !is_ambiguous(value);
        // A process that has not received the limits cannot know whether a long pair exceeds them.
        self.irregular |= !ordinary || !fits && (maxes.is_some() || !is_within_common_limits(key, value));
        fits && ordinary
    }

    /// Records a put to the keyval space of the job (PMI-2). Returns true if the server has no reason to refuse the put.
    fn put_to_job(&mut self, p: Proc, key: &[u8], value: &[u8]) -> bool {
        self.check_lengths(p, key, value);
        self.check_prefix(p, key);
        let entered = self.rank(p).barriers_entered;
        let group = self.group(p.group);
        // `early` is a rank that received no value for the key, although it had already left a fence that the putting
        // rank has not entered yet.
        let early = group.missed_gets.get(key).and_then(|misses| {
            misses
                .iter()
                .find(|(rank, barriers_left)| **rank != p.rank && **barriers_left > entered)
                .map(|(rank, _)| *rank)
        });
        let valid = !group.kvs.contains(key) && is_within_limits(key, value);
        group.kvs.record_put(key, value, p.rank, entered);
        self.irregular |= !valid;
        if let Some(rank) = early
            && valid
            && !self.state_unknown(p)
        {
            let expected = format!(
                "the value of {}, which was put before the fence that rank {rank} had left",
                quote_bytes(key)
            );
            self.server_error(
                p,
                ids::PMI2_COMMON_FENCE_VISIBLE,
                expected,
                "the server answered that there is no value",
            );
        }
        valid
    }

    /// Reports a put of a key that process managers reserve for themselves.
    fn check_prefix(&mut self, p: Proc, key: &[u8]) {
        if key.starts_with(RESERVED_PREFIX) {
            let expected = "a key that does not begin with PMI_";
            self.client_misuse(p, ids::DE_FACTO_PUT_RESERVED_PREFIX, expected, quote_bytes(key));
        }
    }

    /// Checks the lengths of a pair against the limits of the draft.
    pub(super) fn check_lengths(&mut self, p: Proc, key: &[u8], value: &[u8]) {
        if key.len() > KEY_MAX || value.len() > VALUE_MAX {
            self.irregular_sent(p);
            let seen = format!("a key of {} bytes and a value of {} bytes", key.len(), value.len());
            let expected =
                format!("a key of at most {KEY_MAX} bytes and a value of at most {VALUE_MAX} bytes");
            self.client_misuse(p, ids::PMI2_DRAFT_LENGTHS, expected, seen);
        }
    }

    pub(super) fn get_requested(&mut self, p: Proc, message: &Decoded<'_>) -> RequestDetail {
        let field = |name| message.field(name).map(Cow::into_owned);
        let (key, of, jobid) = (field("key").unwrap_or_default(), field("kvsname"), field("jobid"));
        if let Some(kvsname) = &of {
            self.check_get(p, kvsname, &key);
        }
        // A library that has not received a jobid sends an empty jobid.
        let is_empty = jobid.as_ref().is_some_and(Vec::is_empty);
        // No known server returns the values of another job, so the response is not judged.
        if jobid.is_some() && !is_empty && jobid != self.group(p.group).names[1] {
            return RequestDetail::Plain;
        }
        let rule = if is_empty { ids::PMI2_COMMON_GET_NO_JOBID } else { ids::PMI2_DRAFT_GET_JOBID };
        let srcid = message.field("srcid").and_then(|srcid| parse_int(&srcid));
        RequestDetail::Get(GetRequest {
            key,
            of,
            barriers_left: self.rank(p).barriers_left,
            rule: jobid.map(|_| rule),
            srcid,
        })
    }

    /// Checks that a get in RFC 13's form uses the name of the keyval space that the process received, and that the key is within the
    /// received limits.
    fn check_get(&mut self, p: Proc, kvsname: &[u8], key: &[u8]) {
        let limits = self.rank(p).limits;
        let known = self.group(p.group).names[0].as_deref();
        let (is_known, is_other) = (known.is_some(), known.is_some_and(|known| known != kvsname));
        self.irregular |= !is_known || limits.is_none() && !is_within_common_limits(key, &[]);
        if is_other {
            let expected = "the kvsname that get_my_kvsname returned";
            self.client_misuse(p, ids::RFC13_KVS_NAME_USED, expected, quote_bytes(kvsname));
        }
        if let Some(max) = limits.map(|m| m.keylen_max).filter(|max| key.len() as u64 >= *max) {
            let expected = format!("a key shorter than keylen_max={max} bytes");
            let seen = format!("a key of {} bytes", key.len());
            self.client_misuse(p, ids::RFC13_GET_KEY_LENGTH, expected, seen);
        }
    }

    /// Judges the response to a put. `valid` is true if the server has no reason to refuse the put.
    pub(super) fn put_answered(
        &mut self,
        p: Proc,
        key: &[u8],
        value: &[u8],
        valid: bool,
        message: &Decoded<'_>,
    ) {
        let full = self.has_max_length(p, key, value);
        let is_irregular = self.is_irregular(p);
        let group = self.group(p.group);
        if message.is_success() {
            group.puts_protocol_words |= is_protocol_word(key);
            if full {
                group.has_max_length_put = true;
                group.max_length_keys.insert(key.to_vec());
            }
            // The server may have interpreted an irregular put differently, so the pair may not exist. A pair with a reserved key is still
            // recorded, because its loss is reported only as a note.
            if !is_irregular || key.starts_with(RESERVED_PREFIX) {
                group.kvs.acknowledged(key, value, p.rank);
            }
            return;
        }
        let is_line = message.framing == Framing::Lines;
        // A PMI-2 server that refuses a pair may still keep part of it, but it must not replace another value of the key. A reserved key
        // already has a value from the server.
        if is_line || group.kvs.puts(key).len() > 1 || key.starts_with(RESERVED_PREFIX) {
            group.kvs.record_refusal(key, value, p.rank);
        }
        if valid && !self.may_abort(p) {
            let id = cite(message, if full { rules::LIMITS_HONOURED } else { rules::PUT_ACCEPTED });
            let id = if is_line { self.split_write_rule_or(p, id) } else { id };
            let seen = ObservationText::message(message.text);
            self.server_error(p, id, "a put within all limits succeeds", seen);
        }
    }

    /// Returns true if a key or a value has the maximum length that get_maxes allows.
    pub(super) fn has_max_length(&mut self, p: Proc, key: &[u8], value: &[u8]) -> bool {
        let full = |length: usize, most: u64| length as u64 + 1 == most;
        self.rank(p).limits.is_some_and(|m| full(key.len(), m.keylen_max) || full(value.len(), m.vallen_max))
    }

    /// Judges the response to a get of a key in the keyval space of the process.
    pub(super) fn get_answered(&mut self, p: Proc, get: &GetRequest, message: &Decoded<'_>) {
        if self.group(p.group).unjudged_keys.contains(&get.key) || self.state_unknown(p) {
            return;
        }
        match message.outcome() {
            Some(ResponseOutcome::Success) => self.found(p, &get.key, message),
            Some(ResponseOutcome::Miss | ResponseOutcome::Failure) => self.missed(p, get, message),
            None => {
                let expected = "found=TRUE or found=FALSE";
                self.server_error(
                    p,
                    ids::PMI2_COMMON_GET_FOUND,
                    expected,
                    ObservationText::message(message.text),
                );
            }
        }
    }

    fn found(&mut self, p: Proc, key: &[u8], message: &Decoded<'_>) {
        let is_line = message.framing == Framing::Lines;
        let Some(group) = self.groups.get(&p.group) else { return };
        let puts = group.kvs.puts(key);
        let values = || format!("the value of {}, {}", quote_bytes(key), group.kvs.shown(key));
        let (id, expected) = match message.field("value") {
            None if !is_line => (ids::PMI2_COMMON_GET_VALUE, "a value, since found=TRUE".to_owned()),
            _ if puts.is_empty() && key.starts_with(RESERVED_PREFIX) => return,
            _ if puts.is_empty() && is_line => {
                let unended = group.incomplete_puts.contains(key);
                let id = if unended { SPLIT_WRITE_REQUIREMENT } else { ids::RFC13_ERROR_RC_NONZERO };
                let expected = format!("an error, since no process has put the key {}", quote_bytes(key));
                let longer = group.kvs.longer_key(key);
                let longer =
                    longer.map(|length| format!(", only a key of {length} bytes that begins with it"));
                (id, expected + &longer.unwrap_or_default())
            }
            _ if puts.is_empty() => {
                let elsewhere =
                    self.groups.iter().any(|(id, group)| *id != p.group && group.kvs.contains(key));
                let id = if elsewhere { ids::PMI2_COMMON_SPAWN_OWN_JOB } else { ids::PMI2_COMMON_GET_MISS };
                (id, format!("no value, since no process of this job has put {}", quote_bytes(key)))
            }
            None => (COMPLETE_RESPONSE_REQUIREMENT, values()),
            Some(value) if puts.iter().any(|put| put.value == *value) => return,
            Some(value) if is_line => {
                let alone = strip_tuples(&value);
                self.appends_tuples |= puts.iter().any(|put| put.value == alone);
                let ambiguous = puts.iter().any(|put| is_ambiguous(&put.value));
                (if ambiguous { ids::RFC13_VALUE_BLANK } else { ids::RFC13_GET_VALUE }, values())
            }
            Some(_) => {
                let id = values_rule(message, key, puts.iter().map(|put| &put.value), rules::GET_VALUE);
                (id, format!("the value that was put, {}", quote_bytes(&puts[0].value)))
            }
        };
        self.server_error(p, id, expected, ObservationText::message(message.text));
    }

    fn missed(&mut self, p: Proc, get: &GetRequest, message: &Decoded<'_>) {
        let &GetRequest { ref key, barriers_left, rule, srcid, .. } = get;
        let excused = self.may_abort(p);
        let is_line = message.framing == Framing::Lines;
        let is_reserved = key.starts_with(RESERVED_PREFIX);
        let group = self.group(p.group);
        if !is_line {
            group.missed_gets.entry(key.to_vec()).or_default().insert(p.rank, barriers_left);
        }
        if excused {
            return;
        }
        let Some(put) = group.kvs.find_due(key, barriers_left) else {
            if !is_reserved
                && group.ranks.get(p.rank).is_some_and(|rank| group.kvs.is_known(key, &rank.required_puts))
            {
                self.group_value_missing(p, key, message.text);
            }
            return;
        };
        let misled = srcid.is_some_and(|id| id >= 0 && id != i64::from(put.rank));
        let id = match put.rank {
            PREPUT => cite(message, rules::SPAWN_PREPUT),
            _ if group.max_length_keys.contains(key) => cite(message, rules::LIMITS_HONOURED),
            _ if misled => ids::PMI2_COMMON_SRCID,
            // A request with a jobid has its own requirement, which is weaker for an empty jobid.
            _ if let Some(rule) = rule => rule,
            _ => pair_rule(message, key, &put.value, rules::PUT_VISIBLE),
        };
        let which = match put.rank {
            _ if is_line => format!(", {}", group.kvs.shown(key)),
            PREPUT => " put for the new processes".to_owned(),
            by if misled => format!(" that rank {by} put before the fence, regardless of srcid"),
            by => format!(" that rank {by} put before the fence"),
        };
        let expected = format!("the value of {}{which}", quote_bytes(key));
        let seen = ObservationText::message(message.text);
        if is_reserved && put.rank != PREPUT {
            let id = ids::DE_FACTO_PUT_RESERVED_PREFIX;
            return self.find(PartyKind::Server, p, id, Some(Severity::Note), expected, seen);
        }
        self.server_error(p, id, expected, seen);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::testing::{cited, events, launched, numbered, spawn};

    /// A put by a spawned process becomes visible through a barrier. A preput pair is visible from the start.
    #[rstest]
    #[case::preput("a", &["rfc13.spawn.preput"])]
    #[case::put_by_another_rank("b", &[])]
    fn only_preput_pairs_must_be_visible_before_a_barrier(#[case] key: &str, #[case] broken: &[&str]) {
        let joins = |group: u32, rank: u32| {
            [
                format!("{group}:{rank} > cmd=init pmi_version=1 pmi_subversion=1"),
                format!("{group}:{rank} < cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"),
                format!("{group}:{rank} > cmd=get_my_kvsname"),
                format!("{group}:{rank} < cmd=my_kvsname rc=0 kvsname=k{group}"),
            ]
        };
        let pair = "argcnt=0\npreput_num=1\npreput_key_0=a\npreput_val_0=v\ninfo_num=0\nendcmd";
        let spawns = [format!("0 > {}", spawn(2, pair)), "0 < cmd=spawn_result rc=0 errcodes=0,0".to_owned()];
        let rest = [
            "1:0 > cmd=put kvsname=k1 key=b value=v".to_owned(),
            "1:0 < cmd=put_result rc=0".to_owned(),
            format!("1:1 > cmd=get kvsname=k1 key={key}"),
            "1:1 < cmd=get_result rc=-1".to_owned(),
        ];
        let lines = [&joins(0, 0)[..], &spawns, &joins(1, 0), &joins(1, 1), &rest].concat();
        let mut monitor = Monitor::new();
        let kinds = [launched(1, 1)].into_iter().chain(events(&lines));
        numbered(kinds).iter().for_each(|event| monitor.observe(event));
        assert_eq!(cited(monitor.take_findings()), broken);
    }
}
