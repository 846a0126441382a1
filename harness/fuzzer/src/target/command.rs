//! Commands that start implementations.

use std::path::Path;
use std::process::{Command, Stdio};

/// Returns a command that a script can use. A bare proxy is replaced with the mpiexec of the same installation.
pub(crate) fn plain(command: &[String]) -> Vec<String> {
    let option = |name: &str| {
        let at = command.iter().position(|w| w == name)?;
        command.get(at + 1)
    };
    match option("--proxy").filter(|_| command.iter().any(|w| w == "hydra-upstream")) {
        Some(proxy) => {
            let launcher = Path::new(proxy).with_file_name("mpiexec.hydra");
            [&*launcher.to_string_lossy(), "-n", "{ranks}", "{agent}"].map(String::from).to_vec()
        }
        None => command.to_vec(),
    }
}

/// Returns the first lines of a program's output.
pub(crate) fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    output.map_or(String::new(), |o| {
        String::from_utf8_lossy(&o.stdout).lines().take(8).collect::<Vec<_>>().join("\n")
    })
}
