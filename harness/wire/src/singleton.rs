//! Singleton init: a process that was started without a process manager requests one.
//!
//! The process listens on a port and starts `mpiexec -pmi_args PORT INTERFACE KEY PID`, which connects to this port. The process manager
//! sends `cmd=singinit`. The process answers with its version, and states whether its standard streams should be forwarded. The process
//! manager confirms with `cmd=singinit_info`, which contains the name of the keyval space. From then on, the protocol is the same as over
//! PMI_FD, in a group of one process. No specification describes this exchange; this module follows MPICH's client and servers.

use crate::message::{Message, ValueReading};
use crate::protocol::Version;

/// The option with which a process starts a process manager.
pub const PMI_ARGS_OPTION: &str = "-pmi_args";

/// The values that MPICH's client passes as the interface and the key, which process managers ignore.
pub const UNUSED_ARGUMENTS: [&str; 2] = ["default_interface", "default_key"];

/// Maximum length of a line in bytes.
pub const MAX_LINE: usize = 1024;

/// Number of additional connections from a process manager that forwards the standard streams.
pub const STREAMS: usize = 3;

/// The process manager's first message, without the newline.
pub const REQUEST: &str = "cmd=singinit authtype=none";

/// The response of MPICH's client, without the newline.
pub const RESPONSE: &str = "cmd=singinit pmi_version=1 pmi_subversion=1 stdio=yes authtype=none";

/// The process manager's last message of singleton init.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SingletonInfo {
    /// The name of the keyval space.
    pub kvsname: Vec<u8>,
    /// True if the process manager opens connections for the standard streams.
    pub streams: bool,
}

/// Checks that MPICH's client accepts a line as the first message. The line must not request authentication.
///
/// # Errors
///
/// Returns an error that describes the expected line if the line is invalid.
pub fn check_request(line: &[u8]) -> Result<(), &'static str> {
    let wanted = "cmd=singinit with authtype=none";
    let message = Message::parse(line, ValueReading::ToEndOfLine).map_err(|_| wanted)?;
    let fits =
        message.get("cmd") == Some(b"singinit") && message.get("authtype").is_some_and(|a| a == b"none");
    if fits { Ok(()) } else { Err(wanted) }
}

/// Parses a process's response to [`REQUEST`], and returns the version in it.
///
/// # Errors
///
/// Returns an error that describes the expected line if the line is not a valid response.
pub fn check_response(line: &[u8]) -> Result<Version, &'static str> {
    let wanted = "cmd=singinit with pmi_version, pmi_subversion, stdio=yes or no, and authtype=none";
    let message = Message::parse(line, ValueReading::ToEndOfLine).map_err(|_| wanted)?;
    let number = |key| message.get(key).and_then(crate::grammar::parse_uint).ok_or(wanted);
    let offered = Version { version: number("pmi_version")?, subversion: number("pmi_subversion")? };
    let fits = message.get("cmd") == Some(b"singinit")
        && matches!(message.get("stdio"), Some(b"yes" | b"no"))
        && message.get("authtype").is_some_and(|a| a == b"none");
    if fits { Ok(offered) } else { Err(wanted) }
}

impl SingletonInfo {
    /// Returns the message as a line without the newline.
    pub fn line(&self) -> Vec<u8> {
        self.answer("yes")
    }

    /// Returns the line that refuses a process with an unsupported version, in gforker's form.
    pub fn refusal(&self) -> Vec<u8> {
        self.answer("no")
    }

    fn answer(&self, versionok: &str) -> Vec<u8> {
        let stdio = if self.streams { "yes" } else { "no" };
        let line = format!("cmd=singinit_info versionok={versionok} stdio={stdio} kvsname=");
        [line.as_bytes(), &self.kvsname].concat()
    }

    /// Parses a line as MPICH's client does.
    ///
    /// # Errors
    ///
    /// Returns an error that describes the expected line if the line is invalid.
    pub fn parse(line: &[u8]) -> Result<Self, &'static str> {
        let wanted = "cmd=singinit_info with versionok=yes, stdio=yes or no, and kvsname";
        let message = Message::parse(line, ValueReading::ToEndOfLine).map_err(|_| wanted)?;
        let streams = match message.get("stdio") {
            Some(b"yes") => true,
            Some(b"no") => false,
            _ => return Err(wanted),
        };
        let fits = message.get("cmd") == Some(b"singinit_info") && message.get("versionok") == Some(b"yes");
        let kvsname = message.get("kvsname").filter(|name| fits && !name.is_empty()).ok_or(wanted)?;
        Ok(Self { kvsname: kvsname.to_vec(), streams })
    }
}

/// The process that starts a process manager, as described by the arguments of [`PMI_ARGS_OPTION`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The port on which the process listens.
    pub port: u16,
    /// The process id in the arguments. MPICH's client passes the id of the process manager.
    pub pid: i32,
}

impl Caller {
    /// Parses the arguments of [`PMI_ARGS_OPTION`]: port, interface, key and process id.
    pub fn parse(words: &[impl AsRef<str>]) -> Option<Self> {
        let [port, _interface, _key, pid] = words else { return None };
        let port = port.as_ref().parse().ok().filter(|port| *port != 0)?;
        Some(Self { port, pid: pid.as_ref().parse().ok().filter(|pid| *pid > 0)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singleton_messages_round_trip() {
        assert_eq!(check_request(REQUEST.as_bytes()), Ok(()));
        assert_eq!(check_response(RESPONSE.as_bytes()), Ok(Version::V1_1));
        let info = SingletonInfo { kvsname: b"kvs_1".to_vec(), streams: false };
        assert_eq!(SingletonInfo::parse(&info.line()), Ok(info));
        assert_eq!(
            Caller::parse(&["4242", "default_interface", "default_key", "17"]),
            Some(Caller { port: 4242, pid: 17 })
        );
    }

    #[test]
    fn parses_messages_from_real_peers() {
        // Messages from gforker 4.3.2 and Hydra 4.3.2.
        let gforker = b"cmd=singinit pmi_version=1 pmi_subversion=1 stdio=no authtype=none";
        assert_eq!(check_request(gforker), Ok(()));
        let hydra = b"cmd=singinit_info versionok=yes stdio=no kvsname=kvs_3320_0_855669298_vm";
        assert!(SingletonInfo::parse(hydra).is_ok_and(|info| info.kvsname == b"kvs_3320_0_855669298_vm"));
    }

    #[test]
    fn rejects_invalid_singleton_messages() {
        assert!(check_request(b"cmd=singinit authtype=md5").is_err());
        assert!(check_request(b"cmd=init").is_err());
        let info = SingletonInfo { kvsname: b"k".to_vec(), streams: false };
        assert!(SingletonInfo::parse(&info.refusal()).is_err());
        assert!(check_response(b"cmd=singinit pmi_version=1 stdio=no authtype=none").is_err());
        for wrong in [
            "cmd=singinit_info versionok=no stdio=no kvsname=k",
            "cmd=singinit_info versionok=yes stdio=no",
            "cmd=singinit_info versionok=yes kvsname=k",
            "cmd=singinit versionok=yes stdio=no kvsname=k",
        ] {
            assert!(SingletonInfo::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert_eq!(Caller::parse(&["0", "i", "k", "1"]), None);
        assert_eq!(Caller::parse(&["1", "i", "k"]), None);
    }
}
