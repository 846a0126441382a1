//! The words of RFC 13 and of PMI-2 that the checker knows, for suggestions and to tell a slip of the pen from intent.

use pmi_wire::pmi2::{Command, Part};

use crate::ast::Dialect;

/// Requests and their responses. `abort` is answered by a bare newline, `spawn` begins with `mcmd`.
pub const COMMANDS: &[(&str, &str)] = &[
    ("init", "response_to_init"),
    ("get_maxes", "maxes"),
    ("abort", ""),
    ("finalize", "finalize_ack"),
    ("get_universe_size", "universe_size"),
    ("get_appnum", "appnum"),
    ("put", "put_result"),
    ("get_my_kvsname", "my_kvsname"),
    ("barrier_in", "barrier_out"),
    ("get", "get_result"),
    ("publish_name", "publish_result"),
    ("unpublish_name", "unpublish_result"),
    ("lookup_name", "lookup_result"),
    ("spawn", "spawn_result"),
];

/// Requests of a dialect and their responses, empty where there is none with a name.
pub fn commands(dialect: Dialect) -> Vec<(&'static str, &'static str)> {
    match dialect {
        Dialect::Pmi1 => COMMANDS.to_vec(),
        Dialect::Pmi2 => {
            let of_frames = Command::ALL.map(|c| (c.name(), c.response_name().unwrap_or_default()));
            let parts = Part::NAMES.map(|(name, _)| ("", name));
            [("init", "response_to_init")].into_iter().chain(of_frames).chain(parts).collect()
        }
    }
}

/// Keys that some response of a dialect has, by its document or in practice; further ones may be numbered.
pub fn response_keys(dialect: Dialect) -> Vec<&'static str> {
    match dialect {
        Dialect::Pmi1 => [RESPONSE_KEYS, KEYVAL_SPACE_KEYS].concat(),
        Dialect::Pmi2 => {
            let common = ["cmd", "thrid", "rc", "errmsg", "pmi_version", "pmi_subversion"];
            let own = Command::ALL.into_iter().flat_map(Command::response_keys).copied();
            let parts = Part::NAMES.into_iter().flat_map(|(_, keys)| keys).copied();
            common.into_iter().chain(own).chain(parts).collect()
        }
    }
}

/// Keys that some response of PMI-1 has, by RFC 13 or in practice (`info`, `found`, `tag`).
pub const RESPONSE_KEYS: &[&str] = &[
    "cmd",
    "rc",
    "msg",
    "pmi_version",
    "pmi_subversion",
    "kvsname_max",
    "keylen_max",
    "vallen_max",
    "size",
    "appnum",
    "kvsname",
    "value",
    "port",
    "errcodes",
    "info",
    "found",
    "tag",
];

/// Keys of the answers to `create_kvs`, `destroy_kvs` and `getbyidx` that no other response has.
const KEYVAL_SPACE_KEYS: &[&str] = &["nextidx", "key", "val", "reason"];

/// Keys of PMI-1's messages that are none of [`RESPONSE_KEYS`].
const REQUEST_KEYS: &[&str] =
    &["mcmd", "endcmd", "key", "service", "exitcode", "nprocs", "execname", "argcnt"];

/// Whether some message of a dialect has this key.
pub(crate) fn is_known_key(dialect: Dialect, key: &str) -> bool {
    match dialect {
        Dialect::Pmi1 => RESPONSE_KEYS.contains(&key) || REQUEST_KEYS.contains(&key) || is_spawn_key(key),
        Dialect::Pmi2 => {
            let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
            let numbered = ["ppkey", "ppval", "argv", "infokey", "infoval", "err"];
            response_keys(dialect).contains(&key)
                || Command::ALL.into_iter().any(|command| command.request_keys().contains(&key))
                || (stem.len() < key.len() && numbered.contains(&stem))
        }
    }
}

/// Requests to the name service.
pub const NAME_COMMANDS: &[&str] =
    &["publish_name", "unpublish_name", "lookup_name", "name-publish", "name-unpublish", "name-lookup"];

/// Keys whose value runs to the end of the line in messages of this command, since RFC 13 makes it a `string`.
pub fn run_on_keys(cmd: Option<&str>) -> &'static [&'static str] {
    match cmd {
        Some("put" | "get_result") => &["value", "msg"],
        _ => &["msg"],
    }
}

/// Whether a line that begins with this key is one line of a spawn block, whose value runs to its end.
pub fn is_spawn_key(key: &str) -> bool {
    let numbered = |prefix: &str| {
        key.strip_prefix(prefix).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    matches!(
        key,
        "mcmd" | "nprocs" | "execname" | "totspawns" | "spawnssofar" | "argcnt" | "preput_num" | "info_num"
    ) || ["arg", "preput_key_", "preput_val_", "info_key_", "info_val_"].into_iter().any(numbered)
}

/// What a scenario may ask of the reference server, by name.
#[derive(Debug, Clone, Default)]
pub struct Behaviours {
    /// Names for `vary`.
    pub variations: Vec<&'static str>,
    /// Names for `fault`.
    pub faults: Vec<&'static str>,
}
