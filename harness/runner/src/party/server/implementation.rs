//! Interprets `--server`: a command template, a well-known launcher or a bare proxy. `profile` reads the profiles.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::party::proxy::{detect, family_choices};
use pmi_judge::offer::offering_option;
use pmi_judge::result::STEPS_WAIT_HELP;
use pmi_judge::verdict::Strictness;
use pmi_scenario::ast::{Capability, Dialect};
use pmi_wire::ConnectionMethod;
use pmi_wire::grammar::is_uint;
use pmi_wire::hydra::Family;
use pmi_wire::singleton::{PMI_ARGS_OPTION, UNUSED_ARGUMENTS};

/// The error for an implementation that cannot be started as requested. The message contains a remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ImplementationError(pub(super) String);

/// The error for a bare proxy that cannot be judged. The message contains the expected and the actual behaviour, and an option to try.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProxyCheckError(String);

/// The source of an implementation's recorded deviations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedDeviations {
    /// A user's file.
    File(PathBuf),
    /// A file embedded in this binary: its path below `golden`, and its text.
    Builtin(PathBuf, &'static str),
}

/// An implementation under test, with its command line and the claims about it.
#[derive(Debug, Clone, Default)]
pub struct Implementation {
    /// The command as the user gave it, or the profile's name.
    pub label: String,
    /// The command for one node, with `{ranks}` and `{agent}`.
    pub(super) command: Vec<String>,
    /// The command for several nodes, which also contains `{nodes}` or `{hosts}`.
    pub(super) command_nodes: Option<Vec<String>>,
    /// The path of a bare proxy. [`Implementation::play_upstream`] completes the command.
    proxy: Option<PathBuf>,
    /// The family of the proxy, which determines its upstream protocol. `None` until [`Implementation::play_upstream`] is called.
    family: Option<Family>,
    /// Environment variables that are added for the implementation.
    pub env: BTreeMap<String, String>,
    /// Optional operations that the implementation supports (`true`) or lacks (`false`). All others are probed.
    pub claimed_capabilities: BTreeMap<Capability, bool>,
    /// The version of the implementation, if known.
    pub version: Option<semver::Version>,
    /// True if SIGALRM may make the implementation act. Hydra catches SIGALRM, but uses it only for its own time limits.
    pub uses_alarms: bool,
    /// The recorded deviations of the implementation.
    pub deviations: Option<RecordedDeviations>,
    /// Maximum number of processes of a launch, if there is a limit.
    pub max_ranks: Option<u32>,
    /// Maximum number of nodes of a launch, if there is a limit.
    pub max_nodes: Option<u32>,
    /// Maximum time from the launch until the processes report to the runner, if it differs from the time limit of a step.
    pub start_timeout: Option<Duration>,
    /// The kind of connection that the processes of a launch receive.
    pub connection_method: ConnectionMethod,
    /// The command that serves a process that another program has started, if supported. Contains `{port}` and `{pid}`.
    singleton: Option<Vec<String>>,
    /// The options that make a known launcher use PMI_PORT, each with its value, and the index of the word before which they are inserted.
    pmi_port_options: (usize, &'static [&'static [&'static str]]),
    /// Notices that are printed before the implementation is judged.
    pub notices: Vec<String>,
    /// The only dialect in which the implementation is judged, if specified.
    pub dialect: Option<Dialect>,
    /// The strictness, if specified.
    pub strict: Option<Strictness>,
    /// Shell command that ends a job, with `{job}` or `{pids}`.
    pub(super) cancel: Option<String>,
    /// Shell command that is run before the first scenario.
    pub setup: Option<String>,
    /// Shell command that is run after the last scenario.
    pub teardown: Option<String>,
}

const PLACEHOLDERS: &str = "the placeholders are {agent}, {ranks}, {nodes}, {hosts} and {job}; with --connection singleton, {port} and {pid}";

/// The arguments of an `mpiexec` that serves a process that it has not started.
const MPIEXEC_ARGUMENTS: [&str; 5] =
    [PMI_ARGS_OPTION, "{port}", UNUSED_ARGUMENTS[0], UNUSED_ARGUMENTS[1], "{pid}"];

/// The option of `serve` that corresponds to [`PMI_ARGS_OPTION`] and accepts the same arguments.
const SERVE_OPTION: &str = "--pmi-args";

/// Placeholder for a name that is unique to each launch.
pub(super) const JOB_PLACEHOLDER: &str = "{job}";

/// Placeholder for the process ids of the launcher on this machine, separated by spaces.
pub(super) const PIDS_PLACEHOLDER: &str = "{pids}";

/// Shell script that cancels the job steps that the launcher's `srun` processes have started. Some steps outlive their `srun` and continue
/// to occupy resources of the allocation.
const CANCEL_STEPS: &str = r#"scontrol --oneliner show steps |
sed -n "s/^StepId=\(${SLURM_JOB_ID:-[0-9]*}[.][0-9]*\) .*SrunHost:Pid=$(hostname -s):\([0-9]*\).*/\1 \2/p" |
while read -r step pid; do
    case ' {pids} ' in *" $pid "*) scancel "$step" ;; esac
done"#;

/// Shell script that prints the job steps of the allocation whose `srun` ran on this machine and has ended.
const ABANDONED_STEPS: &str = r#"scontrol --oneliner show steps 2>/dev/null |
sed -n "s/^StepId=\(${SLURM_JOB_ID:?}[.][0-9]*\) .*SrunHost:Pid=$(hostname -s):\([0-9]*\).*/\1 \2/p" |
while read -r step pid; do
    test -d "/proc/$pid" || echo "$step"
done"#;

/// `srun` options that most runs need. Each entry contains equivalent options, the variable that replaces them, and the notice for a
/// command without any of them.
const SRUN_OPTIONS: [(&[&str], &str, &str); 2] = [
    (
        &["--mpi"],
        "SLURM_MPI_TYPE",
        "the srun command has no --mpi option: without it, srun offers the wire protocol only if MpiDefault in slurm.conf is pmi2; to be sure, add --mpi=pmi2",
    ),
    (
        &["--exact", "--exclusive"],
        "SLURM_OVERLAP",
        "SLURM_OVERLAP is not set: an srun without --overlap waits while other job steps use the processors of the allocation, and an \
         srun that Slurm starts for a spawn never has --overlap; set SLURM_OVERLAP=1",
    ),
];

/// Parses the name of an optional operation.
pub fn parse_capability(word: &str) -> Result<Capability, ImplementationError> {
    let optional = Capability::optional_operations();
    let found = optional.clone().find(|(name, _)| *name == word);
    found.map(|(_, need)| need).ok_or_else(|| {
        if Capability::REMOVED_WORDS.contains(&word) {
            return ImplementationError(format!(
                "\"{word}\" was removed, because operations that only the draft of PMI-2 describes are no longer tested: delete it"
            ));
        }
        let words: Vec<&str> = optional.map(|(name, _)| name).collect();
        ImplementationError(format!("unknown optional operation \"{word}\"; the optional operations are {}", words.join(", ")))
    })
}

/// Programs that run the program given in their arguments.
const WRAPPERS: [&str; 8] = ["env", "exec", "nice", "nohup", "setsid", "stdbuf", "taskset", "timeout"];

/// Prefixes of the names of script interpreters.
const INTERPRETERS: [&str; 7] = ["python", "perl", "ruby", "node", "sh", "bash", "dash"];

/// Returns the name of the program that a command runs. If the command starts an interpreter, this is the name of the script; if it starts
/// a wrapper, the name of the wrapped program.
pub(super) fn program_name(words: &[String]) -> Option<String> {
    let (first, rest) = words.split_first()?;
    let file = Path::new(first).file_name()?.to_str()?;
    let is_option = |word: &String| word.starts_with('-');
    let is_argument =
        |word: &&String| is_option(word) || word.contains('=') || word.bytes().all(|b| b.is_ascii_digit());
    if WRAPPERS.contains(&file) {
        let own = rest.iter().take_while(is_argument).count();
        return program_name(&rest[own..]);
    }
    let is_version = |rest: &str| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if !INTERPRETERS.iter().any(|name| file.strip_prefix(*name).is_some_and(is_version)) {
        return Some(file.to_owned());
    }
    match rest.iter().position(|word| matches!(word.as_str(), "-c" | "-m")) {
        Some(at) if rest[..at].iter().all(is_option) => match rest[at].as_str() {
            "-m" => rest.get(at + 1).cloned(),
            _ => program_name(&shell_words::split(rest.get(at + 1)?).ok()?),
        },
        _ => {
            let script = Path::new(rest.iter().find(|word| !is_option(word))?);
            script.file_stem()?.to_str().map(str::to_owned)
        }
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

/// Splits a command template into words, and checks its placeholders.
pub(super) fn template(command: &str) -> Result<Vec<String>, ImplementationError> {
    let words = split(command)?;
    for word in &words {
        let mut rest = word.as_str();
        while let Some((_, tail)) = rest.split_once('{') {
            let Some((name, after)) = tail.split_once('}') else { break };
            if !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_lowercase())
                && !["agent", "ranks", "nodes", "hosts", "job", "port", "pid"].contains(&name)
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

pub(super) fn has_placeholder(words: &[String], placeholder: &str) -> bool {
    words.iter().any(|w| w.contains(placeholder))
}

impl Implementation {
    /// Creates an implementation with a command and no claims.
    fn new(label: &str, command: Vec<String>) -> Self {
        Self { label: label.to_owned(), command, uses_alarms: true, ..Self::default() }
    }

    /// Returns the built-in reference process manager.
    pub fn reference(binary: &Path) -> Self {
        let mut command = vec![binary.to_string_lossy().into_owned()];
        command.extend(["serve", "-n", "{ranks}", "--nodes", "{nodes}", "--", "{agent}"].map(str::to_owned));
        let mut singleton = vec![command[0].clone(), "serve".to_owned(), SERVE_OPTION.to_owned()];
        singleton.extend(MPIEXEC_ARGUMENTS[1..].iter().map(|word| (*word).to_owned()));
        // By default, the server offers no operation beyond RFC 13 to a process that uses PMI-1.1.
        Self {
            command_nodes: Some(command.clone()),
            claimed_capabilities: Capability::optional_operations()
                .map(|(_, need)| (need, !need.is_extension()))
                .collect(),
            singleton: Some(singleton),
            pmi_port_options: (2, &[&["--pmi-port"]]),
            ..Self::new("the built-in reference process manager", command)
        }
    }

    /// Parses a command: the command of a known launcher, or a template with placeholders.
    ///
    /// # Errors
    ///
    /// Returns an error if the command is invalid. The message suggests a correction.
    pub(super) fn from_command(argument: &str) -> Result<Self, ImplementationError> {
        let words = template(argument)?;
        let mut this = Self::new(argument, words.clone());
        if program_name(&words).is_some_and(|name| name == "srun") {
            this.cancel = Some(CANCEL_STEPS.to_owned());
        }
        this.notices = srun_notices(&words, &this.env);
        if has_placeholder(&words, "{port}") {
            this.is_hydra(&words[0]);
            this.singleton = Some(words);
            return Ok(this);
        }
        if has_placeholder(&words, "{agent}") {
            this.is_hydra(&words[0]);
            if has_placeholder(&words, "{nodes}") || has_placeholder(&words, "{hosts}") {
                this.command_nodes = Some(words);
            }
            return Ok(this);
        }
        this.well_known(words)?;
        Ok(this)
    }

    /// Returns whether a launcher is Hydra. If so, sets the known properties of Hydra.
    fn is_hydra(&mut self, launcher: &str) -> bool {
        let name = Path::new(launcher).file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let may_be_hydra = name.starts_with("mpiexec") || name.starts_with("mpirun");
        let Some(version) = may_be_hydra.then(|| hydra_version(launcher)).flatten() else { return false };
        self.version = version;
        self.uses_alarms = false;
        self.pmi_port_options = (1, &[&["-pmi-port"], &["-iface", "lo"]]);
        true
    }

    /// Completes the command line of a known launcher.
    fn well_known(&mut self, words: Vec<String>) -> Result<(), ImplementationError> {
        let program =
            Path::new(&words[0]).file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        if KNOWN_LAUNCHERS.iter().any(|known| program.starts_with(known)) {
            check_count_option(&words, &self.label)?;
        }
        let with =
            |extra: &[&str]| words.iter().cloned().chain(extra.iter().map(|s| (*s).to_owned())).collect();
        let tail = ["-n", "{ranks}", "{agent}"];
        match program.as_str() {
            "hydra_pmi_proxy" => {
                if words.len() > 1 {
                    let message = format!(
                        "--server takes only the path of {program}, without options: pmi-conform sets them"
                    );
                    return Err(ImplementationError(message));
                }
                let proxy = find_file(&words[0])
                    .ok_or_else(|| ImplementationError(format!("{}: no such file", words[0])))?;
                self.proxy = Some(proxy);
                self.uses_alarms = false;
                self.claimed_capabilities =
                    BTreeMap::from([(Capability::Spawn, true), (Capability::Names, true)]);
            }
            "mpiexec.gforker" => {
                self.command = with(&tail);
                self.singleton = Some(with(&MPIEXEC_ARGUMENTS));
            }
            _ if program.starts_with("mpiexec") || program.starts_with("mpirun") => {
                self.command = with(&tail);
                self.singleton = Some(with(&MPIEXEC_ARGUMENTS));
                if self.is_hydra(&words[0]) {
                    // The hosts are given as addresses, because Hydra would query a name server for names.
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
                    self.claimed_capabilities =
                        BTreeMap::from([(Capability::Spawn, true), (Capability::Names, true)]);
                }
            }
            "srun" => self.command = with(&tail),
            "flux" => self.command = with(&["run", "-n", "{ranks}", "{agent}"]),
            _ if words[0].contains('/') && find_file(&words[0]).is_none() => {
                return Err(ImplementationError(missing_program_error(&words[0])));
            }
            _ => {
                let counted = ["{ranks}", "{hosts}"].into_iter().any(|given| has_placeholder(&words, given));
                let message = if counted {
                    "where the agent goes"
                } else {
                    "where the number of ranks and the agent go"
                };
                let command = if counted { self.label.clone() } else { with_ranks(&self.label) };
                return Err(ImplementationError(format!(
                    "unknown launcher \"{program}\": mark {message} in the command, as in --server '{command} {{agent}}'; {PLACEHOLDERS}"
                )));
            }
        }
        Ok(())
    }

    /// Turns a bare proxy into a launcher, with `hydra-upstream` in place of its `mpiexec` (see [`crate::party::proxy`]).
    ///
    /// # Errors
    ///
    /// Returns an error if the proxy's protocol is unknown. The message names the option that selects one.
    pub fn play_upstream(
        &mut self,
        binary: &Path,
        family: Option<Family>,
        patience: Duration,
    ) -> Result<(), ProxyCheckError> {
        let Some(proxy) = &self.proxy else { return Ok(()) };
        let version_output =
            [Some(proxy.clone()), proxy.canonicalize().ok()].into_iter().flatten().find_map(|file| {
                let launcher = file.with_file_name("mpiexec.hydra");
                launcher_version_output(&launcher.to_string_lossy()).filter(|text| !text.is_empty())
            });
        self.version = self.version.take().or_else(|| version_output.as_deref().and_then(version_in));
        let family = match family {
            Some(family) => family,
            None => detect(proxy, version_output.as_deref()).map_err(|e| ProxyCheckError(e.to_string()))?,
        };
        self.family = Some(family);
        // MPICH's proxies catch SIGALRM, as its mpiexec does, but never set an alarm.
        self.uses_alarms &= family == Family::Intel;
        let mut command = vec![binary.to_string_lossy().into_owned(), "hydra-upstream".into()];
        command.extend(["--proxy".into(), proxy.to_string_lossy().into_owned()]);
        command.extend(["--family".into(), family.name().into()]);
        command.extend(["--patience".into(), patience.as_secs_f64().to_string()]);
        if self.connection_method == ConnectionMethod::Port {
            if family == Family::Intel {
                let message = "--connection port: no version of Intel's proxy is known to set PMI_PORT";
                return Err(ProxyCheckError(message.to_owned()));
            }
            command.push("--pmi-port".into());
        }
        command.extend(["-n", "{ranks}", "--nodes", "{nodes}", "--", "{agent}"].map(String::from));
        self.command = command.clone();
        self.command_nodes.get_or_insert(command);
        Ok(())
    }

    /// Starts a bare proxy once, with a program that does nothing, to detect a wrong protocol before judging. Does nothing for other
    /// implementations.
    ///
    /// # Errors
    ///
    /// Returns an error if the proxy did not behave as expected, or the run was interrupted. The message suggests an option.
    pub fn try_upstream(&self, interrupted: &AtomicBool) -> Result<(), ProxyCheckError> {
        let Some(proxy) = &self.proxy else { return Ok(()) };
        let unknown = |message: String| {
            ProxyCheckError(format!("{}: cannot be tested: {message}\n{}", proxy.display(), family_choices()))
        };
        let command = self.command(1, 1, &["true".to_owned()], "pmi-conform");
        let run =
            duct::cmd(&command[0], &command[1..]).stdin_null().stdout_null().stderr_capture().unchecked();
        // The runner of this run does not exist yet, and the proxy must not find the runner of an outer run.
        let run = run.env_remove(pmi_process::agent::PATH_VARIABLE);
        let handle = run.start().map_err(|e| unknown(e.to_string()))?;
        let output = loop {
            // The command has its own timeout, so this loop needs none. On an interrupt, SIGTERM lets the command clean up first.
            match handle.wait_timeout(Duration::from_millis(50)) {
                Ok(Some(output)) => break output,
                Ok(None) if interrupted.load(Ordering::Relaxed) => {
                    for pid in handle.pids() {
                        if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
                            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                        }
                    }
                    let _ = handle.wait_timeout(Duration::from_secs(5));
                    let _ = handle.kill();
                    return Err(unknown("interrupted".into()));
                }
                Ok(None) => {}
                Err(error) => return Err(unknown(error.to_string())),
            }
        };
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr[..output.stderr.len().min(4096)]).into_owned();
        let family = self.family.map_or("", Family::versions);
        Err(unknown(format!(
            "with the control protocol of {family}, the proxy could not start a program\n{}",
            stderr.trim_end()
        )))
    }

    /// Returns whether the runner takes the place of the implementation's upstream. If it does, a scenario can observe and answer
    /// forwarded requests.
    pub fn has_upstream(&self) -> bool {
        self.proxy.is_some()
    }

    /// Returns whether each launch of the implementation creates a Slurm job step, which may outlive its `srun`.
    pub fn starts_steps(&self) -> bool {
        self.cancel.as_deref() == Some(CANCEL_STEPS)
    }

    /// Returns the command for one node, which still contains the placeholders.
    pub fn template(&self) -> &[String] {
        &self.command
    }

    /// Replaces the path of the program that the command starts.
    pub fn set_program(&mut self, path: String) {
        self.command[0] = path;
    }

    /// Returns the name of the program under test, for messages about its exit.
    pub fn program(&self) -> String {
        let file = self.proxy.as_deref().unwrap_or(Path::new(&self.command[0]));
        file.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Makes the processes of a launch connect through PMI_PORT. The option for this is added to the command of a known launcher; a user's
    /// template must already contain the option.
    pub fn connect_by_port(&mut self) {
        self.connection_method = ConnectionMethod::Port;
        if self.proxy.is_some() {
            // The program `hydra-upstream` enables PMI_PORT when it starts the proxy.
            return;
        }
        for command in std::iter::once(&mut self.command).chain(&mut self.command_nodes) {
            let (at, words) = self.pmi_port_options;
            let missing = words.iter().filter(|group| !command.contains(&group[0].to_string()));
            let missing: Vec<String> =
                missing.flat_map(|group| group.iter().map(|w| (*w).to_owned())).collect();
            command.splice(at..at, missing);
        }
        let program = Path::new(&self.command[0]).file_name();
        if program.is_some_and(|name| name == "mpiexec.gforker") {
            self.env.insert("MPIEXEC_USE_PORT".into(), "1".into());
        }
    }

    /// Makes the implementation serve a singleton that requests a process manager. The implementation must be a known launcher, or a
    /// template that serves a running process.
    ///
    /// # Errors
    ///
    /// Returns an error if the implementation has no command for this.
    pub fn serve_singleton(&mut self) -> Result<(), ImplementationError> {
        let Some(command) = self.singleton.take() else {
            let message = format!(
                "pass the command that serves a running process, as in --server 'CMD {}'",
                MPIEXEC_ARGUMENTS.join(" ")
            );
            return Err(ImplementationError(message));
        };
        self.connection_method = ConnectionMethod::Singleton;
        self.command = command;
        self.command_nodes = None;
        Ok(())
    }

    /// Checks that the implementation's commands can be started.
    ///
    /// # Errors
    ///
    /// Returns an error if a program does not exist or is not executable, or if a command lacks the number of processes or has a
    /// placeholder for a different connection method.
    pub fn check_commands(&self) -> Result<(), ImplementationError> {
        for command in std::iter::once(&self.command).chain(&self.command_nodes) {
            let program = &command[0];
            let Some(file) = find_file(program) else {
                return Err(ImplementationError(missing_program_error(program)));
            };
            if rustix::fs::access(&file, rustix::fs::Access::EXEC_OK).is_err() {
                return Err(ImplementationError(format!("{}: not executable", file.display())));
            }
            if has_placeholder(command, "{port}") && self.connection_method != ConnectionMethod::Singleton {
                let message = format!("\"{}\": {{port}} requires --connection singleton", self.label);
                return Err(ImplementationError(message));
            }
            let counted = has_placeholder(command, "{ranks}")
                || has_placeholder(command, "{hosts}")
                || self.max_ranks == Some(1);
            if has_placeholder(command, "{agent}") && !counted {
                return Err(ImplementationError(format!(
                    "\"{}\": {{ranks}} is missing; write it in place of the number of processes, or add --max-ranks 1",
                    self.label
                )));
            }
        }
        Ok(())
    }

    /// Sets the command for several nodes.
    ///
    /// # Errors
    ///
    /// Returns an error if the template is invalid. The message contains the reason.
    pub fn set_command_nodes(&mut self, command: &str) -> Result<(), ImplementationError> {
        let words = template(command)?;
        if !has_placeholder(&words, "{agent}")
            || !(has_placeholder(&words, "{nodes}") || has_placeholder(&words, "{hosts}"))
        {
            let message =
                format!("\"{command}\": must contain {{agent}}, and {{nodes}} or {{hosts}}; {PLACEHOLDERS}");
            return Err(ImplementationError(message));
        }
        self.command_nodes = Some(words);
        Ok(())
    }

    /// Returns the implementation with `words` before its commands, as a scenario's `launch` requires. Returns `None` for a proxy, whose
    /// launcher is the runner.
    pub(crate) fn launched_by(&self, words: &str) -> Option<Self> {
        if self.proxy.is_some() {
            return None;
        }
        let words = shell_words::split(words).unwrap_or_default();
        let mut launched = self.clone();
        for command in std::iter::once(&mut launched.command).chain(&mut launched.command_nodes) {
            command.splice(0..0, words.iter().cloned());
        }
        Some(launched)
    }

    /// Returns the reason why the implementation cannot start `ranks` processes on `nodes` nodes, or `None` if it can.
    pub fn capacity_problem(&self, ranks: u32, nodes: u32) -> Option<String> {
        if self.connection_method == ConnectionMethod::Singleton && ranks > 1 {
            return Some(
                "several processes are needed, but a singleton is alone in its group (--connection singleton)"
                    .to_owned(),
            );
        }
        if nodes > 1 && self.command_nodes.is_none() {
            return Some(format!(
                "{nodes} nodes are needed, but no command for them is given (--server-nodes)"
            ));
        }
        if let Some(most) = self.max_ranks.filter(|most| ranks > *most) {
            return Some(format!("{ranks} processes are needed, but the limit is {most} (--max-ranks)"));
        }
        let most = self.max_nodes.filter(|most| nodes > *most)?;
        Some(format!("{nodes} nodes are needed, but the limit is {most} (--max-nodes)"))
    }

    /// Returns the option that makes the launcher offer the wire protocol, or `None` if no such option is known or the command already has
    /// it.
    pub(crate) fn offering_option(&self) -> Option<String> {
        offering_option(&self.command)
    }

    /// Returns a notice if job steps have outlived their `srun`. Returns `None` if there are no such steps, the launcher is not `srun`, or
    /// the runner is not in an allocation.
    pub fn abandoned_steps(&self) -> Option<String> {
        self.cancel.as_ref().filter(|cancel| *cancel == CANCEL_STEPS)?;
        let steps = printed("sh", &["-c".to_owned(), ABANDONED_STEPS.to_owned()])?;
        let number = steps.lines().count();
        (number > 0).then(|| {
            format!(
                "job steps that outlived their srun: {number}; later launches may wait for them; {STEPS_WAIT_HELP}"
            )
        })
    }

    /// Returns the shell command that ends the job with the name `job`, or `None` if the implementation has no such command. The
    /// placeholder for process ids remains (see `with_pids`).
    pub fn cancel(&self, job: &str) -> Option<String> {
        self.cancel.as_ref().map(|command| command.replace(JOB_PLACEHOLDER, job))
    }

    /// Returns the command line for `ranks` ranks on `nodes` nodes. `agent` contains the words that start an agent, and `job` is a name for
    /// launchers that name their jobs.
    pub fn command(&self, ranks: u32, nodes: u32, agent: &[String], job: &str) -> Vec<String> {
        let words = match &self.command_nodes {
            Some(words) if nodes > 1 => words,
            _ => &self.command,
        };
        // If the placeholder is only part of a word, as in `sh -c 'cd DIR; {agent}'`, a shell splits that word again, so the agent's words
        // are quoted.
        let joined = match agent {
            [path] => path.clone(),
            words => shell_words::join(words),
        };
        let agent_here = |word: &String| if word == "{agent}" { agent.to_vec() } else { vec![word.clone()] };
        words
            .iter()
            .flat_map(agent_here)
            .map(|word| {
                word.replace("{agent}", &joined)
                    .replace("{ranks}", &ranks.to_string())
                    .replace("{nodes}", &nodes.to_string())
                    .replace("{hosts}", &hosts(ranks, nodes))
                    .replace(JOB_PLACEHOLDER, job)
            })
            .collect()
    }
}

/// Replaces the placeholder for the launcher's processes.
pub(crate) fn with_pids(cancel: &str, pids: &[i32]) -> String {
    let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
    cancel.replace(PIDS_PLACEHOLDER, &pids.join(" "))
}

/// Replaces the placeholders for the process that a process manager must serve: its port and its process id.
pub(super) fn for_singleton(words: &mut [String], port: u16, pid: i32) {
    for word in words {
        *word = word.replace("{port}", &port.to_string()).replace("{pid}", &pid.to_string());
    }
}

/// Returns a loopback address for each node, with the number of its ranks, such as `127.0.0.1:2,127.0.0.2:1`.
fn hosts(ranks: u32, nodes: u32) -> String {
    let placed = pmi_wire::place(ranks, nodes);
    (0..nodes)
        .map(|node| format!("127.0.0.{}:{}", node + 1, placed.iter().filter(|n| **n == node).count()))
        .collect::<Vec<_>>()
        .join(",")
}

/// Prefixes of the names of launchers that accept `-n RANKS PROGRAM`.
const KNOWN_LAUNCHERS: [&str; 4] = ["mpiexec", "mpirun", "srun", "flux"];

/// Launcher options that set the number of processes.
const COUNT_OPTIONS: [&str; 4] = ["-n", "-np", "--np", "--ntasks"];

/// Returns true if a word of a launcher's command sets the number of processes, alone or together with the next word.
fn is_count(word: &str) -> bool {
    let short = word.strip_prefix("-np").or(word.strip_prefix("-n"));
    let digits = short.is_some_and(|n| is_uint(n.as_bytes()));
    COUNT_OPTIONS.contains(&word) || digits || word.starts_with("--ntasks=")
}

/// Replaces the number of processes in a launcher's command with `{ranks}`, or adds `-n {ranks}` if the command contains no number of
/// processes.
pub fn with_ranks(command: &str) -> String {
    let mut words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    let is_number = |word: Option<&String>| word.is_some_and(|word| is_uint(word.as_bytes()));
    match words.iter().position(|word| is_count(word)) {
        Some(at) if !COUNT_OPTIONS.contains(&words[at].as_str()) => {
            let option = words[at].trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
            words[at] = option + "{ranks}";
        }
        Some(at) if is_number(words.get(at + 1)) => "{ranks}".clone_into(&mut words[at + 1]),
        _ => words.extend(["-n".to_owned(), "{ranks}".to_owned()]),
    }
    words.join(" ")
}

/// Rejects a launcher's command that already contains the number of processes, because the runner adds this number.
fn check_count_option(words: &[String], label: &str) -> Result<(), ImplementationError> {
    let Some(at) = words.iter().position(|word| is_count(word)) else { return Ok(()) };
    if has_placeholder(words, "{ranks}") {
        let message = format!("add {{agent}}, as in --server '{label} {{agent}}'; {PLACEHOLDERS}");
        return Err(ImplementationError(message));
    }
    let given = if COUNT_OPTIONS.contains(&words[at].as_str()) { words.get(at + 1) } else { None };
    let given = [Some(&words[at]), given].into_iter().flatten().cloned().collect::<Vec<_>>().join(" ");
    Err(ImplementationError(format!(
        "each scenario states how many processes it needs: omit \"{given}\", or write {{ranks}} and {{agent}} in their places, as in \
         --server '{} -n {{ranks}} {{agent}}'",
        words[0]
    )))
}

/// Returns notices about options that most runs of `srun` need but that neither the command nor the environment contains; `env` adds to the
/// environment. The command is run without changes. Returns no notices for other commands.
pub(super) fn srun_notices(words: &[String], env: &BTreeMap<String, String>) -> Vec<String> {
    if program_name(words).is_none_or(|name| name != "srun") {
        return Vec::new();
    }
    let is_given = |option: &&str| words.iter().any(|word| word.starts_with(*option));
    let lacking = SRUN_OPTIONS.iter().filter(|(options, variable, _)| {
        !options.iter().any(is_given) && !env.contains_key(*variable) && std::env::var_os(variable).is_none()
    });
    lacking.map(|(.., notice)| (*notice).to_owned()).collect()
}

/// Formats the error for a program that does not exist. If the current folder contains a file with that name, the message mentions it.
pub fn missing_program_error(program: &str) -> String {
    let why = match Path::new(program) {
        path if path.is_dir() => "this is a directory",
        _ if program.contains('/') => "the file does not exist",
        _ => "not found in PATH",
    };
    let here = !program.contains('/') && Path::new(program).is_file();
    let here =
        if here { format!("; for the file in the current folder, write ./{program}") } else { String::new() };
    format!("{program}: no such program: {why}{here}")
}

/// Finds the file of a command: by its path, or in `PATH`.
fn find_file(command: &str) -> Option<PathBuf> {
    if command.contains('/') {
        return Some(PathBuf::from(command)).filter(|file| file.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(command)).find(|file| file.is_file())
}

fn launcher_version_output(program: &str) -> Option<String> {
    printed(program, &["--version".to_owned()])
}

/// Returns the standard output of a command, or `None` if the command cannot be started or does not end within a few seconds.
pub(super) fn printed(program: &str, args: &[String]) -> Option<String> {
    let run = duct::cmd(program, args).stdin_null().stderr_null().stdout_capture().unchecked().start();
    let handle = run.ok()?;
    let Ok(Some(output)) = handle.wait_timeout(Duration::from_secs(5)) else {
        let _ = handle.kill();
        return None;
    };
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Parses the version of MPICH's Hydra from its output.
fn version_in(text: &str) -> Option<semver::Version> {
    let version = text.lines().find_map(|l| l.trim().strip_prefix("Version:"));
    version.and_then(|v| semver::Version::parse(v.trim()).ok())
}

/// Queries a launcher for its version. Returns `None` if the launcher is not Hydra, and `Some(None)` if it prints no readable version.
fn hydra_version(program: &str) -> Option<Option<semver::Version>> {
    let text = launcher_version_output(program)?;
    text.to_ascii_lowercase().contains("hydra").then(|| version_in(&text))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("pm", "pm -n {ranks}")]
    #[case("pm -n 4", "pm -n {ranks}")]
    #[case("pm -np4 -v", "pm -np{ranks} -v")]
    #[case("pm --ntasks=4", "pm --ntasks={ranks}")]
    fn suggests_placeholder_for_the_rank_count(#[case] command: &str, #[case] suggestion: &str) {
        assert_eq!(with_ranks(command), suggestion);
        let error = Implementation::from_argument(command).unwrap_err().to_string();
        assert!(error.contains(&format!("--server '{suggestion} {{agent}}'")), "{error}");
    }

    #[test]
    fn builds_commands_from_templates_and_launchers() {
        let server = Implementation::from_argument("pm -n {ranks} -- {agent} 'a b'").unwrap();
        assert_eq!(
            server.command(3, 1, &["/x/agent".to_owned()], "j"),
            ["pm", "-n", "3", "--", "/x/agent", "a b"]
        );
        assert!(server.capacity_problem(2, 2).is_some_and(|why| why.contains("--server-nodes")));
        let srun = Implementation::from_argument("srun -N1").unwrap();
        assert_eq!(srun.command(2, 1, &["a".to_owned()], "j"), ["srun", "-N1", "-n", "2", "a"]);
        let hosts = Implementation::from_argument("pm {hosts} {ranks} {agent}").unwrap();
        assert_eq!(hosts.command(3, 2, &["a".to_owned()], "j"), ["pm", "127.0.0.1:2,127.0.0.2:1", "3", "a"]);
    }

    #[rstest]
    #[case("srun", &["add --mpi=pmi2", "set SLURM_OVERLAP=1"])]
    #[case("srun --mpi=pmi2 --overlap", &["set SLURM_OVERLAP=1"])]
    #[case("srun --exact -n {ranks} {agent}", &["add --mpi=pmi2"])]
    #[case("srun --mpi=pmi2 --exclusive", &[])]
    #[case("pm {ranks} {agent}", &[])]
    fn names_the_missing_srun_options(#[case] command: &str, #[case] named: &[&str]) {
        let server = Implementation::from_argument(command).unwrap();
        let notices = server.notices.join("; ");
        for advice in ["add --mpi=pmi2", "set SLURM_OVERLAP=1"] {
            assert_eq!(notices.contains(advice), named.contains(&advice), "{notices}");
        }
        assert!(server.env.is_empty(), "the command is run unchanged");
        // The built-in profile sets the variable.
        let profile = Implementation::from_argument("@slurm").unwrap();
        assert!(
            !profile.notices.iter().any(|notice| notice.contains("SLURM_OVERLAP")),
            "{:?}",
            profile.notices
        );
    }

    /// Runs a script with a fake Slurm that has the given steps, each with its id and the process of its `srun`. Returns the script's
    /// output.
    fn run_beside_steps(script: &str, steps: &[(&str, &str)], job: Option<&str>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let program = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        let step = |(id, srun): &(&str, &str)| {
            format!("StepId={id} UserId=0 State=RUNNING Name=agent Dist=Cyclic SrunHost:Pid={srun}\n")
        };
        program("hostname", "echo here");
        program("scontrol", &format!("cat <<END\n{}END", steps.iter().map(step).collect::<String>()));
        program("scancel", "echo $1");
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script]).env("PATH", path).env_remove("SLURM_JOB_ID");
        let out = shell.envs(job.map(|job| ("SLURM_JOB_ID", job))).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    }

    #[rstest]
    #[case::in_allocation(Some("7"), "7.1\n")]
    #[case::without_allocation(None, "7.1\n8.1\n")]
    fn cancels_only_slurm_steps_of_the_launcher(#[case] job: Option<&str>, #[case] cancelled: &str) {
        let steps = [("7.0", "here:11"), ("7.1", "here:12"), ("7.2", "there:12"), ("8.1", "here:12")];
        let srun = Implementation::from_argument("sh -c 'exec srun -n {ranks} {agent}'").unwrap();
        let command = with_pids(&srun.cancel("job").unwrap(), &[12, 112]);
        assert_eq!(run_beside_steps(&command, &steps, job), cancelled);
        assert_eq!(Implementation::from_argument("pm {ranks} {agent}").unwrap().cancel("job"), None);
    }

    #[rstest]
    #[case::in_allocation(Some("7"), "7.1\n")]
    #[case::without_allocation(None, "")]
    fn lists_slurm_steps_whose_srun_has_ended(#[case] job: Option<&str>, #[case] listed: &str) {
        let own = format!("here:{}", std::process::id());
        let dead = "here:999999999";
        let steps = [("7.0", own.as_str()), ("7.1", dead), ("7.2", "there:999999999"), ("8.1", dead)];
        assert_eq!(run_beside_steps(ABANDONED_STEPS, &steps, job), listed);
    }

    #[test]
    fn rejects_removed_and_unknown_operations() {
        let error = |word| parse_capability(word).unwrap_err().to_string();
        assert!(error("concat").contains("\"concat\" was removed"), "{}", error("concat"));
        assert!(error("nonsense").contains("operations are spawn, names, "), "{}", error("nonsense"));
    }

    #[test]
    fn server_option_errors_suggest_a_remedy() {
        for (argument, expected) in [
            ("", "empty"),
            ("pm {rank} {agent}", "unknown placeholder {rank}"),
            ("my-pm", "{ranks} {agent}"),
            ("./no/such-pm", "./no/such-pm: no such program"),
            ("pm 'x", "cannot be split"),
            ("@nowhere", "golden/nowhere/profile.toml"),
        ] {
            let error = Implementation::from_argument(argument).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
