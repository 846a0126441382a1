//! The commands of PMI-2.

use crate::protocol::{Exchange, FRAMES, Field};

/// A command of the draft: a request and, except for abort, its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Command {
    /// Starts PMI-2, after the same init line as in PMI-1.
    Fullinit,
    /// Continues the authentication, before fullinit is answered.
    AuthResponse,
    /// Completes the authentication.
    AuthResponseComplete,
    /// Leaves PMI.
    Finalize,
    /// Ends the job.
    Abort,
    /// Gets the id of the job.
    JobGetid,
    /// Connects with another job.
    JobConnect,
    /// Disconnects from it.
    JobDisconnect,
    /// Reads all pairs of a job, in order to copy them to another server.
    KvsGetall,
    /// Adds all pairs of a job that come from another server.
    KvsPutall,
    /// Sends one of these pairs.
    KvsPutallPair,
    /// Stores a value.
    KvsPut,
    /// Reads a value.
    KvsGet,
    /// Waits for all ranks; values that were put before it are visible after it.
    KvsFence,
    /// Stores a value for the processes on the same node.
    InfoPutnodeattr,
    /// Reads such a value.
    InfoGetnodeattr,
    /// Reads an attribute of the job.
    InfoGetjobattr,
    /// Publishes a name.
    NamePublish,
    /// Looks up a published name.
    NameLookup,
    /// Withdraws a published name.
    NameUnpublish,
    /// Starts more processes.
    Spawn,
    /// Describes one program of a spawn, if each program has a separate message.
    SpawnCmd,
    /// Continues a command that is too long for one message.
    Concat,
    /// Exchanges values with neighbours. Not in the draft; Slurm supports it through its library's `PMIX_Ring`.
    Ring,
}

impl Command {
    /// All commands, in the order of the draft.
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

    /// Returns the command's row in the protocol table.
    pub fn exchange(self) -> &'static Exchange {
        &FRAMES[self as usize]
    }

    /// Returns the value of `cmd` in the request.
    pub fn name(self) -> &'static str {
        self.exchange().request
    }

    /// Returns the value of `cmd` in the response; `None` for abort, which has no response, and for a message that is part of a request.
    pub fn response_name(self) -> Option<&'static str> {
        self.exchange().response
    }

    /// Returns the command with this name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.name().as_bytes() == name)
    }

    /// Returns the command whose response has this name.
    pub fn from_response_name(name: &[u8]) -> Option<Self> {
        Self::from_name(name.strip_suffix(b"-response")?)
    }

    /// Returns the keys of the request except `cmd` and `thrid`, without numbered ones.
    pub fn request_keys(self) -> impl Iterator<Item = &'static str> {
        keys(self.exchange().arguments)
    }

    /// Returns the keys of the response except `cmd`, `thrid`, `rc` and `errmsg`, without numbered ones.
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
    fn command_names_round_trip() {
        for command in Command::ALL {
            assert_eq!(Command::from_name(command.name().as_bytes()), Some(command));
            if let Some(name) = command.response_name() {
                assert_eq!(Command::from_response_name(name.as_bytes()), Some(command));
            }
        }
        assert_eq!(Command::from_name(b"get"), None);
    }
}
