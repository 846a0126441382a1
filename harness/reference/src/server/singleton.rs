//! Connections that begin with a handshake: connections through `PMI_PORT`, and the connection of a singleton (MPICH,
//! `PMI_InitSingleton`). A singleton is a process that was started without a process manager and then requests one.

use pmi_wire::singleton::{REQUEST, SingletonInfo, check_response};
use pmi_wire::{ConnectionMethod, Proc, Version};

use super::state::Server;

impl Server {
    /// Returns the method by which processes get their connections.
    pub fn connection_method(&self) -> ConnectionMethod {
        self.config.connection_method
    }

    /// Returns the first message to send on a connection whose process is not known yet. The message is empty unless the process is a
    /// singleton.
    pub fn welcome(&self) -> Vec<u8> {
        match self.config.connection_method {
            ConnectionMethod::Singleton => [REQUEST.as_bytes(), b"\n"].concat(),
            ConnectionMethod::Fd | ConnectionMethod::Port => Vec::new(),
        }
    }

    /// Returns the process whose first message is `line`, and the response. Returns `None` if `line` does not identify a process of the
    /// job. The driver must then close the connection.
    pub fn admit(&mut self, line: &[u8]) -> Option<(Proc, Vec<u8>)> {
        match self.config.connection_method {
            ConnectionMethod::Port => self.admit_by_id(line),
            ConnectionMethod::Singleton => self.admit_singleton(line),
            ConnectionMethod::Fd => None,
        }
    }

    /// Answers the singleton, but only once (`PMII_singinit` in MPICH's client). The response is a refusal if the server would refuse the
    /// offered version in init.
    fn admit_singleton(&mut self, line: &[u8]) -> Option<(Proc, Vec<u8>)> {
        let offered = check_response(line).ok()?;
        let p = Proc { group: 0, rank: 0 };
        let again = std::mem::replace(&mut self.process_mut(p).is_identified, true);
        // The process keeps its standard streams, so the server opens no connections for them.
        let info = SingletonInfo { kvsname: self.groups[0].kvsname.clone(), streams: false };
        let received = if offered < Version::V1_0 { info.refusal() } else { info.line() };
        (!again).then(|| (p, [received, b"\n".to_vec()].concat()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, GroupSpec, ServerAction};

    #[test]
    fn singinit_accepts_the_versions_that_init_accepts() {
        for (version, subversion, ok) in [(0, 9, "no"), (1, 1, "yes"), (9, 0, "yes")] {
            let mut server =
                Server::new(Config { connection_method: ConnectionMethod::Singleton, ..Config::default() });
            server.add_group(GroupSpec { programs: vec![1], ..GroupSpec::default() });
            let offered = format!("pmi_version={version} pmi_subversion={subversion}");
            let line = format!("cmd=singinit {offered} stdio=no authtype=none");
            let (p, response) = server.admit(line.as_bytes()).unwrap();
            let response = String::from_utf8(response).unwrap();
            assert!(response.starts_with(&format!("cmd=singinit_info versionok={ok} ")), "{response}");
            server.receive(p, format!("cmd=init {offered}\n").as_bytes());
            let Some(ServerAction::Send { bytes, .. }) = server.next_action() else { panic!("no answer") };
            let is_answered = bytes.starts_with(b"cmd=response_to_init rc=0 ");
            assert_eq!(is_answered, ok == "yes", "{}", bytes.escape_ascii());
        }
    }
}
