//! The calls that are generated for a library: functions of its C API with an argument for each parameter. The protocol table provides the
//! operation that a function requests, and the fields of the response.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use pmi_runner::interpret::library::KVS_PREFIX;
use pmi_scenario::ast::{Arg, Dialect, Expr};
use pmi_scenario::signature::{self, Function, Param};
use pmi_wire::Framing;
use pmi_wire::grammar::Rule;
use pmi_wire::protocol::{Field, without_extensions};

use super::call::{CallRequest, LIMITS, PlannedCall, negative, out_argument, quoted};
use crate::generate::server::swarm::CallSwarm;
use crate::mutate::client_steps::{MAPPING, pattern};
use crate::mutate::texts::{self, Text, TextUse};
use crate::session::decisions::pick;
use crate::session::fields::{FieldValue, field, text};
use crate::session::op::Op;
use crate::session::pieces::{Limit, letters, literal, own_rank, push, template};

/// A generator of cases for a library.
#[derive(Debug, Clone, Copy)]
pub struct LibraryGenerator {
    /// The dialect of the library's API.
    pub dialect: Dialect,
    /// True if the library has `PMIX_Ring` in addition to the PMI-2 API.
    pub has_ring: bool,
    /// Maximum number of ranks.
    pub ranks: u32,
    /// True if responses and arguments are mutated.
    pub mutate: bool,
    /// True if the library sends its requests to the harness. Otherwise, the harness cannot answer them. Each case then has a single rank,
    /// because several ranks could not find each other.
    pub uses_wire: bool,
}

/// Functions that the protocol table does not list, with the operation that each may request.
const EXTRA_REQUESTS: [(&str, &str); 9] = [
    ("PMI_KVS_Commit", "put"),
    ("PMI_Get_clique_size", "get"),
    ("PMI_Get_clique_ranks", "get"),
    ("PMI_Get_id", "kvsname"),
    ("PMI_Get_kvs_domain_id", "kvsname"),
    ("PMI_Get_id_length_max", "maxes"),
    ("PMI2_Info_GetSize", "get-job-attribute"),
    ("PMI2_Info_GetNodeAttrIntArray", "get-node-attribute"),
    ("PMI2_Info_GetJobAttrIntArray", "get-job-attribute"),
];

/// A call under construction.
struct CallDraft<'a> {
    libraries: LibraryGenerator,
    function: &'static Function,
    op: Option<Op>,
    swarm: &'a CallSwarm,
    /// The number of the call in the program.
    number: usize,
    ranks: u32,
    /// The key that the call requests.
    key: String,
    /// The text that the library receives in the response.
    received: Text,
}

fn operation_of(dialect: Dialect, function: &Function) -> Option<Op> {
    let too = EXTRA_REQUESTS.iter().find(|(name, _)| *name == function.name);
    let mut all = Op::all(dialect);
    all.find(|op| {
        op.exchange().functions.contains(&function.name) || too.is_some_and(|(_, other)| op.is(&[*other]))
    })
}

/// Returns the functions of an API except those that begin or end a program. Each function is repeated according to its weight.
fn weighted(dialect: Dialect, ring: bool) -> Vec<&'static Function> {
    let strings = |function: &Function| function.params.iter().filter(|p| **p == Param::Str).count();
    let times = |function: &Function| match operation_of(dialect, function) {
        Some(op) if op.is(&["init", "finalize", "abort"]) => 0,
        Some(op) if op.is(&["ring"]) && !ring => 0,
        Some(op) if op.is(&["get", "put"]) && strings(function) > 1 => 10,
        Some(op) if op.is(&["barrier", "spawn", "publish", "unpublish"]) => 5,
        Some(op) if !op.is(&["maxes"]) => 3,
        _ => 1,
    };
    let all = signature::functions(dialect).iter();
    all.flat_map(|function| std::iter::repeat_n(function, times(function))).collect()
}

impl LibraryGenerator {
    fn function(&self, operation: &str) -> &'static Function {
        let name = Op::of(self.dialect, operation).and_then(|op| op.exchange().functions.first());
        name.and_then(|name| signature::function(name))
            .unwrap_or_else(|| panic!("no function for {operation}"))
    }

    /// Returns the functions to call between the first and the last call, with repetitions according to their weights.
    pub(crate) fn functions(&self) -> &'static [&'static Function] {
        type FunctionTables = Vec<(Dialect, bool, Vec<&'static Function>)>;
        static ALL: LazyLock<FunctionTables> = LazyLock::new(|| {
            let kinds = Dialect::ALL.map(|dialect| [(dialect, false), (dialect, true)]);
            kinds
                .into_iter()
                .flatten()
                .map(|(dialect, ring)| (dialect, ring, weighted(dialect, ring)))
                .collect()
        });
        let own = ALL.iter().find(|(dialect, ring, _)| (*dialect, *ring) == (self.dialect, self.has_ring));
        own.map_or(&[], |(_, _, all)| all)
    }

    pub(crate) fn kinds(&self) -> u32 {
        self.functions().len() as u32
    }

    /// Returns the call that begins a program, with one of the requests that it causes, chosen at random.
    pub(crate) fn begin(&self, u: &mut Unstructured<'_>, ranks: u32) -> Result<PlannedCall> {
        let own = ["init", "maxes", "kvsname"].map(|operation| Op::of(self.dialect, operation));
        let mut candidates: Vec<Op> = [Op::offer()].into_iter().chain(own.into_iter().flatten()).collect();
        candidates.dedup();
        // Leave out the job id in PMI-2, where a different function requests it.
        candidates.truncate(if self.dialect.framing() == Framing::Frames { 2 } else { 3 });
        let op = pick(u, &candidates)?;
        self.call(self.function("init"), Some(op), u, &CallSwarm::default(), 0, ranks)
    }

    pub(crate) fn end(&self) -> PlannedCall {
        self.plain("finalize")
    }

    /// Returns a call to the function for an operation, without random choices.
    pub(crate) fn plain(&self, operation: &str) -> PlannedCall {
        let (function, mut none) = (self.function(operation), Unstructured::new(&[]));
        let call =
            self.call(function, operation_of(self.dialect, function), &mut none, &CallSwarm::default(), 0, 1);
        call.unwrap_or_else(|e| panic!("decisions never run out: {e}"))
    }

    /// Returns the call with index `number` in its program. `kind` selects the function.
    pub(crate) fn of_kind(
        &self,
        kind: u32,
        u: &mut Unstructured<'_>,
        swarm: &CallSwarm,
        number: usize,
        ranks: u32,
    ) -> Result<PlannedCall> {
        let function = self.functions()[kind as usize];
        self.call(function, operation_of(self.dialect, function), u, swarm, number, ranks)
    }

    fn call(
        &self,
        function: &'static Function,
        op: Option<Op>,
        u: &mut Unstructured<'_>,
        swarm: &CallSwarm,
        number: usize,
        ranks: u32,
    ) -> Result<PlannedCall> {
        let has = |kind: fn(&Param) -> bool| function.params.iter().any(kind);
        let asks_for_attribute = op.is_some_and(|op| op.is(&["get-job-attribute"]));
        let (used, usual) = match op {
            Some(op) if op.is(&["lookup"]) => (TextUse::Port, "tag#0$port#4242$"),
            _ => (TextUse::Value, "0123456789"),
        };
        let received = match op {
            _ if has(|param| matches!(param, Param::OutInts(Some(_)))) => Text::Bytes(b"1,2,3,4,5".into()),
            Some(op) if op.is(&["get", "get-node-attribute", "lookup"]) => {
                swarm.text(self.dialect, used, usual, u)?
            }
            Some(op) if op.is(&["kvsname"]) => Text::Bytes(kvs().into_bytes()),
            _ => Text::Bytes(usual.into()),
        };
        let key = match asks_for_attribute && has(|param| matches!(param, Param::OutText(_))) {
            true => pick(u, &["missing", MAPPING, "universeSize"])?.to_owned(),
            false => format!("key-{number}"),
        };
        let draft = CallDraft { libraries: *self, function, op, swarm, number, ranks, key, received };
        let args = draft.arguments(u)?;
        let request = op.map(|op| draft.request(op, u)).transpose()?;
        Ok(PlannedCall { cites: function.error_requirement, function: function.name, args, request })
    }
}

/// Returns the name of the keyval space, which is also the id of the job.
fn kvs() -> String {
    format!("{KVS_PREFIX}-0")
}

fn number(number: i64) -> Arg {
    Arg::Number(Expr::Number(number))
}

impl CallDraft<'_> {
    fn is(&self, operation: &str) -> bool {
        self.op.is_some_and(|op| op.is(&[operation]))
    }

    fn has(&self, param: Param) -> bool {
        self.function.params.contains(&param)
    }

    /// Returns whether the library needs the process mapping for the call.
    fn asks_for_mapping(&self) -> bool {
        let of_none = !self.has(Param::Str) && (self.is("get") || self.is("get-job-attribute"));
        of_none || self.key == MAPPING
    }

    /// Returns the size of each buffer, by the index of the parameter that states the size.
    fn buffer_sizes(&self, u: &mut Unstructured<'_>) -> Result<BTreeMap<usize, i64>> {
        let mut rooms = BTreeMap::new();
        for param in self.function.params {
            match param {
                Param::OutText(Some(size)) if self.is("ring") => {
                    rooms.insert(*size, pick(u, &[16, 64, 1024])?)
                }
                Param::OutText(Some(size)) => {
                    rooms.insert(*size, self.swarm.buffer_size(self.received.len(), u)?)
                }
                Param::OutInts(Some(size)) => rooms.insert(*size, pick(u, &[0, 1, 2, 4, 5, 6, 8])?),
                _ => None,
            };
        }
        Ok(rooms)
    }

    fn arguments(&self, u: &mut Unstructured<'_>) -> Result<Vec<Arg>> {
        let rooms = self.buffer_sizes(u)?;
        let params = self.function.params;
        // The fields of a spawn request are not used, because the array arguments have their own formats.
        let fields = self.op.filter(|op| !op.is_spawn()).map_or(&[][..], |op| op.exchange().arguments);
        let is_text = |field: &&Field| matches!(field.rule, Rule::Word | Rule::String | Rule::Visible);
        let mut texts = fields.iter().filter(is_text).map(|field| field.name);
        let mut numbers = fields.iter().filter(|field| !is_text(field)).map(|field| field.name);
        let free = self.swarm.buffer_size(16, u)?.max(0);
        let mut args = Vec::new();
        for (at, param) in params.iter().enumerate() {
            let out = |room: Option<i64>| out_argument(&format!("out{at}"), room.map(|room| room.max(0)));
            args.push(match param {
                Param::Str => self.text(texts.next(), u)?,
                Param::Int => match rooms.get(&at) {
                    Some(room) => number(*room),
                    None => self.number(numbers.next(), u)?,
                },
                Param::OutText(Some(size)) | Param::OutInts(Some(size)) => out(rooms.get(size).copied()),
                Param::OutText(None) if self.has(Param::InOutInt) => out(Some(free)),
                Param::OutText(None) => out(Some(1024)),
                Param::OutInts(None) => out(Some(2)),
                Param::InOutInt if self.has(Param::ListPointer) => out(Some(1)),
                Param::InOutInt => out(Some(free)),
                Param::OutPointer if self.is("connect") => Arg::Null,
                Param::OutInt | Param::OutPointer => out(None),
                Param::Strings => quoted("worker"),
                Param::Lists => quoted("-x,-y"),
                // This parameter states the number of info pairs in the next parameter.
                Param::Ints if matches!(params.get(at + 1), Some(Param::Vectors | Param::InfoVectors)) => {
                    quoted("1")
                }
                Param::Ints => quoted("2"),
                Param::Vectors | Param::InfoVectors => quoted("wdir=/"),
                Param::Vector if at == 0 => Arg::Null,
                Param::Vector | Param::InfoPointers => quoted("parent=port-1"),
                Param::Info if u.int_in_range(0..=2)? == 0 => quoted("range=local"),
                Param::Info => Arg::Null,
                Param::List => quoted(pick(u, &["", "-x", "-n,4", "--a=b"])?),
                Param::ListPointer => quoted("-x"),
            });
        }
        Ok(args)
    }

    /// Returns the argument for a field of the request.
    fn text(&self, name: Option<&str>, u: &mut Unstructured<'_>) -> Result<Arg> {
        let Self { libraries: LibraryGenerator { dialect, .. }, swarm, number, .. } = *self;
        Ok(match name {
            Some("jobid") if self.is("get") && !u.arbitrary()? => Arg::Null,
            Some("jobid") => quoted("job-9"),
            Some("key") if self.is("put") => {
                let mut key = template(vec![literal(format!("put-{number}-")), own_rank()]);
                if swarm.lengths && u.arbitrary()? {
                    let so_far = format!("put-{number}-").len() as i64 + 1;
                    push(&mut key, letters((texts::length(dialect, TextUse::Key, u)? - so_far).max(0)));
                }
                Arg::Text(key)
            }
            // Use a key that the next call may request, or one of two keys that are put repeatedly.
            Some("key") if self.is("put-node-attribute") => quoted(&match u.arbitrary()? {
                true => format!("key-{}", number + u.int_in_range(0..=1)?),
                false => format!("put-{}", u.int_in_range(0..=1)?),
            }),
            Some("key") => quoted(&self.key),
            Some("value") if self.is("put-node-attribute") => quoted("1,2,3"),
            Some("value") => match u.int_in_range(0..=9)? {
                8 => quoted(""),
                9 => quoted(pick(u, &["a;b;;c", "a;", ";"])?),
                _ => Arg::Text(
                    swarm.text(dialect, TextUse::Value, &format!("value-{number}"), u)?.as_argument(),
                ),
            },
            // Only two names are used, so that some names are published repeatedly.
            Some("service") => quoted(&format!("service-{}", u.int_in_range(0..=1)?)),
            Some("port") => Arg::Text(swarm.text(dialect, TextUse::Port, "port", u)?.as_argument()),
            Some("left") => Arg::Text(template(vec![literal("of-"), own_rank()])),
            Some(_) => quoted(&kvs()),
            None => quoted(pick(u, &[&*kvs(), "missing"])?),
        })
    }

    fn number(&self, name: Option<&str>, u: &mut Unstructured<'_>) -> Result<Arg> {
        Ok(match name {
            // A rank, or -1 for no rank.
            Some("srcid") => match u.int_in_range(0..=2)? {
                0 => number(0),
                1 => number(i64::from(self.ranks) - 1),
                _ => negative(1),
            },
            Some("wait") => number(u.int_in_range(0..=1)?),
            // The length of an array: 0 if the array is the first parameter, otherwise 1.
            _ => number(i64::from(self.function.params.first() != Some(&Param::Vector))),
        })
    }

    /// Returns the request that the library may send for an operation, and the response to it.
    fn request(&self, op: Op, u: &mut Unstructured<'_>) -> Result<CallRequest> {
        let mapping = self.asks_for_mapping();
        // The pattern contains the key, so that requests for other keys get different responses.
        let names_key = self.has(Param::Str) && op.is(&["get", "get-node-attribute", "get-job-attribute"]);
        let pattern = match names_key && !mapping {
            true => text(format!("cmd={op} key={}", self.key)),
            false => pattern(op, mapping),
        };
        let mut answer = vec![field("cmd", op.response_name().unwrap_or_default()), field("rc", "0")];
        // PMI-2 servers return a port under one of two keys.
        let second: bool = op.is(&["lookup"]) && u.arbitrary()?;
        for result in without_extensions(op.exchange().results) {
            match result.name {
                "err" => answer.extend([field("err0", "0"), field("err1", "0")]),
                "port" if op.framing() == Framing::Frames && (result.key == "port") != second => {}
                _ => answer.extend(self.usual(op, result).map(|value| field(result.key, value))),
            }
        }
        Ok(CallRequest { op, pattern, mapping, answer })
    }

    /// Returns the value of a field in a response that reports success.
    fn usual(&self, op: Op, field: &Field) -> Option<FieldValue> {
        let in_frames = self.libraries.dialect.framing() == Framing::Frames;
        let limit = |limit: Limit| LIMITS[limit as usize].to_string();
        Some(match field.name {
            "value" if self.asks_for_mapping() => format!("(vector,(0,1,{}))", self.ranks).into(),
            "value" if self.key == "universeSize" => "4".into(),
            "value" | "port" => self.received.encode(self.libraries.dialect).into(),
            "found" => "TRUE".into(),
            "kvsname" => kvs().into(),
            "jobid" => "job-2".into(),
            "kvscopy" => "no".into(),
            "size" => self.ranks.max(if op.is(&["universe"]) { 4 } else { 1 }).to_string().into(),
            "rank" => own_rank().into(),
            "appnum" | "ring-count" => "0".into(),
            "nerrs" => "2".into(),
            "errcodes" => "0,0".into(),
            "ring-left" | "ring-right" => "of-0".into(),
            "debugged" | "pmiverbose" => "FALSE".into(),
            "pmi_version" | "pmi-version" => (if in_frames { "2" } else { "1" }).into(),
            "pmi_subversion" | "pmi-subversion" => (if in_frames { "0" } else { "1" }).into(),
            name => limit(Limit::of_name(name)?).into(),
        })
    }
}
