//! The protocol table: for each operation, the spelling of its request and response in each framing, and their fields.
//!
//! Every component that uses protocol words derives them from this table: the decoder and the writer, the vocabulary of the scenario
//! language, the axes of the input space, the fuzzer's words, the dictionaries and `pmi-conform explain OPERATION`. The only exception is
//! the spawn request, which has several lines or sections: see `spawn`.

use std::fmt;

use crate::grammar::{Rule, is_uint};

/// The way in which messages are delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Framing {
    /// A newline ends each message: PMI-1, and the first exchange of PMI-2.
    #[default]
    Lines,
    /// A length precedes each message: PMI-2.
    Frames,
}

impl Framing {
    /// All framings.
    pub const ALL: [Self; 2] = [Self::Lines, Self::Frames];

    /// Returns the element of a pair that belongs to this framing: the first for lines, the second for frames.
    pub fn pick<T>(self, [line, frame]: [T; 2]) -> T {
        match self {
            Self::Lines => line,
            Self::Frames => frame,
        }
    }
}

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client (the process) to the server.
    ToServer,
    /// From the server (the process manager) to the client.
    FromServer,
}

/// A PMI version, as negotiated by init. Versions are ordered by `version`, and then by `subversion`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// `pmi_version`.
    pub version: u64,
    /// `pmi_subversion`.
    pub subversion: u64,
}

impl Version {
    /// The version before RFC 13's, which some current clients, such as NVSHMEM, still offer. It has the same messages as 1.1.
    pub const V1_0: Self = Self { version: 1, subversion: 0 };
    /// The version that RFC 13 documents.
    pub const V1_1: Self = Self { version: 1, subversion: 1 };
    /// MPICH's extension of 1.1 with barriers over part of a process group.
    pub const V1_2: Self = Self { version: 1, subversion: 2 };
    /// The version of PMI-2.
    pub const V2_0: Self = Self { version: 2, subversion: 0 };

    /// Returns whether this version defines the `group` and the `tag` of a barrier.
    pub fn has_group_barriers(self) -> bool {
        self.version == Self::V1_2.version && self >= Self::V1_2
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.version, self.subversion)
    }
}

/// The limits in the response to get_maxes. Lengths are in bytes and, according to RFC 13's description of the API, include the terminating
/// NUL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvsLimits {
    /// The maximum length of the name of a keyval space.
    pub kvsname_max: u64,
    /// The maximum length of a key.
    pub keylen_max: u64,
    /// The maximum length of a value.
    pub vallen_max: u64,
}

/// A request and its response, as spelled in a particular framing.
#[derive(Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The operation, with the same name in every framing.
    pub operation: &'static str,
    /// The value of `cmd` in the request, or of `mcmd` for spawn in lines.
    pub request: &'static str,
    /// The value of `cmd` in the response. `None` if the response has no name, or if the message is part of a longer exchange.
    pub response: Option<&'static str>,
    /// The fields of the request, in the order of the grammar, without `cmd` and [`common_arguments`].
    pub arguments: &'static [Field],
    /// The fields of the response, in the order of the grammar, without `cmd` and [`common_results`].
    pub results: &'static [Field],
    /// True if the request is a block of lines, which begins with `mcmd` instead of `cmd`.
    pub is_block: bool,
    /// The functions of the C API that send the request.
    pub functions: &'static [&'static str],
    /// The document and the section that define the exchange.
    pub source: &'static str,
}

impl Exchange {
    /// Returns the command word of the message in this direction.
    pub fn command(&self, direction: Direction) -> Option<&'static str> {
        match direction {
            Direction::ToServer => Some(self.request),
            Direction::FromServer => self.response,
        }
    }

    const fn block(self) -> Self {
        Self { is_block: true, ..self }
    }

    /// Returns the key of the command in the request.
    pub fn command_key(&self) -> &'static str {
        if self.is_block { "mcmd" } else { "cmd" }
    }

    /// Returns the fields of the message in this direction.
    pub fn fields(&self, direction: Direction) -> &'static [Field] {
        match direction {
            Direction::ToServer => self.arguments,
            Direction::FromServer => self.results,
        }
    }

    /// Returns the field of the request with this name. The name of a numbered field ends in its number.
    pub fn argument(&self, name: &str) -> Option<&'static Field> {
        self.arguments.iter().find(|field| field.number(name).is_some())
    }

    /// Returns whether only the PMI-2 draft describes the request. No known implementation supports such a request.
    pub fn is_draft_only(&self) -> bool {
        const OPERATIONS: [&str; 6] =
            ["authenticate", "connect", "disconnect", "get-all", "put-all", "continue"];
        OPERATIONS.contains(&self.operation) || self.request == "spawn-cmd"
    }

    /// Returns the reason why tests may omit this exchange, if any.
    pub fn omission(&self) -> Option<&'static str> {
        match (self.functions, self.is_draft_only()) {
            ([_, ..], _) => None,
            ([], true) => {
                Some("only the PMI-2 draft describes this operation, and no implementation supports it")
            }
            ([], false) => Some("no function of the C API sends this request"),
        }
    }
}

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The name, which is the same in every framing.
    pub name: &'static str,
    /// The key, without the number of a numbered field.
    pub key: &'static str,
    /// The rule for the value.
    pub rule: Rule,
    /// True if the message may omit the field.
    pub optional: bool,
    /// True if the key ends in a number, so the message may contain several of these fields.
    pub numbered: bool,
    /// The key in the response to get_maxes that limits the length of the value.
    pub limit: Option<&'static str>,
    /// The version of PMI-1 that added the field, if it is later than RFC 13's.
    pub since: Option<Version>,
    /// True if all programs of a spawn request share the field.
    pub shared: bool,
    /// The rule that derives the value from the rest of a correct message, if any.
    pub derived: Option<DerivedValue>,
}

/// A rule that derives the value of a field from the rest of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DerivedValue {
    /// The number of fields with this name.
    Fields(&'static str),
    /// The number of programs in the request.
    Programs,
    /// The number of programs up to and including this program.
    ProgramsSoFar,
}

impl Field {
    const fn new(key: &'static str, rule: Rule) -> Self {
        Self {
            name: key,
            key,
            rule,
            optional: false,
            numbered: false,
            limit: None,
            since: None,
            shared: false,
            derived: None,
        }
    }

    /// Sets the name, for a field whose key differs between framings.
    const fn with_name(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    const fn numbered(self) -> Self {
        Self { numbered: true, ..self }
    }

    const fn limit(self, limit: &'static str) -> Self {
        Self { limit: Some(limit), ..self }
    }

    const fn since(self, version: Version) -> Self {
        Self { since: Some(version), ..self }
    }

    const fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    const fn with_derived(self, derived: DerivedValue) -> Self {
        Self { derived: Some(derived), ..self }
    }

    /// Returns the number in `name` if it is a name of the field. The name of a numbered field ends in its number; other fields have the
    /// number 0.
    pub fn number(&self, name: &str) -> Option<u64> {
        match name.strip_prefix(self.name)? {
            number if self.numbered && is_uint(number.as_bytes()) => number.parse().ok(),
            rest => (rest.is_empty() && !self.numbered).then_some(0),
        }
    }

    /// Returns whether this key can belong to the field.
    pub fn matches_key(&self, key: &str) -> bool {
        match key.strip_prefix(self.key) {
            Some(number) if self.numbered => is_uint(number.as_bytes()),
            rest => rest == Some(""),
        }
    }
}

const fn word(key: &'static str) -> Field {
    Field::new(key, Rule::Word)
}

const fn visible(key: &'static str) -> Field {
    Field::new(key, Rule::Visible)
}

const fn string(key: &'static str) -> Field {
    Field::new(key, Rule::String)
}

const fn uint(key: &'static str) -> Field {
    Field::new(key, Rule::Uint)
}

const fn int(key: &'static str) -> Field {
    Field::new(key, Rule::Int)
}

const fn boolean(key: &'static str) -> Field {
    Field::new(key, Rule::Bool)
}

const KVSNAME: Field = word("kvsname").limit("kvsname_max");
const KEY: Field = word("key").limit("keylen_max");
const VALUE: Field = string("value").limit("vallen_max");
/// The field that reports whether the requested value exists. The PMI-2 draft calls it `flag`, and implementations call it `found`.
const FOUND: [Field; 2] = [boolean("flag").optional(), boolean("found").optional()];
const NAME: Field = string("name").with_name("service");
const INFO_KEY_COUNT: Field = uint("infokeycount").optional();
const INFO_KEY: Field = word("infokey").numbered();
const INFO_VALUE: Field = string("infoval").numbered();

/// Returns a row of the table. If `response` is empty, the row has no response name.
const fn exchange(
    operation: &'static str,
    [request, response]: [&'static str; 2],
    functions: &'static [&'static str],
    arguments: &'static [Field],
    results: &'static [Field],
    source: &'static str,
) -> Exchange {
    let response = if response.is_empty() { None } else { Some(response) };
    Exchange { operation, request, response, is_block: false, functions, arguments, results, source }
}

/// Declares the operations of RFC 13 and their rows in the table for lines.
macro_rules! operations {
    ($($(#[$doc:meta])* $operation:ident: $row:expr,)*) => {
        /// An operation of RFC 13's "Protocol Definition": a request and its response.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
        #[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
        pub enum Operation {
            $($(#[$doc])* $operation,)*
        }

        impl Operation {
            /// All operations, in the RFC's order.
            pub const ALL: [Self; LINES.len()] = [$(Self::$operation),*];
        }

        /// The rows of [`Operation::ALL`], in the same order.
        pub(crate) const LINES: &[Exchange] = &[$($row),*];
    };
}

operations! {
    /// Negotiates the version.
    Init: exchange(
        "init",
        ["init", "response_to_init"],
        &["PMI_Init"],
        &[uint("pmi_version"), uint("pmi_subversion")],
        &[uint("pmi_version").optional(), uint("pmi_subversion").optional()],
        "RFC 13, init",
    ),
    /// Requests the length limits of the keyval space.
    Maxes: exchange(
        "maxes",
        ["get_maxes", "maxes"],
        &["PMI_KVS_Get_name_length_max", "PMI_KVS_Get_key_length_max", "PMI_KVS_Get_value_length_max"],
        &[],
        &[uint("kvsname_max").optional(), uint("keylen_max").optional(), uint("vallen_max").optional()],
        "RFC 13, maxes",
    ),
    /// Aborts the program.
    Abort: exchange(
        "abort",
        ["abort", ""],
        &["PMI_Abort"],
        &[int("exitcode").optional()],
        &[],
        "RFC 13, abort; exitcode: MPICH",
    ),
    /// Leaves PMI.
    Finalize: exchange("finalize", ["finalize", "finalize_ack"], &["PMI_Finalize"], &[], &[], "RFC 13, finalize"),
    /// Requests the universe size.
    Universe: exchange(
        "universe",
        ["get_universe_size", "universe_size"],
        &["PMI_Get_universe_size"],
        &[],
        &[uint("size").optional()],
        "RFC 13, universe",
    ),
    /// Requests the application number.
    Appnum: exchange(
        "appnum",
        ["get_appnum", "appnum"],
        &["PMI_Get_appnum"],
        &[],
        &[uint("appnum").optional()],
        "RFC 13, appnum",
    ),
    /// Stores a value.
    Put: exchange("put", ["put", "put_result"], &["PMI_KVS_Put"], &[KVSNAME, KEY, VALUE], &[], "RFC 13, put"),
    /// Requests the name of the keyval space.
    Kvsname: exchange(
        "kvsname",
        ["get_my_kvsname", "my_kvsname"],
        &["PMI_KVS_Get_my_name"],
        &[],
        &[KVSNAME.optional()],
        "RFC 13, kvsname",
    ),
    /// Waits for all ranks.
    Barrier: exchange(
        "barrier",
        ["barrier_in", "barrier_out"],
        &["PMI_Barrier"],
        &[string("group").optional().since(Version::V1_2)],
        &[string("tag").optional().since(Version::V1_2)],
        "RFC 13, barrier; group and tag: PMI-1.2 of MPICH",
    ),
    /// Reads a value.
    Get: exchange(
        "get",
        ["get", "get_result"],
        &["PMI_KVS_Get"],
        &[KVSNAME, KEY],
        &[VALUE.optional()],
        "RFC 13, get",
    ),
    /// Publishes a name.
    Publish: exchange(
        "publish",
        ["publish_name", "publish_result"],
        &["PMI_Publish_name"],
        &[word("service"), visible("port")],
        &[],
        "RFC 13, publish",
    ),
    /// Withdraws a published name.
    Unpublish: exchange(
        "unpublish",
        ["unpublish_name", "unpublish_result"],
        &["PMI_Unpublish_name"],
        &[word("service")],
        &[],
        "RFC 13, unpublish",
    ),
    /// Looks up a published name.
    Lookup: exchange(
        "lookup",
        ["lookup_name", "lookup_result"],
        &["PMI_Lookup_name"],
        &[word("service")],
        &[visible("port").optional()],
        "RFC 13, lookup",
    ),
    /// Starts another program.
    Spawn: exchange(
        "spawn",
        ["spawn", "spawn_result"],
        &["PMI_Spawn_multiple"],
        &[
            uint("nprocs"),
            string("execname"),
            uint("totspawns").with_derived(DerivedValue::Programs).shared(),
            uint("spawnssofar").with_derived(DerivedValue::ProgramsSoFar),
            string("arg").numbered(),
            uint("argcnt").with_derived(DerivedValue::Fields("arg")),
            uint("preput_num").with_derived(DerivedValue::Fields("preput_key_")).shared(),
            word("preput_key_").numbered().limit("keylen_max").shared(),
            string("preput_val_").numbered().limit("vallen_max").shared(),
            uint("info_num").with_derived(DerivedValue::Fields("info_key_")),
            string("info_key_").numbered(),
            string("info_val_").numbered(),
        ],
        &[Field::new("errcodes", Rule::IntList).optional()],
        "RFC 13, spawn",
    )
    .block(),
}

/// Line requests that are not part of RFC 13, but that some clients send. No open-source manager answers the requests that have no
/// response in this table.
const EXTRA_LINES: &[Exchange] = &[
    exchange("kvs-create", ["create_kvs", "newkvs"], &[], &[], &[KVSNAME], "MPICH's gforker"),
    exchange("kvs-destroy", ["destroy_kvs", "kvs_destroyed"], &[], &[KVSNAME], &[], "MPICH's gforker"),
    exchange(
        "kvs-index",
        ["getbyidx", "getbyidx_results"],
        &[],
        &[KVSNAME, uint("idx")],
        &[uint("nextidx"), KEY, string("val")],
        "MPICH's gforker",
    ),
    exchange("hosts", ["get_ranks2hosts", ""], &[], &[], &[], "clients of MPD"),
    exchange("problem", ["execution_problem", ""], &[], &[], &[], "clients of MPD"),
    exchange("debugger", ["tv_ready", ""], &[], &[], &[], "clients of MPD"),
];

/// The commands of PMI-2 in frames, in the order of the draft.
const FRAMES: &[Exchange] = &[
    exchange(
        "init",
        ["fullinit", "fullinit-response"],
        &["PMI2_Init"],
        &[
            string("pmijobid").optional(),
            uint("pmirank").optional(),
            boolean("threaded").optional(),
            word("authtype").optional(),
            string("authinfo").optional(),
        ],
        &[
            uint("pmi-version"),
            uint("pmi-subversion"),
            uint("rank"),
            uint("size"),
            int("appnum"),
            string("spawner-jobid").optional(),
            boolean("debugged").optional(),
            boolean("pmiverbose").optional(),
        ],
        "PMI-2 draft, initialization",
    ),
    exchange(
        "authenticate",
        ["auth-response", ""],
        &[],
        &[string("authinfo")],
        &[],
        "PMI-2 draft, authentication",
    ),
    exchange(
        "authenticate",
        ["auth-response-complete", ""],
        &[],
        &[string("authinfo")],
        &[],
        "PMI-2 draft, authentication",
    ),
    exchange(
        "finalize",
        ["finalize", "finalize-response"],
        &["PMI2_Finalize"],
        &[],
        &[],
        "PMI-2 draft, finalize",
    ),
    exchange(
        "abort",
        ["abort", ""],
        &["PMI2_Abort"],
        &[
            boolean("isworld").optional(),
            string("msg").optional(),
            int("exitcode").optional(),
            string("message").optional(),
        ],
        &[],
        "PMI-2 draft, abort; exitcode and message: MPICH 4.1",
    ),
    exchange(
        "kvsname",
        ["job-getid", "job-getid-response"],
        &["PMI2_Job_GetId"],
        &[],
        &[string("jobid").with_name("kvsname")],
        "PMI-2 draft, job-getid",
    ),
    exchange(
        "connect",
        ["job-connect", "job-connect-response"],
        &["PMI2_Job_Connect"],
        &[string("jobid")],
        &[word("kvscopy")],
        "PMI-2 draft, job-connect",
    ),
    exchange(
        "disconnect",
        ["job-disconnect", "job-disconnect-response"],
        &["PMI2_Job_Disconnect"],
        &[string("jobid")],
        &[],
        "PMI-2 draft, job-disconnect",
    ),
    exchange(
        "get-all",
        ["kvs-getall", "kvs-getall-response"],
        &[],
        &[string("jobid")],
        &[],
        "PMI-2 draft, kvs-getall",
    ),
    exchange(
        "put-all",
        ["kvs-putall", "kvs-putall-response"],
        &[],
        &[string("jobid"), uint("npair")],
        &[],
        "PMI-2 draft, kvs-putall",
    ),
    exchange("put-all", ["kvs-putall-pair", ""], &[], &[KEY, string("val")], &[], "PMI-2 draft, kvs-putall"),
    exchange(
        "put",
        ["kvs-put", "kvs-put-response"],
        &["PMI2_KVS_Put"],
        &[KEY, VALUE],
        &[],
        "PMI-2 draft, kvs-put",
    ),
    exchange(
        "get",
        ["kvs-get", "kvs-get-response"],
        &["PMI2_KVS_Get"],
        &[string("jobid").optional(), int("srcid").optional(), KEY],
        &[FOUND[0], FOUND[1], VALUE.optional()],
        "PMI-2 draft, kvs-get",
    ),
    exchange(
        "barrier",
        ["kvs-fence", "kvs-fence-response"],
        &["PMI2_KVS_Fence"],
        &[],
        &[],
        "PMI-2 draft, kvs-fence",
    ),
    exchange(
        "put-node-attribute",
        ["info-putnodeattr", "info-putnodeattr-response"],
        &["PMI2_Info_PutNodeAttr"],
        &[KEY, VALUE],
        &[],
        "PMI-2 draft, info-putnodeattr",
    ),
    exchange(
        "get-node-attribute",
        ["info-getnodeattr", "info-getnodeattr-response"],
        &["PMI2_Info_GetNodeAttr"],
        &[KEY, boolean("wait").optional()],
        &[FOUND[0], FOUND[1], VALUE.optional()],
        "PMI-2 draft, info-getnodeattr",
    ),
    exchange(
        "get-job-attribute",
        ["info-getjobattr", "info-getjobattr-response"],
        &["PMI2_Info_GetJobAttr"],
        &[KEY],
        &[FOUND[0], FOUND[1], VALUE.optional()],
        "PMI-2 draft, info-getjobattr",
    ),
    exchange(
        "publish",
        ["name-publish", "name-publish-response"],
        &["PMI2_Nameserv_publish"],
        &[NAME, string("port"), INFO_KEY_COUNT, INFO_KEY, INFO_VALUE],
        &[],
        "PMI-2 draft, name-publish",
    ),
    exchange(
        "lookup",
        ["name-lookup", "name-lookup-response"],
        &["PMI2_Nameserv_lookup"],
        &[NAME, INFO_KEY_COUNT, INFO_KEY, INFO_VALUE],
        &[FOUND[0], FOUND[1], string("value").with_name("port").optional(), string("port").optional()],
        "PMI-2 draft, name-lookup; port: Hydra",
    ),
    exchange(
        "unpublish",
        ["name-unpublish", "name-unpublish-response"],
        &["PMI2_Nameserv_unpublish"],
        &[NAME, INFO_KEY_COUNT, INFO_KEY, INFO_VALUE],
        &[],
        "PMI-2 draft, name-unpublish",
    ),
    exchange(
        "spawn",
        ["spawn", "spawn-response"],
        &["PMI2_Job_Spawn"],
        &[
            uint("ncmds").with_name("totspawns").with_derived(DerivedValue::Programs).shared(),
            uint("preputcount")
                .with_name("preput_num")
                .with_derived(DerivedValue::Fields("preput_key_"))
                .optional()
                .shared(),
            word("ppkey").with_name("preput_key_").numbered().limit("keylen_max").shared(),
            string("ppval").with_name("preput_val_").numbered().limit("vallen_max").shared(),
            string("subcmd").with_name("execname"),
            uint("maxprocs").with_name("nprocs"),
            uint("argc").with_name("argcnt").with_derived(DerivedValue::Fields("arg")).optional(),
            string("argv").with_name("arg").numbered(),
            INFO_KEY_COUNT.with_name("info_num").with_derived(DerivedValue::Fields("info_key_")),
            INFO_KEY.with_name("info_key_"),
            INFO_VALUE.with_name("info_val_"),
        ],
        &[string("jobid").optional(), uint("nerrs").optional(), int("err").numbered()],
        "PMI-2 draft, spawn",
    ),
    exchange(
        "spawn",
        ["spawn-cmd", ""],
        &[],
        &[
            uint("maxprocs"),
            uint("argc").optional(),
            string("argv").numbered(),
            INFO_KEY_COUNT,
            INFO_KEY,
            INFO_VALUE,
        ],
        &[],
        "PMI-2 draft, spawn-cmd",
    ),
    exchange("continue", ["concat", ""], &[], &[string("concatid")], &[], "PMI-2 draft, concat"),
    exchange(
        "ring",
        ["ring", "ring-response"],
        &["PMIX_Ring"],
        &[uint("count").optional(), string("left").optional(), string("right").optional()],
        &[uint("ring-count"), string("ring-left"), string("ring-right")],
        "Slurm",
    ),
];

/// Messages from the server that are part of a response and have no `rc`. Each entry contains the value of `cmd` and the fields.
pub const PARTS: [(&str, &[Field]); 4] = [
    ("auth-response", &[string("authinfo")]),
    ("auth-response-complete", &[string("authinfo")]),
    ("kvs-getall-paircount-response", &[uint("npair")]),
    ("kvs-getall-pair-response", &[KEY, string("val")]),
];

/// Returns the partial responses of a framing: [`PARTS`] for frames, and no messages for lines.
pub fn parts(framing: Framing) -> &'static [(&'static str, &'static [Field])] {
    framing.pick([&[], &PARTS])
}

/// Returns the fields that every request in a framing may have besides `cmd`.
pub fn common_arguments(framing: Framing) -> &'static [Field] {
    const FRAMES: [Field; 1] = [string("thrid").optional()];
    match framing {
        Framing::Lines => &[],
        Framing::Frames => &FRAMES,
    }
}

/// Returns the fields that every response in a framing may have besides `cmd`.
pub fn common_results(framing: Framing) -> &'static [Field] {
    // The last three are extensions: gforker writes `info=ok` and a reason, and Hydra writes `found`.
    const LINES: [Field; 5] = [
        int("rc").optional(),
        string("msg").optional(),
        string("info").optional(),
        string("found").optional(),
        string("reason").optional(),
    ];
    const FRAMES: [Field; 3] = [string("thrid").optional(), int("rc"), string("errmsg").optional()];
    match framing {
        Framing::Lines => &LINES,
        Framing::Frames => &FRAMES,
    }
}

/// Returns the documented exchanges of a framing, including Slurm's `ring`. The init line, with which PMI-2 also begins, is among the
/// exchanges for lines only.
pub fn documented_exchanges(framing: Framing) -> &'static [Exchange] {
    match framing {
        Framing::Lines => LINES,
        Framing::Frames => FRAMES,
    }
}

/// Returns the exchanges of a framing that only implementations define.
pub(crate) fn undocumented_exchanges(framing: Framing) -> &'static [Exchange] {
    framing.pick([EXTRA_LINES, &[]])
}

/// Returns all exchanges of a framing, including those that only implementations define.
pub fn exchanges(framing: Framing) -> impl Iterator<Item = &'static Exchange> {
    documented_exchanges(framing).iter().chain(undocumented_exchanges(framing))
}

/// Returns all exchanges of both framings.
pub fn all_exchanges() -> impl Iterator<Item = &'static Exchange> {
    Framing::ALL.into_iter().flat_map(exchanges)
}

/// Returns whether any response in a framing has this key.
pub fn is_response_key(framing: Framing, key: &str) -> bool {
    key == "cmd" || response_fields(framing).any(|field| field.matches_key(key))
}

/// Returns the fields of all responses in a framing, including those of the init line.
pub fn response_fields(framing: Framing) -> impl Iterator<Item = &'static Field> {
    let own = exchanges(framing).chain(&LINES[..1]).flat_map(|exchange| exchange.results);
    common_results(framing).iter().chain(own).chain(parts(framing).iter().flat_map(|(_, fields)| *fields))
}

/// Returns the fields, except those that were added by a version later than that of RFC 13.
pub fn without_extensions(fields: &'static [Field]) -> impl Iterator<Item = &'static Field> + Clone {
    fields.iter().filter(|field| field.since.is_none())
}

/// Returns the documented exchange of an operation in a framing.
pub fn by_operation(framing: Framing, name: &str) -> Option<&'static Exchange> {
    documented_exchanges(framing).iter().find(|exchange| exchange.operation == name)
}

/// Returns the exchange whose request has this command word.
pub fn by_request(framing: Framing, cmd: &[u8]) -> Option<&'static Exchange> {
    exchanges(framing).find(|exchange| exchange.request.as_bytes() == cmd)
}

/// Returns the exchange whose response has this command word.
pub(crate) fn by_response(framing: Framing, cmd: &[u8]) -> Option<&'static Exchange> {
    exchanges(framing).find(|exchange| exchange.response.is_some_and(|name| name.as_bytes() == cmd))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::pmi2::SemicolonReading;
    use crate::{Decoded, ValueReading};

    /// The reasons why a dialect has no request for an operation.
    const ABSENT: [(Framing, Operation, &str); 3] = [
        (Framing::Frames, Operation::Maxes, "the draft sets the limits"),
        (Framing::Frames, Operation::Universe, "this is an attribute of the job"),
        (Framing::Frames, Operation::Appnum, "the response to fullinit contains it"),
    ];

    #[test]
    fn operation_without_an_exchange_has_a_reason() {
        for framing in [Framing::Lines, Framing::Frames] {
            for operation in Operation::ALL {
                let has_row = exchanges(framing).any(|row| row.operation == operation.rule());
                let is_excused = ABSENT.iter().any(|(of, absent, _)| (*of, *absent) == (framing, operation));
                assert_ne!(has_row, is_excused, "{framing:?}: {operation:?}");
            }
        }
    }

    #[test]
    fn suite_omits_only_draft_and_undocumented_requests() {
        for framing in [Framing::Lines, Framing::Frames] {
            let omitted = |rows: &'static [Exchange]| rows.iter().filter(|row| row.omission().is_some());
            assert!(omitted(documented_exchanges(framing)).all(Exchange::is_draft_only), "{framing:?}");
            assert_eq!(
                omitted(undocumented_exchanges(framing)).count(),
                undocumented_exchanges(framing).len(),
                "{framing:?}"
            );
        }
        let omitted = FRAMES.iter().filter(|row| row.omission().is_some()).map(|row| row.request);
        let expected =
            ["auth-response", "auth-response-complete", "kvs-getall", "kvs-putall", "kvs-putall-pair"];
        assert_eq!(omitted.collect::<Vec<_>>(), [&expected[..], &["spawn-cmd", "concat"]].concat());
    }

    /// Returns a value that the rule accepts and, if possible, a value that it rejects.
    fn values(rule: Rule) -> (&'static str, Option<&'static str>) {
        match rule {
            Rule::Word => ("a", Some("a=b")),
            Rule::String => ("a", None),
            Rule::Uint => ("1", Some("-1")),
            Rule::Int => ("-1", Some("x")),
            Rule::IntList => ("0,-1", Some("0,")),
            Rule::Visible => ("a=b", Some("")),
            Rule::Bool => ("TRUE", Some("1")),
        }
    }

    /// Returns the tuples of a message with all unnumbered fields.
    fn tuples(cmd: &str, fields: &[Field]) -> Vec<String> {
        let fields = fields.iter().filter(|field| !field.numbered);
        let own = fields.map(|field| format!("{}={}", field.key, values(field.rule).0));
        std::iter::once(format!("cmd={cmd}")).chain(own).collect()
    }

    /// Decodes a message, reading each value up to the next blank or semicolon. Returns the error in the message, if any.
    fn error(framing: Framing, direction: Direction, tuples: &[String]) -> Option<String> {
        let line = tuples.join(" ");
        let body = format!("{};", tuples.join(";"));
        let decoded = match framing {
            Framing::Lines => Decoded::line(direction, line.as_bytes(), ValueReading::ToBlank),
            Framing::Frames => Decoded::body(direction, body.as_bytes(), SemicolonReading::Plain),
        };
        decoded.error().map(ToString::to_string)
    }

    #[test]
    fn exchange_table_follows_the_order_of_operations() {
        for op in Operation::ALL {
            let variant = format!("{op:?}").to_lowercase();
            assert_eq!(op.exchange().operation, variant);
        }
    }

    #[test]
    fn command_names_are_unambiguous() {
        for framing in Framing::ALL {
            for exchange in exchanges(framing) {
                assert_eq!(by_request(framing, exchange.request.as_bytes()), Some(exchange));
                if let Some(response) = exchange.response {
                    assert_eq!(by_response(framing, response.as_bytes()), Some(exchange));
                    assert_eq!(by_request(framing, response.as_bytes()), None);
                }
            }
        }
    }

    /// Checks that the decoder accepts the messages in the table, and reports missing fields, invalid values and repeated keys. Messages
    /// with several lines or sections are excluded.
    #[rstest]
    #[case(Framing::Lines, Direction::ToServer)]
    #[case(Framing::Lines, Direction::FromServer)]
    #[case(Framing::Frames, Direction::ToServer)]
    fn decoder_agrees_with_the_table_of_messages(#[case] framing: Framing, #[case] direction: Direction) {
        let is_request = direction == Direction::ToServer;
        for exchange in documented_exchanges(framing).iter().filter(|e| !e.request.starts_with("spawn")) {
            let Some(cmd) = exchange.command(direction) else { continue };
            let fields = exchange.fields(direction);
            let all = tuples(cmd, fields);
            assert_eq!(error(framing, direction, &all), None, "{all:?}");
            let checked = |field: &&Field| {
                let is_info = field.key.starts_with("infokey") || field.key == "count";
                !field.numbered && field.since.is_none() && !is_info
            };
            for field in fields.iter().filter(checked) {
                let prefix = format!("{}=", field.key);
                let without: Vec<_> = all.iter().filter(|t| !t.starts_with(&prefix)).cloned().collect();
                let missing = format!("the key \"{}\" is missing", field.key);
                let expected = (!field.optional).then_some(missing);
                if is_request {
                    assert_eq!(error(framing, direction, &without), expected, "{without:?}");
                }
                let wrong = values(field.rule).1.filter(|_| is_request || framing == Framing::Lines);
                // Words in PMI-2 are not checked, because no implementation restricts their characters.
                if let Some(wrong) = wrong.filter(|_| framing == Framing::Lines || field.rule != Rule::Word) {
                    let bad = without.iter().cloned().chain([format!("{prefix}{wrong}")]).collect::<Vec<_>>();
                    let error = error(framing, direction, &bad).unwrap_or_default();
                    assert!(
                        error.starts_with(&format!("the value of \"{}\" is not", field.key)),
                        "{bad:?} {error}"
                    );
                }
                let twice = all.iter().cloned().chain([format!("{prefix}{}", values(field.rule).0)]);
                let repeated = format!("the key \"{}\" appears more than once", field.key);
                let seen = error(framing, direction, &twice.collect::<Vec<_>>());
                assert_eq!(seen, Some(repeated));
            }
        }
    }

    #[test]
    fn numbered_key_matches_only_with_a_number() {
        let argument = Operation::Spawn.exchange().arguments[4];
        assert!(argument.matches_key("arg0") && argument.matches_key("arg17"));
        assert!(
            !argument.matches_key("arg") && !argument.matches_key("argcnt") && !argument.matches_key("arg-1")
        );
        assert!(KEY.matches_key("key") && !KEY.matches_key("key0"));
    }
}
