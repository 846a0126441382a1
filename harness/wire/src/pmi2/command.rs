//! The commands of PMI-2.

use crate::protocol::{Exchange, FRAMES, Field};

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

    /// The command's row in the protocol table.
    pub fn exchange(self) -> &'static Exchange {
        &FRAMES[self as usize]
    }

    /// The value of `cmd` in the request.
    pub fn name(self) -> &'static str {
        self.exchange().request
    }

    /// The value of `cmd` in the response; `None` for abort, which has none, and for a message that is part of a request.
    pub fn response_name(self) -> Option<&'static str> {
        self.exchange().response
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
    pub fn request_keys(self) -> impl Iterator<Item = &'static str> {
        keys(self.exchange().arguments)
    }

    /// Keys of the response but `cmd`, `thrid`, `rc` and `errmsg`, without those that are numbered.
    pub fn response_keys(self) -> impl Iterator<Item = &'static str> {
        keys(self.exchange().results)
    }
}

fn keys(fields: &'static [Field]) -> impl Iterator<Item = &'static str> {
    fields.iter().filter(|field| !field.numbered).map(|field| field.key)
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
