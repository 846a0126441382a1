//! Steps for messages in frames, which only PMI-2 uses.

use pmi_scenario::ids;
use pmi_wire::pmi2::{KEY_MAX, VALUE_MAX, is_key};
use pmi_wire::protocol::Exchange;
use pmi_wire::{Decoded, Direction, Proc, ResponseOutcome, Tuple};

use super::fold::StepOrder;
use super::state::{
    FrameDetail, Happening, PendingFrame, RESERVED, ScenarioWriter, escaped, is_plain, variable,
};

/// All forms of a miss that are in use.
const MISS: &str =
    "<one of>\n  pass: cmd=kvs-get-response rc=0 value=<absent>\n  pass: cmd=kvs-get-response rc=fail";

/// Writes the value of a tuple, because a blank in it would separate tuples.
fn value(bytes: &[u8]) -> String {
    escaped(bytes).replace(' ', "<sp>")
}

/// Writes a body in the scenario language, with `named` replacing some values. Returns `None` if the language cannot express one of its
/// tuples.
fn written(body: &Decoded<'_>, named: impl Fn(&[u8], &[u8]) -> Option<String>) -> Option<String> {
    if body.command().is_none_or(<[u8]>::is_empty) || body.tuples().any(|tuple| !is_key(tuple.key)) {
        return None;
    }
    // The scenario language doubles semicolons, as the draft does.
    let word = |raw: &[u8]| value(raw).replace(";;", ";");
    let tuple = |t: Tuple<'_>| {
        format!("{}={}", escaped(t.key), named(t.key, t.value).unwrap_or_else(|| word(t.value)))
    };
    Some(body.tuples().map(tuple).collect::<Vec<_>>().join(" "))
}

/// Writes a body in the scenario language. Returns `None` if the language cannot express it.
pub(crate) fn tuples(body: &Decoded<'_>) -> Option<String> {
    written(body, |_, _| None)
}

/// Returns the permitted position of a request.
fn order(row: &Exchange) -> StepOrder {
    match row.operation {
        "init" | "kvsname" | "get-job-attribute" | "put" | "get" | "finalize" => StepOrder::Free,
        "barrier" => StepOrder::Enters,
        // Attributes of nodes, names, jobs and processes are visible to all ranks at once.
        _ => StepOrder::Fixed,
    }
}

impl ScenarioWriter {
    /// Returns whether this message follows a fence that some rank has not entered yet, and so must wait for that rank.
    pub(super) fn waits_in_fence(&mut self, p: Proc, happening: &Happening) -> bool {
        if self.is_over {
            return false;
        }
        if !self.rank(p).behind_fence.is_empty() {
            return true;
        }
        let Happening::StepText { direction: Direction::FromServer, text, .. } = happening else {
            return false;
        };
        let of_fence = |pending: &PendingFrame| matches!(pending.what, FrameDetail::Fence);
        if !self.rank(p).pending.iter().any(of_fence) || !text.starts_with(b"cmd=kvs-fence-response;") {
            return false;
        }
        let number = self.rank(p).left + 1;
        let size = match p.group {
            0 => self.ranks,
            group => self.group(group).size,
        };
        let entered = |rank| {
            let p = Proc { group: p.group, rank };
            self.members.get(&p).is_some_and(|rank| rank.entered >= number)
        };
        !(0..size).all(entered)
    }

    // ----- what the client sent ------------------------------------------------------------------------------------

    pub(super) fn frame_request(&mut self, p: Proc, body: &Decoded<'_>) {
        let text = self.sent_in_frame(p, body);
        let row = body.exchange().filter(|_| body.is_well_formed());
        let order = match row.map(order) {
            Some(StepOrder::Free) => self.order_with_names(p),
            Some(order) => order,
            None => StepOrder::Fixed,
        };
        self.step_in(p, order, 'C', "", text);
        let Some(row) = row else { return };
        let thrid = body.value("thrid").map(std::borrow::Cow::into_owned);
        if row.response.is_some() || row.operation == "abort" {
            let what = self.asked_in_frame(p, row, body);
            self.rank(p).pending.push(PendingFrame { row, thrid, what });
        }
    }

    fn asked_in_frame(&mut self, p: Proc, row: &Exchange, body: &Decoded<'_>) -> FrameDetail {
        let field = |name| body.field(name).unwrap_or_default().into_owned();
        let key = field("key");
        match row.operation {
            "put" => FrameDetail::Put { valid: self.put_in_frame(p, &key, &field("value")) },
            "get" => FrameDetail::Get { key },
            "barrier" => {
                self.rank(p).entered += 1;
                FrameDetail::Fence
            }
            "put-node-attribute" => {
                let value = field("value");
                let valid = key.len() < KEY_MAX && value.len() < VALUE_MAX && is_plain(&value);
                self.group(p.group).node.entry(key).or_default().push(value);
                FrameDetail::Put { valid }
            }
            "get-node-attribute" => FrameDetail::GetNode { key },
            "get-job-attribute" => FrameDetail::GetJob { key },
            "publish" => {
                self.names = true;
                self.ports.insert(field("service"), field("port"));
                FrameDetail::Plain
            }
            "unpublish" => {
                self.names = true;
                self.ports.remove(&field("service"));
                FrameDetail::Plain
            }
            "lookup" => {
                self.names = true;
                FrameDetail::Lookup { name: field("service") }
            }
            "spawn" => {
                let Some(request) = body.spawn() else { return FrameDetail::Plain };
                self.spawns = true;
                self.spawned += 1;
                let id = self.spawned;
                let group = self.group(id);
                group.size = u32::try_from(request.processes()).unwrap_or(u32::MAX);
                group.preput.extend(request.programs.iter().flat_map(|program| program.preput.clone()));
                FrameDetail::Plain
            }
            "init" => FrameDetail::Fullinit {
                bare: ["pmijobid", "pmirank", "threaded"].iter().any(|key| body.raw(key).is_none()),
            },
            "finalize" => {
                self.rank(p).finalized = true;
                FrameDetail::Plain
            }
            "abort" => {
                self.aborted = Some(p.group);
                self.trouble = true;
                FrameDetail::Plain
            }
            _ => FrameDetail::Plain,
        }
    }

    /// Writes a body as it is sent. Values that the server has chosen are written as their names. A body that the language cannot express
    /// is written byte by byte.
    fn sent_in_frame(&mut self, p: Proc, body: &Decoded<'_>) -> String {
        let jobid = self.group(p.group).jobid.clone();
        let rank = p.rank.to_string();
        let named = |key: &[u8], value: &[u8]| match key {
            b"subcmd" => Some("$agent".to_owned()),
            b"jobid" if jobid.as_deref() == Some(value) => Some(format!("${}", job(p.group))),
            b"pmirank" if value == rank.as_bytes() => Some("$rank".to_owned()),
            _ => None,
        };
        written(body, named).unwrap_or_else(|| format!("<body> {}", value(body.text)))
    }

    fn put_in_frame(&mut self, p: Proc, key: &[u8], value: &[u8]) -> bool {
        let entered = self.rank(p).entered;
        let group = self.group(p.group);
        let again = group.values.insert(key.to_vec(), (value.to_vec(), entered)).is_some();
        if again {
            group.twice.insert(key.to_vec());
        }
        let fits = key.len() < KEY_MAX && value.len() < VALUE_MAX;
        fits && !again
            && is_key(key)
            && is_plain(value)
            && !value.contains(&b';')
            && !key.starts_with(RESERVED)
    }

    // ----- what the server has to answer ---------------------------------------------------------------------------

    pub(super) fn frame_response(&mut self, p: Proc, response: &Decoded<'_>) {
        let Some(row) = response.exchange().filter(|_| response.is_well_formed()) else { return };
        let thrid = response.value("thrid");
        let pending = &mut self.rank(p).pending;
        let fits = |pending: &PendingFrame| pending.row == row;
        let of_thread =
            |pending: &PendingFrame| thrid.is_some() && pending.thrid.as_deref() == thrid.as_deref();
        let place =
            pending.iter().position(|p| of_thread(p) && fits(p)).or_else(|| pending.iter().position(fits));
        let Some(place) = place else { return };
        // Servers answer several requests in different orders.
        let alone = pending.len() == 1;
        let asked = pending.remove(place);
        let order = match order(row) {
            StepOrder::Enters => StepOrder::Leaves,
            other => other,
        };
        let (cites, text) = self.answer_in_frame(p, &asked, response);
        match alone {
            true => self.step_in(p, order, 'S', cites, text),
            false => self.step_in(p, order, 'S', self.any(), "cmd=<any>".to_owned()),
        }
    }

    /// Returns the citation and the expected answer.
    fn answer_in_frame(
        &mut self,
        p: Proc,
        asked: &PendingFrame,
        response: &Decoded<'_>,
    ) -> (&'static str, String) {
        let ok = response.outcome() == Some(ResponseOutcome::Success);
        let name = asked.row.response.unwrap_or_default();
        let anything = (self.any(), format!("cmd={name}"));
        let success = |cites| (cites, format!("cmd={name} rc=0"));
        match (&asked.what, asked.row.operation) {
            (FrameDetail::Fence, _) => {
                self.rank(p).left += 1;
                if ok { success(ids::PMI2_COMMON_FENCE) } else { anything }
            }
            _ if !ok && !matches!(asked.what, FrameDetail::Get { .. }) => anything,
            (FrameDetail::Put { valid: true }, "put") => success(ids::PMI2_COMMON_PUT),
            (FrameDetail::Put { valid: true }, _) => success(ids::PMI2_COMMON_NODEATTR),
            (FrameDetail::Get { key }, _) => self.got_in_frame(p, key, response).unwrap_or(anything),
            (FrameDetail::GetNode { key }, _) => match self.group(p.group).node.get(key).map(Vec::as_slice) {
                Some([put]) if is_plain(put) && response.value("value").as_deref() == Some(put) => {
                    (ids::PMI2_COMMON_NODEATTR, format!("cmd={name} rc=0 value={}", value(put)))
                }
                _ => anything,
            },
            (FrameDetail::GetJob { key }, _) if key == b"PMI_process_mapping" => {
                (ids::PMI2_COMMON_JOBATTR_MAPPING, format!("cmd={name} rc=0 value=<any>"))
            }
            (FrameDetail::Lookup { name: asked }, _) => match self.ports.get(asked) {
                Some(port) if is_plain(port) => {
                    let lines = ["port", "value"]
                        .map(|key| format!("\n  pass: cmd={name} rc=0 {key}={}", value(port)));
                    (ids::PMI2_COMMON_NAMES_LOOKUP, format!("<one of>{}", lines.concat()))
                }
                _ => anything,
            },
            (FrameDetail::Fullinit { bare }, _) => {
                let cites =
                    if *bare { ids::PMI2_DRAFT_FULLINIT_OPTIONAL_KEYS } else { ids::PMI2_COMMON_FULLINIT };
                (cites, format!("cmd={name} rc=0 rank=$rank size=$size appnum=<int>"))
            }
            (_, "kvsname") => match response.value("jobid") {
                Some(jobid) => {
                    self.group(p.group).jobid.get_or_insert_with(|| jobid.to_vec());
                    self.rank(p).has_names = true;
                    (ids::PMI2_COMMON_JOBID, format!("cmd={name} rc=0 jobid=${}:any", job(p.group)))
                }
                None => anything,
            },
            (_, "spawn") => success(ids::PMI2_COMMON_SPAWN_STARTS),
            (_, "finalize") => success(ids::PMI2_COMMON_FINALIZE),
            (_, "publish") => success(ids::PMI2_COMMON_NAMES_LOOKUP),
            _ => anything,
        }
    }

    fn got_in_frame(
        &mut self,
        p: Proc,
        key: &[u8],
        response: &Decoded<'_>,
    ) -> Option<(&'static str, String)> {
        if key.starts_with(RESERVED) {
            return None;
        }
        let (found, left) = (response.outcome()? == ResponseOutcome::Success, self.rank(p).left);
        let group = self.group(p.group);
        let (known, cites) = match (group.preput.get(key), group.values.get(key)) {
            (Some(known), None) => (known, ids::PMI2_COMMON_SPAWN_PREPUT),
            (None, Some((known, entered))) if left > *entered => (known, ids::PMI2_COMMON_FENCE_VISIBLE),
            (None, None) if !found => return Some((ids::PMI2_COMMON_GET_MISS, MISS.to_owned())),
            // The value was put twice, or need not be visible yet.
            _ => return None,
        };
        let seen = response.value("value").filter(|_| found);
        if seen.as_deref() != Some(known) || group.twice.contains(key) || known.contains(&b';') {
            return None;
        }
        let value = if is_plain(known) { value(known) } else { "<any>".into() };
        Some((cites, format!("cmd=kvs-get-response rc=0 value={value}")))
    }
}

/// Returns the scenario's name for the job id of a group.
fn job(group: u32) -> String {
    variable(group).replace("kvs", "job")
}
