//! Spawn requests and their responses.

use pmi_scenario::ids;
use pmi_wire::grammar::parse_intlist;
use pmi_wire::pmi2::is_key;
use pmi_wire::{
    Decoded, Operation, Proc, SpawnCollector, SpawnErrorKind, SpawnLimits, SpawnProgram, SpawnRequest,
};

use super::grammar::spawn_rule;
use super::kvs::{is_within_common_limits, is_within_limits};
use super::state::{MAX_PROCESSES, Monitor, MonitoredRequest, RESERVED_PREFIX, RequestDetail};
use crate::Severity;
use crate::bytes::{Bytes, join_with_blanks};
use crate::finding::PartyKind;
use crate::kvs::is_ambiguous;
use crate::observation::ObservationText;

/// Returns true if a spawn request asks for at least one process and contains no field that RFC 13 lets servers read in several ways.
fn is_unambiguous(request: &SpawnRequest) -> bool {
    let plain = |value: &[u8]| !value.is_empty() && !is_ambiguous(value);
    request.programs.iter().all(|program| {
        (1..=MAX_PROCESSES).contains(&program.nprocs)
            && program.args.iter().all(|(_, arg)| plain(arg))
            && program.info.iter().all(|(key, value)| plain(key) && plain(value))
            && program.preput.iter().all(|(key, value)| {
                plain(value) && is_within_common_limits(key, value) && !key.starts_with(RESERVED_PREFIX)
            })
    })
}

/// Returns the arguments of each program of a spawn request.
fn arguments_of(request: &SpawnRequest) -> Vec<Vec<Bytes>> {
    let of_program =
        |program: &SpawnProgram| program.args.iter().map(|(_, arg)| Bytes(arg.clone())).collect();
    request.programs.iter().map(of_program).collect()
}

/// Returns true if the arguments of a spawn request are numbered from one, which breaks the protocol.
pub(super) fn has_one_based_arguments(request: &SpawnRequest) -> bool {
    request.programs.iter().any(|program| program.args_base().is_some_and(|base| base != 0))
}

/// Returns the number at the end of a line, or zero if there is none.
pub(super) fn number_at_end(line: &[u8]) -> u64 {
    let digits = line.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let digits = line[line.len() - digits..].iter();
    digits.fold(0, |n: u64, digit| n.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

impl Monitor {
    /// Reads a line of a PMI-1 spawn request.
    pub(super) fn spawn_line(&mut self, p: Proc, message: &Decoded<'_>) {
        let line = message.text;
        let first = self.rank(p).spawn.is_none();
        if first {
            self.spawns_unknown |= !self.rank(p).pending.is_empty();
            let rank = self.rank(p);
            rank.follows_max_length_put = std::mem::take(&mut rank.has_max_length_put);
            self.after_error(p, line);
            self.check_order(p, Some(Operation::Spawn), None, message);
        }
        let lines = &mut self.rank(p).spawn_lines;
        lines.extend_from_slice(line);
        lines.push(b'\n');
        match self
            .rank(p)
            .spawn
            .get_or_insert_with(|| SpawnCollector::new(SpawnLimits::default()))
            .push_line(line)
        {
            // A spawn request has no key "endcmd", but a server that compares only the beginning of the line treats this line as the end of
            // the request.
            Ok(None) if line.trim_ascii().strip_prefix(b"endcmd").is_some_and(|rest| !rest.is_empty()) => {
                self.record_unknown(p);
                self.spawns_unknown = true;
            }
            Ok(None) => {}
            Ok(Some(request)) => {
                self.rank(p).spawn = None;
                self.spawn_sent(p, request);
            }
            Err(error) => {
                self.rank(p).spawn = None;
                self.rank(p).spawn_lines.clear();
                self.record_unknown(p);
                self.spawns_unknown = true;
                self.server_may_abort(p);
                // RFC 13's grammar does not restrict the values of `totspawns` and `spawnssofar`, so a wrong value is reported as a
                // note.
                let at_most =
                    matches!(error.kind, SpawnErrorKind::Numbering { .. }).then_some(Severity::Note);
                let expected = format!("an RFC 13 spawn request, but {error}");
                let seen = ObservationText::message(line);
                self.find(PartyKind::Client, p, spawn_rule(&error.kind), at_most, expected, seen);
            }
        }
    }

    /// Returns the arguments that a process should have received, if the process received the same text split differently into arguments.
    /// Otherwise, returns `None`.
    pub(crate) fn arguments_in_pieces(&self, p: Proc, args: &[Bytes]) -> Option<&[Bytes]> {
        let text = join_with_blanks(args);
        let requested = &self.groups.get(&p.group)?.arguments;
        let alike = requested.iter().find(|requested| join_with_blanks(requested) == text)?;
        requested.iter().all(|requested| requested != args).then_some(alike)
    }

    /// Records a complete PMI-1 spawn request.
    fn spawn_sent(&mut self, p: Proc, request: SpawnRequest) {
        let mut canonical = Vec::new();
        request.programs.iter().for_each(|program| program.write_to(&mut canonical));
        let as_written = std::mem::take(&mut self.rank(p).spawn_lines);
        self.irregular |= canonical != as_written || !is_unambiguous(&request);
        self.requested_group(p, request.processes(), request.programs.iter().flat_map(|p| &p.preput));
        self.group(self.spawned).arguments = arguments_of(&request);
        if has_one_based_arguments(&request) {
            let expected = "the numbered indices of a spawn request begin with zero";
            self.client_misuse(p, ids::RFC13_SPAWN_ARG_INDICES, expected, "args numbered from 1");
        }
        let rank = self.rank(p);
        rank.spawns = true;
        let (row, op) = (Some(Operation::Spawn.exchange()), Some(Operation::Spawn));
        rank.pending.push_back(MonitoredRequest {
            row,
            op,
            thrid: None,
            needs: None,
            detail: RequestDetail::Spawn(request),
        });
    }

    /// Records a PMI-2 spawn request.
    pub(super) fn spawn_requested(&mut self, p: Proc, message: &Decoded<'_>) -> RequestDetail {
        if let Some(request) = message.spawn() {
            let size = request.processes();
            let preput = request.programs.first().map_or(&[][..], |first| &first.preput);
            self.processes_requested = self.processes_requested.saturating_add(size);
            if preput.iter().any(|(key, _)| !is_key(key)) {
                self.irregular_sent(p);
            }
            self.irregular |= !(1..=MAX_PROCESSES).contains(&size)
                || preput.iter().any(|(key, value)| !is_within_limits(key, value));
            self.requested_group(p, size, preput);
            self.group(self.spawned).arguments = arguments_of(request);
        }
        RequestDetail::Plain
    }

    /// Judges the response to a PMI-1 spawn request.
    pub(super) fn spawn_answered(&mut self, p: Proc, request: &SpawnRequest, message: &Decoded<'_>) {
        let ok = message.is_success();
        let has_arguments = request.programs.iter().any(|program| !program.args.is_empty());
        self.accepts_argument_bases[usize::from(has_one_based_arguments(request))] |= ok && has_arguments;
        let Some(codes) = message.raw("errcodes").and_then(parse_intlist) else { return };
        let requested = request.processes();
        // The server may have read an earlier request differently, so the response may belong to another request.
        if codes.len() as u64 != requested && ok && !self.spawns_unknown {
            let expected = format!("an error code for each requested process ({requested})");
            let (id, note) = (ids::RFC13_ABNF_S_SPAWN, Some(Severity::Note));
            self.find(PartyKind::Server, p, id, note, expected, ObservationText::message(message.text));
        }
    }
}
