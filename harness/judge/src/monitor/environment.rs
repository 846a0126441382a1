//! The environment of a new process, and the messages that provide the process with its connection and its rank.

use super::state::{Monitor, SingletonState};
use crate::event::Bytes;
use crate::observation::quote_bytes;
use crate::offer::OFFER_VARIABLES;
use pmi_scenario::ids;
use pmi_wire::Proc;
use pmi_wire::port::{Greeting, address};
use pmi_wire::singleton::{Caller, PMI_ARGS_OPTION, SingletonInfo, check_request, check_response};

impl Monitor {
    pub(super) fn child_started(&mut self, p: Proc) {
        let before = self.starts_too_many();
        self.processes_spawned += 1;
        if self.starts_too_many() && !before {
            let expected = format!("no more processes than requested ({})", self.processes_requested);
            self.server_error(
                p,
                ids::RFC13_SPAWN_MAXPROCS,
                expected,
                format!("{} and more", self.processes_spawned),
            );
        }
    }

    /// Judges the response to a process that has connected through `PMI_PORT`.
    pub(super) fn greeted(&mut self, p: Proc, received: &[u8]) {
        let greeting = match Greeting::parse(received) {
            Ok(greeting) => greeting,
            Err(error) => {
                return self.server_error(p, ids::PMI_PORT_LINES, error.to_string(), quote_bytes(received));
            }
        };
        let group = self.group(p.group);
        let size = if p.group == 0 { group.size } else { group.record_size(Some(greeting.size)) };
        let twice = std::mem::replace(&mut self.rank(p).started, true);
        if size == 0 || (p.group != 0 && self.spawns_unknown) {
            return;
        }
        if greeting.size != size {
            self.server_error(p, ids::PMI_PORT_SIZE, format!("size={size}"), quote_bytes(received));
        }
        if greeting.rank != p.rank || twice || greeting.rank >= size {
            let expected = format!("a unique rank from 0 to {}", size.saturating_sub(1));
            self.server_error(p, ids::PMI_PORT_RANK, expected, quote_bytes(received));
        }
    }

    /// Judges the arguments with which a process has started its own process manager.
    pub(super) fn manager_started(&mut self, p: Proc, args: &[Bytes]) {
        let words: Vec<_> = args.iter().map(|arg| String::from_utf8_lossy(&arg.0)).collect();
        let command = || format!("mpiexec {}", words.join(" "));
        let after = words.iter().position(|word| word == PMI_ARGS_OPTION).map_or(words.len(), |at| at + 1);
        if Caller::parse(&words[after..]).is_none() {
            let expected =
                format!("{PMI_ARGS_OPTION} followed by a port, an interface, a key and a process id");
            self.client_misuse(p, ids::SINGLETON_CLIENT_ARGUMENTS, expected, command());
        }
        if std::mem::replace(&mut self.rank(p).started_manager, true) {
            self.client_misuse(p, ids::SINGLETON_CLIENT_ONCE, "one process manager", command());
        }
    }

    /// Judges the messages between a process and the process manager that the process has requested (singleton init).
    pub(super) fn singinit(&mut self, p: Proc, request: &[u8], answer: &[u8], reply: &[u8]) {
        let line = |text: &[u8]| text.strip_suffix(b"\n").map(<[u8]>::to_vec).ok_or("a line");
        self.rank(p).singinit = Some(SingletonState::Failed);
        if request.is_empty() {
            let expected = "a connection to the port in -pmi_args, and cmd=singinit on this connection";
            return self.server_error(p, ids::SINGLETON_CONNECTS, expected, "nothing");
        }
        if let Err(expected) = line(request).and_then(|request| check_request(&request)) {
            return self.server_error(p, ids::SINGLETON_ASKS, expected, quote_bytes(request));
        }
        if let Err(expected) = line(answer).and_then(|answer| check_response(&answer)) {
            return self.client_error(p, ids::SINGLETON_CLIENT_ANSWERS, expected, quote_bytes(answer));
        }
        match line(reply).and_then(|reply| SingletonInfo::parse(&reply)) {
            Err(expected) => self.server_error(p, ids::SINGLETON_INFO, expected, quote_bytes(reply)),
            Ok(info) => self.rank(p).singinit = Some(SingletonState::Done(info.kvsname)),
        }
    }

    pub(super) fn environment<'a>(
        &mut self,
        p: Proc,
        env: impl Fn(&str) -> Option<&'a str>,
        bad_fd: Option<&str>,
    ) {
        let seen = |name: &str| match env(name) {
            Some(value) => format!("{name}={value}"),
            None => format!("{name} is not set"),
        };
        let number = |name: &str| env(name).and_then(|v| v.parse::<u32>().ok());
        if let Some(singinit) = &self.rank(p).singinit {
            // The environment of this process was set before the process had a process manager, so the variables are not judged.
            if let (SingletonState::Done(_), Some(why)) = (singinit, bad_fd) {
                let expected =
                    "three more connections, for standard input, output and error, because of stdio=yes";
                self.server_error(p, ids::SINGLETON_STREAMS, expected, why);
            }
            return;
        }
        let has_variable = OFFER_VARIABLES.iter().any(|name| env(name).is_some());
        // A process may have a connection even if its environment contains none of the variables.
        self.wire_offered = Some(self.wire_offered.unwrap_or_default() || bad_fd.is_none() || has_variable);
        if bad_fd.is_none() && !has_variable {
            // This process was offered no connection, so it must request a process manager itself.
            return;
        }
        if env("PMI_FD").is_none()
            && let Some(port) = env("PMI_PORT")
        {
            let id = number("PMI_ID").is_some();
            if address(port).is_none() || !id {
                let expected = "PMI_PORT=HOST:PORT and PMI_ID, a number";
                let seen = format!("{}, {}", seen("PMI_PORT"), seen("PMI_ID"));
                self.server_error(p, ids::PMI_PORT_ENVIRONMENT, expected, seen);
            } else if let Some(why) = bad_fd {
                let expected =
                    "a connection to the address in PMI_PORT, and an answer to initack on this connection";
                self.server_error(p, ids::PMI_PORT_ANSWERED, expected, why);
            }
            return;
        }
        if number("PMI_FD").is_none() {
            self.server_error(
                p,
                ids::RFC13_ENV_PMI_FD,
                "PMI_FD is set to a file descriptor number",
                seen("PMI_FD"),
            );
        } else if let Some(why) = bad_fd {
            let expected = "the descriptor that PMI_FD names is open and connected to the process manager";
            self.server_error(p, ids::RFC13_CONNECTION_PRECONNECTED, expected, why);
        }
        let group = self.group(p.group);
        let size = if p.group == 0 { group.size } else { group.record_size(number("PMI_SIZE")) };
        if size == 0 || (p.group != 0 && self.spawns_unknown) {
            // The request for this group is unknown or outside RFC 13, so the group's size and ranks cannot be checked.
            return;
        }
        if number("PMI_SIZE") != Some(size) {
            self.server_error(p, ids::RFC13_ENV_PMI_SIZE, format!("PMI_SIZE={size}"), seen("PMI_SIZE"));
        }
        let twice = std::mem::replace(&mut self.rank(p).started, true);
        if number("PMI_RANK") != Some(p.rank) || p.rank >= size || twice {
            let expected = format!(
                "each of the {size} processes has a unique PMI_RANK from 0 to {}",
                size.saturating_sub(1)
            );
            self.server_error(p, ids::RFC13_ENV_PMI_RANK, expected, seen("PMI_RANK"));
        }
        let (fits, expected) = if p.group == 0 {
            (env("PMI_SPAWNED").is_none(), "PMI_SPAWNED is not set, since the program was not spawned")
        } else {
            (env("PMI_SPAWNED") == Some("1"), "PMI_SPAWNED=1, since the program was spawned")
        };
        if !fits {
            self.server_error(p, ids::RFC13_ENV_PMI_SPAWNED, expected, seen("PMI_SPAWNED"));
        }
    }
}
