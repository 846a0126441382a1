//! The operations of PMI-1.

/// An operation of RFC 13's "Protocol Definition": a request and its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Operation {
    /// Version negotiation.
    Init,
    /// The length limits of the keyval space.
    Maxes,
    /// End the program.
    Abort,
    /// Leave PMI.
    Finalize,
    /// The universe size.
    Universe,
    /// The application number.
    Appnum,
    /// Store a value.
    Put,
    /// The name of the keyval space.
    Kvsname,
    /// Wait for all ranks.
    Barrier,
    /// Read a value.
    Get,
    /// Publish a name.
    Publish,
    /// Withdraw a published name.
    Unpublish,
    /// Look up a published name.
    Lookup,
    /// Start another program.
    Spawn,
}

impl Operation {
    /// All operations, in the RFC's order.
    pub const ALL: [Self; 14] = [
        Self::Init,
        Self::Maxes,
        Self::Abort,
        Self::Finalize,
        Self::Universe,
        Self::Appnum,
        Self::Put,
        Self::Kvsname,
        Self::Barrier,
        Self::Get,
        Self::Publish,
        Self::Unpublish,
        Self::Lookup,
        Self::Spawn,
    ];

    /// The command word of the request: the value of `cmd`, for spawn that of `mcmd`.
    pub fn request_cmd(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Maxes => "get_maxes",
            Self::Abort => "abort",
            Self::Finalize => "finalize",
            Self::Universe => "get_universe_size",
            Self::Appnum => "get_appnum",
            Self::Put => "put",
            Self::Kvsname => "get_my_kvsname",
            Self::Barrier => "barrier_in",
            Self::Get => "get",
            Self::Publish => "publish_name",
            Self::Unpublish => "unpublish_name",
            Self::Lookup => "lookup_name",
            Self::Spawn => "spawn",
        }
    }

    /// The value of `cmd` in the response; `None` for abort, whose response is an empty line.
    pub fn response_cmd(self) -> Option<&'static str> {
        Some(match self {
            Self::Init => "response_to_init",
            Self::Maxes => "maxes",
            Self::Abort => return None,
            Self::Finalize => "finalize_ack",
            Self::Universe => "universe_size",
            Self::Appnum => "appnum",
            Self::Put => "put_result",
            Self::Kvsname => "my_kvsname",
            Self::Barrier => "barrier_out",
            Self::Get => "get_result",
            Self::Publish => "publish_result",
            Self::Unpublish => "unpublish_result",
            Self::Lookup => "lookup_result",
            Self::Spawn => "spawn_result",
        })
    }

    /// The name of the operation's rules in the RFC's ABNF, without `C:` and `S:`.
    pub fn rule(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Maxes => "maxes",
            Self::Abort => "abort",
            Self::Finalize => "finalize",
            Self::Universe => "universe",
            Self::Appnum => "appnum",
            Self::Put => "put",
            Self::Kvsname => "kvsname",
            Self::Barrier => "barrier",
            Self::Get => "get",
            Self::Publish => "publish",
            Self::Unpublish => "unpublish",
            Self::Lookup => "lookup",
            Self::Spawn => "spawn",
        }
    }

    /// The operation with this request command word.
    pub fn from_request_cmd(cmd: &[u8]) -> Option<Self> {
        Some(match cmd {
            b"init" => Self::Init,
            b"get_maxes" => Self::Maxes,
            b"abort" => Self::Abort,
            b"finalize" => Self::Finalize,
            b"get_universe_size" => Self::Universe,
            b"get_appnum" => Self::Appnum,
            b"put" => Self::Put,
            b"get_my_kvsname" => Self::Kvsname,
            b"barrier_in" => Self::Barrier,
            b"get" => Self::Get,
            b"publish_name" => Self::Publish,
            b"unpublish_name" => Self::Unpublish,
            b"lookup_name" => Self::Lookup,
            b"spawn" => Self::Spawn,
            _ => return None,
        })
    }

    /// The operation with this response command word.
    pub fn from_response_cmd(cmd: &[u8]) -> Option<Self> {
        Some(match cmd {
            b"response_to_init" => Self::Init,
            b"maxes" => Self::Maxes,
            b"finalize_ack" => Self::Finalize,
            b"universe_size" => Self::Universe,
            b"appnum" => Self::Appnum,
            b"put_result" => Self::Put,
            b"my_kvsname" => Self::Kvsname,
            b"barrier_out" => Self::Barrier,
            b"get_result" => Self::Get,
            b"publish_result" => Self::Publish,
            b"unpublish_result" => Self::Unpublish,
            b"lookup_result" => Self::Lookup,
            b"spawn_result" => Self::Spawn,
            _ => return None,
        })
    }

    /// The keys that the response's rule defines besides `cmd` and `msg`.
    pub(crate) fn response_keys(self) -> &'static [&'static str] {
        match self {
            Self::Init => &["rc", "pmi_version", "pmi_subversion"],
            Self::Maxes => &["rc", "kvsname_max", "keylen_max", "vallen_max"],
            Self::Abort => &[],
            Self::Universe => &["rc", "size"],
            Self::Appnum => &["rc", "appnum"],
            Self::Kvsname => &["rc", "kvsname"],
            Self::Get => &["rc", "value"],
            Self::Lookup => &["rc", "port"],
            Self::Spawn => &["rc", "errcodes"],
            Self::Finalize | Self::Put | Self::Barrier | Self::Publish | Self::Unpublish => &["rc"],
        }
    }
}

/// The keys that the response with this command word has besides `cmd` and `msg`: of an operation, or of one of the requests in
/// [`KeyvalSpaceRequest`](crate::KeyvalSpaceRequest), which RFC 13 does not have.
pub(crate) fn response_keys(cmd: &[u8]) -> Option<&'static [&'static str]> {
    match cmd {
        b"newkvs" => Some(&["rc", "kvsname"]),
        b"kvs_destroyed" => Some(&["rc"]),
        b"getbyidx_results" => Some(&["rc", "nextidx", "key", "val"]),
        _ => Operation::from_response_cmd(cmd).map(Operation::response_keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn words_lead_back_to_their_operation_and_to_no_other() {
        for op in Operation::ALL {
            assert_eq!(Operation::from_request_cmd(op.request_cmd().as_bytes()), Some(op));
            let response =
                op.response_cmd().map(|word| (word, Operation::from_response_cmd(word.as_bytes())));
            assert!(response.is_none_or(|(_, found)| found == Some(op)), "{op:?}");
            assert!(response.is_none_or(|(word, _)| Operation::from_request_cmd(word.as_bytes()).is_none()));
            assert_eq!(response.is_none(), op == Operation::Abort);
        }
        let rules: BTreeSet<_> = Operation::ALL.iter().map(|op| op.rule()).collect();
        assert_eq!(rules.len(), Operation::ALL.len());
        assert_eq!(Operation::from_request_cmd(b"initack"), None);
        assert_eq!(Operation::from_response_cmd(b""), None);
    }
}
