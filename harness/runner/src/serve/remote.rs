//! Processes on other machines. A command that the user provides, such as a remote shell, starts each process there, and the processes
//! connect through `PMI_PORT`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pmi_wire::node_of;

use super::launch::Executable;

/// Placeholder for the host in a launch command.
const HOST_PLACEHOLDER: &str = "{host}";
/// Placeholder for a single word that contains the command for the shell on the host.
const COMMAND_PLACEHOLDER: &str = "{command}";

/// The hosts that processes run on, and the command that starts them.
#[derive(Debug, Clone)]
pub struct Remote {
    /// One host for each node, in order.
    hosts: Vec<String>,
    /// The command that starts a process on a host.
    launch: Vec<String>,
    /// The address at which the hosts reach the server.
    listen: IpAddr,
}

/// An error in the options for remote processes.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The launch command cannot be split into words.
    #[error("\"{0}\" cannot be split into words: {1}")]
    Words(String, shell_words::ParseError),
    /// The launch command does not contain the placeholder for the command to run.
    #[error(
        "\"{0}\": {COMMAND_PLACEHOLDER} is missing; write it as in 'ssh {HOST_PLACEHOLDER} {COMMAND_PLACEHOLDER}'"
    )]
    NoCommand(String),
    /// A host is empty, or could be mistaken for an option of a command.
    #[error("invalid host \"{0}\"")]
    Host(String),
}

impl Remote {
    /// Parses the user's options.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is invalid.
    pub fn new(hosts: Vec<String>, launch: &str, listen: IpAddr) -> Result<Self, RemoteError> {
        let words = shell_words::split(launch).map_err(|e| RemoteError::Words(launch.to_owned(), e))?;
        if !words.iter().any(|word| word.contains(COMMAND_PLACEHOLDER)) {
            return Err(RemoteError::NoCommand(launch.to_owned()));
        }
        if let Some(host) = hosts.iter().find(|host| host.is_empty() || host.starts_with('-')) {
            return Err(RemoteError::Host(host.clone()));
        }
        Ok(Self { hosts, launch: words, listen })
    }

    /// Returns the number of nodes, which is the number of hosts.
    pub fn nodes(&self) -> u32 {
        self.hosts.len() as u32
    }

    pub(super) fn listen(&self) -> IpAddr {
        self.listen
    }

    /// Returns the local command that starts `rank`, in a group of `size`, on the rank's host, with `environment` added to the rank's
    /// environment variables.
    pub(super) fn program(
        &self,
        program: &Executable,
        rank: u32,
        size: u32,
        environment: &[(String, String)],
        here: &Path,
    ) -> Executable {
        let node = node_of(rank, size, self.nodes()).unwrap_or_default();
        let there = command(program, environment, here);
        let fill = |word: &String| {
            OsString::from(
                word.replace(HOST_PLACEHOLDER, &self.hosts[node as usize])
                    .replace(COMMAND_PLACEHOLDER, &there),
            )
        };
        let mut words = self.launch.iter().map(fill);
        Executable { name: words.next().unwrap_or_default(), args: words.collect(), dir: None, path: None }
    }
}

/// Returns the command for the shell on the host. The command changes to the program's working directory, and runs the program with the
/// variables in `environment`. Each word is quoted, so that the shell does not interpret spaces and quotes in it.
fn command(program: &Executable, environment: &[(String, String)], here: &Path) -> String {
    let dir = program.dir.as_ref().map_or_else(|| here.to_owned(), |dir| here.join(dir));
    let quoted = |text: &[u8]| shell_words::quote(&String::from_utf8_lossy(text)).into_owned();
    let mut text = format!("cd {} && exec env", quoted(dir.as_os_str().as_bytes()));
    let path = program.path.as_ref().map(|path| format!("{}:$PATH", quoted(path.as_bytes())));
    if let Some(path) = path {
        text += &format!(" PATH={path}");
    }
    for (name, value) in environment {
        text += &format!(" {}", quoted(format!("{name}={value}").as_bytes()));
    }
    for word in std::iter::once(&program.name).chain(&program.args) {
        text += &format!(" {}", quoted(word.as_bytes()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(launch: &str) -> Remote {
        let hosts = vec!["a".to_owned(), "b".to_owned()];
        Remote::new(hosts, launch, IpAddr::from([127, 0, 0, 1])).unwrap()
    }

    #[test]
    fn places_ranks_on_hosts_and_quotes_commands() {
        let words: Vec<OsString> = ["./it's $HOME", "a b", "*", ""].map(OsString::from).into();
        let program = Executable::new(&words).unwrap();
        let env = [("PMI_ID".to_owned(), "1; touch x".to_owned())];
        let hosts: Vec<OsString> = (0..4)
            .map(|rank| {
                remote("ssh -q {host} {command}").program(&program, rank, 4, &env, Path::new("/a b")).args[1]
                    .clone()
            })
            .collect();
        assert_eq!(hosts, ["a", "a", "b", "b"]);
        let there = remote("sh -c {command}").program(&program, 0, 4, &env, Path::new("/a b"));
        let parts = shell_words::split(there.args[1].to_str().unwrap()).unwrap();
        let expected =
            ["cd", "/a b", "&&", "exec", "env", "PMI_ID=1; touch x", "./it's $HOME", "a b", "*", ""];
        assert_eq!((there.name.to_str(), parts), (Some("sh"), expected.map(str::to_owned).into()));
    }

    #[test]
    fn rejects_invalid_launch_options() {
        let listen = IpAddr::from([127, 0, 0, 1]);
        assert!(matches!(
            Remote::new(vec!["a".into()], "ssh {host}", listen),
            Err(RemoteError::NoCommand(_))
        ));
        let options = vec!["-oProxyCommand=x".to_owned()];
        assert!(matches!(Remote::new(options, "ssh {host} {command}", listen), Err(RemoteError::Host(_))));
        assert!(matches!(Remote::new(vec![], "ssh '{command}", listen), Err(RemoteError::Words(..))));
    }
}
