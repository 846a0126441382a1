//! What `--server` means: a command template, a well-known launcher, or a profile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::lang::ast::Need;

/// Why an implementation cannot be started as asked. The message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ImplementationError(String);

/// How an implementation is started, and what it claims.
#[derive(Debug, Clone)]
pub struct Implementation {
    /// As the user gave it, or the profile's name.
    pub label: String,
    /// The command for one node, with `{ranks}` and `{agent}`.
    command: Vec<String>,
    /// The command for several nodes, with `{nodes}` or `{hosts}` besides.
    command_nodes: Option<Vec<String>>,
    /// Added to the environment.
    pub env: BTreeMap<String, String>,
    /// Optional operations that it offers (`true`) or lacks (`false`); others are found out by asking.
    pub claims: BTreeMap<Need, bool>,
    /// Its version, where it is known.
    pub version: Option<semver::Version>,
    /// Whether it might answer when an alarm goes off. Hydra catches alarms, and uses them for its own time limits only.
    pub alarms: bool,
    /// Deviations that belong to it.
    pub deviations: Option<PathBuf>,
    /// Shell commands run before the first and after the last scenario.
    pub setup: Option<String>,
    /// See `setup`.
    pub teardown: Option<String>,
}

/// A profile file: everything about an implementation in one place.
///
/// ```toml
/// name = "MPICH 5.0.2"
/// command = "mpiexec.hydra -n {ranks} {agent}"
/// command-nodes = "mpiexec.hydra -launcher fork -iface lo -hosts {hosts} -n {ranks} {agent}"
/// offers = ["spawn", "names"]
/// deviations = "deviations.toml"      # relative to the profile
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Profile {
    /// Shown in reports.
    name: String,
    /// See [`Implementation`].
    command: String,
    /// See [`Implementation`].
    command_nodes: Option<String>,
    /// Optional operations that it has.
    #[serde(default)]
    offers: BTreeSet<String>,
    /// Optional operations that it lacks.
    #[serde(default)]
    lacks: BTreeSet<String>,
    /// Added to the environment.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Told to the deviations.
    version: Option<semver::Version>,
    /// Relative to the profile.
    deviations: Option<PathBuf>,
    /// Shell command run before the first scenario.
    setup: Option<String>,
    /// Shell command run after the last scenario.
    teardown: Option<String>,
}

const PLACEHOLDERS: &str = "the placeholders are {agent}, {ranks}, {nodes} and {hosts}";

/// Reads `spawn` or `names`.
pub fn need(word: &str) -> Result<Need, ImplementationError> {
    match word {
        "spawn" => Ok(Need::Spawn),
        "names" => Ok(Need::Names),
        _ => Err(ImplementationError(format!(
            "\"{word}\" is no optional operation; there are spawn and names"
        ))),
    }
}

fn split(command: &str) -> Result<Vec<String>, ImplementationError> {
    let words = shell_words::split(command).map_err(|e| {
        ImplementationError(format!("the command \"{command}\" cannot be split into words: {e}"))
    })?;
    if words.is_empty() {
        return Err(ImplementationError("the command is empty".into()));
    }
    Ok(words)
}

/// Checks the placeholders of a template.
fn template(command: &str) -> Result<Vec<String>, ImplementationError> {
    let words = split(command)?;
    for word in &words {
        let mut rest = word.as_str();
        while let Some((_, tail)) = rest.split_once('{') {
            let Some((name, after)) = tail.split_once('}') else { break };
            if !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_lowercase())
                && !["agent", "ranks", "nodes", "hosts"].contains(&name)
            {
                return Err(ImplementationError(format!(
                    "unknown placeholder {{{name}}} in \"{command}\": {PLACEHOLDERS}"
                )));
            }
            rest = after;
        }
    }
    Ok(words)
}

fn has(words: &[String], placeholder: &str) -> bool {
    words.iter().any(|w| w.contains(placeholder))
}

impl Implementation {
    /// The reference process manager of this binary.
    pub fn reference(binary: &Path, extra: &[String]) -> Self {
        let words = |s: &[&str]| s.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let mut command = vec![binary.to_string_lossy().into_owned()];
        command.extend(words(&["serve", "-n", "{ranks}", "--nodes", "{nodes}"]));
        command.extend_from_slice(extra);
        command.extend(words(&["--", "{agent}"]));
        Self {
            label: "the built-in reference process manager".into(),
            command: command.clone(),
            command_nodes: Some(command),
            env: BTreeMap::new(),
            claims: BTreeMap::from([(Need::Spawn, true), (Need::Names, true)]),
            version: None,
            alarms: true,
            deviations: None,
            setup: None,
            teardown: None,
        }
    }

    /// Reads what was given to `--server`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what to write instead.
    pub fn from_argument(argument: &str) -> Result<Self, ImplementationError> {
        if let Some(profile) = argument.strip_prefix('@') {
            return Self::from_profile(profile);
        }
        let words = template(argument)?;
        let mut this = Self {
            label: argument.to_owned(),
            command: words.clone(),
            command_nodes: None,
            env: BTreeMap::new(),
            claims: BTreeMap::new(),
            version: None,
            alarms: true,
            deviations: None,
            setup: None,
            teardown: None,
        };
        if has(&words, "{agent}") {
            if has(&words, "{nodes}") || has(&words, "{hosts}") {
                this.command_nodes = Some(words);
            }
            return Ok(this);
        }
        this.well_known(words)?;
        Ok(this)
    }

    /// Completes the command line of a launcher that we know.
    fn well_known(&mut self, words: Vec<String>) -> Result<(), ImplementationError> {
        let program =
            Path::new(&words[0]).file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        let with =
            |extra: &[&str]| words.iter().cloned().chain(extra.iter().map(|s| (*s).to_owned())).collect();
        let tail = ["-n", "{ranks}", "{agent}"];
        match program.as_str() {
            "mpiexec.gforker" => self.command = with(&tail),
            _ if program.starts_with("mpiexec") || program.starts_with("mpirun") => {
                self.command = with(&tail);
                if let Some(version) = hydra_version(&words[0]) {
                    self.version = version;
                    self.alarms = false;
                    // Addresses rather than names: Hydra would ask a name server.
                    let nodes = [
                        "-launcher",
                        "fork",
                        "-iface",
                        "lo",
                        "-hosts",
                        "{hosts}",
                        "-n",
                        "{ranks}",
                        "{agent}",
                    ];
                    self.command_nodes = Some(with(&nodes));
                    self.claims = BTreeMap::from([(Need::Spawn, true), (Need::Names, true)]);
                }
            }
            "srun" => self.command = with(&["--mpi=pmi2", "-n", "{ranks}", "{agent}"]),
            "flux" => self.command = with(&["run", "-n", "{ranks}", "{agent}"]),
            _ => {
                return Err(ImplementationError(format!(
                    "\"{program}\" is no launcher that we know: say where the ranks and our agent go, as in \
                     --server '{} -n {{ranks}} {{agent}}'; {PLACEHOLDERS}",
                    self.label
                )));
            }
        }
        Ok(())
    }

    /// `@NAME`: the file NAME, NAME.toml or golden/NAME/profile.toml.
    fn from_profile(name: &str) -> Result<Self, ImplementationError> {
        let tried = [
            PathBuf::from(name),
            PathBuf::from(format!("{name}.toml")),
            Path::new("golden").join(name).join("profile.toml"),
        ];
        let Some(path) = tried.iter().find(|p| p.is_file()) else {
            let tried = tried.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ");
            return Err(ImplementationError(format!("there is no profile @{name}; tried {tried}")));
        };
        let at = |e: &dyn std::fmt::Display| ImplementationError(format!("{}: {e}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| at(&e))?;
        let profile: Profile = toml::from_str(&text).map_err(|e| at(&e))?;
        let mut this = Self::from_argument(&profile.command).map_err(|e| at(&e))?;
        this.label = profile.name;
        if let Some(nodes) = profile.command_nodes {
            this.command_nodes = Some(template(&nodes).map_err(|e| at(&e))?);
        }
        for (words, offered) in [(profile.offers, true), (profile.lacks, false)] {
            for word in words {
                this.claims.insert(need(&word).map_err(|e| at(&e))?, offered);
            }
        }
        this.env = profile.env;
        this.version = profile.version.or(this.version);
        this.deviations = profile.deviations.map(|d| path.parent().unwrap_or(Path::new("")).join(d));
        (this.setup, this.teardown) = (profile.setup, profile.teardown);
        Ok(this)
    }

    /// Sets the command for several nodes.
    ///
    /// # Errors
    ///
    /// What is wrong with the template.
    pub fn set_command_nodes(&mut self, command: &str) -> Result<(), ImplementationError> {
        let words = template(command)?;
        if !has(&words, "{agent}") || !(has(&words, "{nodes}") || has(&words, "{hosts}")) {
            let what = format!("\"{command}\" needs {{agent}}, and {{nodes}} or {{hosts}}; {PLACEHOLDERS}");
            return Err(ImplementationError(what));
        }
        self.command_nodes = Some(words);
        Ok(())
    }

    /// Whether it can be started on so many nodes.
    pub fn can_span(&self, nodes: u32) -> bool {
        nodes <= 1 || self.command_nodes.is_some()
    }

    /// The command line for this many ranks and nodes.
    pub fn command(&self, ranks: u32, nodes: u32, agent: &Path) -> Vec<String> {
        let words = match &self.command_nodes {
            Some(words) if nodes > 1 => words,
            _ => &self.command,
        };
        let agent = agent.to_string_lossy();
        words
            .iter()
            .map(|word| {
                word.replace("{agent}", &agent)
                    .replace("{ranks}", &ranks.to_string())
                    .replace("{nodes}", &nodes.to_string())
                    .replace("{hosts}", &hosts(ranks, nodes))
            })
            .collect()
    }
}

/// Loopback addresses with the number of ranks for each, in blocks: `127.0.0.1:2,127.0.0.2:1`.
fn hosts(ranks: u32, nodes: u32) -> String {
    let placed = pmi_reference::place(ranks, nodes);
    (0..nodes)
        .map(|node| format!("127.0.0.{}:{}", node + 1, placed.iter().filter(|n| **n == node).count()))
        .collect::<Vec<_>>()
        .join(",")
}

/// Asks a launcher for its version; `None` if it is not MPICH's Hydra, which says so there.
fn hydra_version(program: &str) -> Option<Option<semver::Version>> {
    let run =
        duct::cmd(program, ["--version"]).stdin_null().stderr_null().stdout_capture().unchecked().start();
    let handle = run.ok()?;
    let Ok(Some(output)) = handle.wait_timeout(Duration::from_secs(5)) else {
        let _ = handle.kill();
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.lines().find_map(|l| l.trim().strip_prefix("Version:"));
    text.to_ascii_lowercase()
        .contains("hydra")
        .then(|| version.and_then(|v| semver::Version::parse(v.trim()).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_and_known_launchers_become_commands() {
        let server = Implementation::from_argument("pm -n {ranks} -- {agent} 'a b'").unwrap();
        assert_eq!(server.command(3, 1, Path::new("/x/agent")), ["pm", "-n", "3", "--", "/x/agent", "a b"]);
        assert!(!server.can_span(2));
        let srun = Implementation::from_argument("srun -N1").unwrap();
        assert_eq!(srun.command(2, 1, Path::new("a")), ["srun", "-N1", "--mpi=pmi2", "-n", "2", "a"]);
        let hosts = Implementation::from_argument("pm {hosts} {ranks} {agent}").unwrap();
        assert_eq!(hosts.command(3, 2, Path::new("a")), ["pm", "127.0.0.1:2,127.0.0.2:1", "3", "a"]);
    }

    #[test]
    fn mistakes_are_told_with_the_remedy() {
        for (argument, told) in [
            ("", "empty"),
            ("pm {rank} {agent}", "unknown placeholder {rank}"),
            ("./my-pm", "{ranks} {agent}"),
            ("pm 'x", "cannot be split"),
            ("@nowhere", "golden/nowhere/profile.toml"),
        ] {
            let error = Implementation::from_argument(argument).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
