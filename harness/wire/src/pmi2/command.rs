//! The commands of PMI-2.

/// A command of the draft: a request and, but for abort, its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Command {
    /// Begins, behind the init line that is as in PMI-1.
    Fullinit,
    /// Goes on with what client and server have to say to each other before fullinit is answered.
    AuthResponse,
    /// Ends that.
    AuthResponseComplete,
    /// Leaves PMI.
    Finalize,
    /// Ends the job.
    Abort,
    /// The id of the job.
    JobGetid,
    /// Connects with another job.
    JobConnect,
    /// Undoes that.
    JobDisconnect,
    /// Reads all pairs of a job, so that they can be carried to another server.
    KvsGetall,
    /// Brings all pairs of a job from another server.
    KvsPutall,
    /// One of them.
    KvsPutallPair,
    /// Stores a value.
    KvsPut,
    /// Reads a value.
    KvsGet,
    /// Waits for all ranks; what was put before is visible behind it.
    KvsFence,
    /// Stores a value for the processes of the same node.
    InfoPutnodeattr,
    /// Reads it.
    InfoGetnodeattr,
    /// Reads what the process manager tells about the job.
    InfoGetjobattr,
    /// Publishes a name.
    NamePublish,
    /// Looks up a published name.
    NameLookup,
    /// Withdraws it.
    NameUnpublish,
    /// Starts more processes.
    Spawn,
    /// One of their programs, where each has a message of its own.
    SpawnCmd,
    /// Goes on with a command that is too long for one message.
    Concat,
    /// Exchanges values with neighbours. Not in the draft: Slurm has it, and `PMIX_Ring` of its library.
    Ring,
}

impl Command {
    /// All, in the order of the draft.
    pub const ALL: [Self; 24] = [
        Self::Fullinit,
        Self::AuthResponse,
        Self::AuthResponseComplete,
        Self::Finalize,
        Self::Abort,
        Self::JobGetid,
        Self::JobConnect,
        Self::JobDisconnect,
        Self::KvsGetall,
        Self::KvsPutall,
        Self::KvsPutallPair,
        Self::KvsPut,
        Self::KvsGet,
        Self::KvsFence,
        Self::InfoPutnodeattr,
        Self::InfoGetnodeattr,
        Self::InfoGetjobattr,
        Self::NamePublish,
        Self::NameLookup,
        Self::NameUnpublish,
        Self::Spawn,
        Self::SpawnCmd,
        Self::Concat,
        Self::Ring,
    ];

    /// The value of `cmd` in the request.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fullinit => "fullinit",
            Self::AuthResponse => "auth-response",
            Self::AuthResponseComplete => "auth-response-complete",
            Self::Finalize => "finalize",
            Self::Abort => "abort",
            Self::JobGetid => "job-getid",
            Self::JobConnect => "job-connect",
            Self::JobDisconnect => "job-disconnect",
            Self::KvsGetall => "kvs-getall",
            Self::KvsPutall => "kvs-putall",
            Self::KvsPutallPair => "kvs-putall-pair",
            Self::KvsPut => "kvs-put",
            Self::KvsGet => "kvs-get",
            Self::KvsFence => "kvs-fence",
            Self::InfoPutnodeattr => "info-putnodeattr",
            Self::InfoGetnodeattr => "info-getnodeattr",
            Self::InfoGetjobattr => "info-getjobattr",
            Self::NamePublish => "name-publish",
            Self::NameLookup => "name-lookup",
            Self::NameUnpublish => "name-unpublish",
            Self::Spawn => "spawn",
            Self::SpawnCmd => "spawn-cmd",
            Self::Concat => "concat",
            Self::Ring => "ring",
        }
    }

    /// The value of `cmd` in the response; `None` for abort, which has none, and for what is a part of a request.
    pub fn response_name(self) -> Option<&'static str> {
        Some(match self {
            Self::Fullinit => "fullinit-response",
            Self::Finalize => "finalize-response",
            Self::Abort
            | Self::AuthResponse
            | Self::AuthResponseComplete
            | Self::KvsPutallPair
            | Self::SpawnCmd
            | Self::Concat => return None,
            Self::JobGetid => "job-getid-response",
            Self::JobConnect => "job-connect-response",
            Self::JobDisconnect => "job-disconnect-response",
            Self::KvsGetall => "kvs-getall-response",
            Self::KvsPutall => "kvs-putall-response",
            Self::KvsPut => "kvs-put-response",
            Self::KvsGet => "kvs-get-response",
            Self::KvsFence => "kvs-fence-response",
            Self::InfoPutnodeattr => "info-putnodeattr-response",
            Self::InfoGetnodeattr => "info-getnodeattr-response",
            Self::InfoGetjobattr => "info-getjobattr-response",
            Self::NamePublish => "name-publish-response",
            Self::NameLookup => "name-lookup-response",
            Self::NameUnpublish => "name-unpublish-response",
            Self::Spawn => "spawn-response",
            Self::Ring => "ring-response",
        })
    }

    /// The command of a request.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.name().as_bytes() == name)
    }

    /// The command whose response this is.
    pub fn from_response_name(name: &[u8]) -> Option<Self> {
        Self::from_name(name.strip_suffix(b"-response")?)
    }

    /// Keys of the request but `cmd` and `thrid`, without those that are numbered.
    pub fn request_keys(self) -> &'static [&'static str] {
        match self {
            Self::Fullinit => &["pmijobid", "pmirank", "threaded", "authtype", "authinfo"],
            Self::AuthResponse | Self::AuthResponseComplete => &["authinfo"],
            Self::Finalize | Self::JobGetid | Self::KvsFence => &[],
            Self::Abort => &["isworld", "msg", "exitcode", "message"],
            Self::JobConnect | Self::JobDisconnect | Self::KvsGetall => &["jobid"],
            Self::KvsPutall => &["jobid", "npair"],
            Self::KvsPutallPair => &["key", "val"],
            Self::KvsPut | Self::InfoPutnodeattr => &["key", "value"],
            Self::KvsGet => &["jobid", "srcid", "key"],
            Self::InfoGetnodeattr => &["key", "wait"],
            Self::InfoGetjobattr => &["key"],
            Self::NamePublish => &["name", "port", "infokeycount"],
            Self::NameLookup | Self::NameUnpublish => &["name", "infokeycount"],
            Self::Spawn => &["ncmds", "preputcount", "subcmd", "maxprocs", "argc", "infokeycount"],
            Self::SpawnCmd => &["maxprocs", "argc", "infokeycount"],
            Self::Concat => &["concatid"],
            Self::Ring => &["count", "left", "right"],
        }
    }

    /// Keys of the response but `cmd`, `thrid`, `rc` and `errmsg`, without those that are numbered.
    pub fn response_keys(self) -> &'static [&'static str] {
        match self {
            Self::Fullinit => &[
                "pmi-version",
                "pmi-subversion",
                "rank",
                "size",
                "appnum",
                "spawner-jobid",
                "debugged",
                "pmiverbose",
            ],
            Self::JobGetid => &["jobid"],
            Self::JobConnect => &["kvscopy"],
            Self::KvsGet | Self::InfoGetnodeattr | Self::InfoGetjobattr => &["flag", "found", "value"],
            Self::NameLookup => &["flag", "found", "value", "port"],
            Self::Spawn => &["jobid", "nerrs"],
            Self::Ring => &["ring-count", "ring-left", "ring-right"],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_again() {
        for command in Command::ALL {
            assert_eq!(Command::from_name(command.name().as_bytes()), Some(command));
            if let Some(name) = command.response_name() {
                assert_eq!(Command::from_response_name(name.as_bytes()), Some(command));
            }
        }
        assert_eq!(Command::from_name(b"get"), None);
    }
}
