//! Profiles: all settings for an implementation in one file. `--server @NAME` selects one: a user's file, or a built-in profile of a known
//! implementation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::implementation::{
    self, Implementation, ImplementationError, JOB_PLACEHOLDER, PIDS_PLACEHOLDER, RecordedDeviations,
    has_placeholder, program_name, template,
};
use pmi_judge::deviations::Deviations;
use pmi_judge::golden;
use pmi_judge::verdict::Strictness;
use pmi_scenario::ast::{Capability, Dialect};
use pmi_wire::hydra::parse_version;

/// A profile file.
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
    /// The name shown in reports.
    name: String,
    /// Alternative names that users may write after the `@`.
    #[serde(default)]
    aliases: Vec<String>,
    /// Advice for users who choose a profile: its requirements and limits.
    #[serde(default)]
    #[serde(rename = "remark")]
    advice: String,
    /// The command for one node.
    command: String,
    /// The command for several nodes.
    command_nodes: Option<String>,
    /// Optional operations that the implementation supports.
    #[serde(default)]
    offers: BTreeSet<String>,
    /// Optional operations that the implementation lacks.
    #[serde(default)]
    lacks: BTreeSet<String>,
    /// Variables that are added to the environment.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// The only dialect in which the implementation is judged.
    #[serde(default)]
    dialect: Option<Dialect>,
    /// The version, for deviations that depend on it.
    #[serde(default, deserialize_with = "version")]
    version: Option<semver::Version>,
    /// A command that prints the installed version. Deviations that are recorded for other versions are ignored.
    version_from: Option<String>,
    /// The file of deviations, relative to the profile.
    deviations: Option<PathBuf>,
    /// The strictness, which the command line can override.
    strict: Option<Strictness>,
    /// Maximum number of processes of a job.
    max_ranks: Option<u32>,
    /// Maximum number of nodes of a job.
    max_nodes: Option<u32>,
    /// Maximum time for processes to start, in seconds.
    #[serde(default, deserialize_with = "seconds")]
    start_timeout: Option<Duration>,
    /// Shell command that ends the job called `{job}`, or the job whose launcher has one of the process ids `{pids}`.
    cancel: Option<String>,
    /// Shell command that is run before the first scenario.
    setup: Option<String>,
    /// Shell command that is run after the last scenario.
    teardown: Option<String>,
}

fn version<'de, D: serde::Deserializer<'de>>(text: D) -> Result<Option<semver::Version>, D::Error> {
    let text = String::deserialize(text)?;
    let wrong = || {
        serde::de::Error::custom(format!("invalid version \"{text}\"; use a format like 4.3.2 or 22.05.8"))
    };
    parse_version(&text).map(Some).ok_or_else(wrong)
}

fn seconds<'de, D: serde::Deserializer<'de>>(number: D) -> Result<Option<Duration>, D::Error> {
    let seconds = f64::deserialize(number)?;
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    time.map(Some).ok_or_else(|| serde::de::Error::custom(format!("invalid number of seconds: {seconds}")))
}

/// A built-in profile.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct BuiltinProfile {
    /// The names that users may write after the `@`; the full name comes first.
    pub names: Vec<String>,
    /// The name of the implementation.
    pub title: String,
    /// The command for one node.
    pub command: String,
    /// The command for several nodes, if it exists.
    pub command_nodes: Option<String>,
    /// Optional operations that the implementation is known to support. Operations in neither list are probed.
    pub offers: Vec<String>,
    /// Optional operations that the implementation is known to lack.
    pub lacks: Vec<String>,
    /// Maximum number of seconds until the processes of a launch report to the runner, if that may take longer than a response.
    pub start_timeout: Option<f64>,
    /// Maximum number of ranks of a job.
    pub max_ranks: Option<u32>,
    /// True if deviations are recorded for the implementation.
    pub has_deviations: bool,
    /// The implementation's requirements and limits; may be empty.
    #[serde(rename = "remark")]
    pub advice: String,
}

impl BuiltinProfile {
    /// Returns whether an unknown name resembles this profile: it is a substring of a name or of the title, or differs from a name by one
    /// letter.
    fn resembles(&self, word: &str) -> bool {
        let word = word.to_ascii_lowercase();
        let part = |text: &str| !word.is_empty() && text.to_ascii_lowercase().contains(&word);
        let near = |name: &String| strsim::damerau_levenshtein(name, &word) <= 1;
        part(&self.title) || self.names.iter().any(|name| part(name) || near(name))
    }
}

/// Returns the built-in profiles, sorted by name.
pub fn builtin() -> Vec<BuiltinProfile> {
    let all = golden::folders().filter_map(|folder| {
        let profile: Profile = toml::from_str(golden::file(&Path::new(folder).join(FILE))?).ok()?;
        Some(BuiltinProfile {
            names: std::iter::once(folder.to_owned()).chain(profile.aliases).collect(),
            title: profile.name,
            command: profile.command,
            command_nodes: profile.command_nodes,
            offers: profile.offers.into_iter().collect(),
            lacks: profile.lacks.into_iter().collect(),
            start_timeout: profile.start_timeout.map(|time| time.as_secs_f64()),
            max_ranks: profile.max_ranks,
            has_deviations: profile.deviations.is_some(),
            advice: profile.advice,
        })
    });
    all.collect()
}

const FILE: &str = "profile.toml";

impl Implementation {
    /// Parses the value of `--server`.
    ///
    /// # Errors
    ///
    /// Returns an error if the value is invalid. The message suggests a correction.
    pub fn from_argument(argument: &str) -> Result<Self, ImplementationError> {
        if let Some(profile) = argument.strip_prefix('@') {
            return find(profile);
        }
        Self::from_command(argument)
    }
}

/// Finds the profile `@NAME`: the file NAME, NAME.toml or golden/NAME/profile.toml, or a built-in profile.
fn find(name: &str) -> Result<Implementation, ImplementationError> {
    let mut tried = vec![PathBuf::from(name)];
    if !name.ends_with(".toml") {
        tried.extend([PathBuf::from(format!("{name}.toml")), Path::new("golden").join(name).join(FILE)]);
    }
    if let Some(path) = tried.iter().find(|p| p.is_file()) {
        let text = std::fs::read_to_string(path)
            .map_err(|e| ImplementationError(format!("{}: {e}", path.display())))?;
        let recorded =
            |file: &Path| RecordedDeviations::File(path.parent().unwrap_or(Path::new("")).join(file));
        return read(path, &text, &recorded);
    }
    let known = builtin();
    if let Some(folder) = known.iter().find(|b| b.names.iter().any(|n| n == name)).map(|b| &b.names[0]) {
        let path = Path::new(folder).join(FILE);
        let recorded = |file: &Path| {
            let path = Path::new(folder).join(file);
            let text = golden::file(&path).unwrap_or_default();
            RecordedDeviations::Builtin(Path::new("golden").join(path), text)
        };
        return read(&path, golden::file(&path).unwrap_or_default(), &recorded);
    }
    let tried = tried.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ");
    let meant: Vec<&BuiltinProfile> = known.iter().filter(|b| b.resembles(name)).collect();
    let shown = |all: &[&BuiltinProfile]| {
        all.iter().filter_map(|b| b.names.last()).map(|n| format!("@{n}")).collect::<Vec<_>>().join(", ")
    };
    let hint = match &meant[..] {
        [] => {
            format!(
                "known profiles: {}; `pmi-conform explain profiles` describes them",
                shown(&known.iter().collect::<Vec<_>>())
            )
        }
        meant => {
            format!("did you mean {}? `pmi-conform explain profiles` describes all profiles", shown(meant))
        }
    };
    Err(ImplementationError(format!(
        "unknown profile @{name}: no built-in profile has this name; files not found: {tried}\n{hint}"
    )))
}

fn read(
    path: &Path,
    text: &str,
    recorded: &dyn Fn(&Path) -> RecordedDeviations,
) -> Result<Implementation, ImplementationError> {
    let at = |e: &dyn std::fmt::Display| ImplementationError(format!("{}: {e}", path.display()));
    let profile: Profile = toml::from_str(text).map_err(|e| at(&e))?;
    let mut this = Implementation::from_argument(&profile.command).map_err(|e| at(&e))?;
    this.label = profile.name;
    if let Some(nodes) = profile.command_nodes {
        this.command_nodes = Some(template(&nodes).map_err(|e| at(&e))?);
    }
    for (words, offered) in [(profile.offers, true), (profile.lacks, false)] {
        for word in words {
            this.claimed_capabilities
                .insert(implementation::parse_capability(&word).map_err(|e| at(&e))?, offered);
        }
    }
    if let Some(cancel) = profile.cancel {
        let mut commands = std::iter::once(&this.command).chain(&this.command_nodes);
        if !cancel.contains(PIDS_PLACEHOLDER)
            && (!cancel.contains(JOB_PLACEHOLDER)
                || commands.any(|words| !has_placeholder(words, JOB_PLACEHOLDER)))
        {
            let message = "cancel must refer to a single job: write {job} in cancel and in each command, or write {pids} for the \
                        processes of the launcher";
            return Err(at(&message));
        }
        this.cancel = Some(cancel);
    }
    this.env = profile.env;
    this.notices = implementation::srun_notices(&this.command, &this.env);
    let recorded = profile.deviations.as_deref().map(recorded);
    let there = profile.version_from.as_deref().and_then(printed_version);
    match (&profile.version, &there) {
        (Some(of), Some(there)) if of != there && recorded.is_some() => {
            this.notices = vec![format!(
                "the implementation is version {there}, so the deviations recorded in {} for version {of} are not used",
                path.display()
            )];
        }
        _ => this.deviations = recorded,
    }
    this.version = there.or(profile.version).or(this.version);
    this.dialect = profile.dialect;
    this.strict = profile.strict;
    (this.max_ranks, this.max_nodes) = (profile.max_ranks, profile.max_nodes);
    this.start_timeout = profile.start_timeout;
    (this.setup, this.teardown) = (profile.setup, profile.teardown);
    Ok(this)
}

/// Returns the first version in the output of a command.
fn printed_version(command: &str) -> Option<semver::Version> {
    let words = shell_words::split(command).ok()?;
    let (program, args) = words.split_first()?;
    let text = implementation::printed(program, args)?;
    text.split_whitespace().find_map(|word| {
        let looks_like_one = word.bytes().filter(|b| *b == b'.').count() == 2;
        looks_like_one.then(|| parse_version(word)).flatten()
    })
}

/// Returns the name of the process manager that a command starts, ignoring interpreters and wrappers.
fn manager(implementation: &Implementation) -> String {
    let program = implementation.program();
    if implementation.has_upstream() {
        return program;
    }
    program_name(implementation.template()).unwrap_or(program)
}

/// Returns the deviations that are recorded for the same program as `implementation`, starting with those of the closest version.
pub fn related_deviations(implementation: &Implementation) -> Vec<Deviations> {
    let name = match manager(implementation) {
        name if ["mpiexec", "mpirun"].contains(&name.as_str()) => "mpiexec.hydra".to_owned(),
        name => name,
    };
    let distance = |version: &Option<semver::Version>| match (&implementation.version, version) {
        (Some(this), Some(other)) => {
            let apart = |part: fn(&semver::Version) -> u64| part(this).abs_diff(part(other));
            (apart(|v| v.major), apart(|v| v.minor), apart(|v| v.patch))
        }
        _ => (0, 0, 0),
    };
    let mut all = Vec::new();
    for folder in golden::folders() {
        let (command, version, dialect) = match golden::file(&Path::new(folder).join(FILE)) {
            Some(text) => match toml::from_str::<Profile>(text) {
                Ok(profile) => (profile.command, profile.version, profile.dialect),
                Err(_) => continue,
            },
            // A bare proxy has no profile, because its command is its path.
            None => match folder.strip_prefix("hydra-proxy-") {
                Some(version) => ("hydra_pmi_proxy".to_owned(), parse_version(version), None),
                None => continue,
            },
        };
        let words = shell_words::split(&command).unwrap_or_default();
        // Exclude Intel's Hydra, which has the same name as MPICH's but prints no version.
        let is_related = program_name(&words).is_some_and(|other| other == name)
            && dialect.unwrap_or_default() == implementation.dialect.unwrap_or_default()
            && (implementation.uses_alarms || implementation.version.is_some());
        let path = Path::new(folder).join("deviations.toml");
        let text = golden::file(&path).filter(|_| is_related);
        let read = text.and_then(|text| {
            Deviations::parse(&path, text, version.as_ref(), implementation.connection_method).ok()
        });
        all.extend(read.map(|deviations| (distance(&version), deviations)));
    }
    all.sort_by_key(|(distance, _)| *distance);
    all.into_iter().map(|(_, deviations)| deviations).collect()
}

/// Returns a draft profile for an implementation without one. The draft contains a name to be edited, the commands, and the known support
/// for optional operations.
pub fn draft_profile(implementation: &Implementation, offers: &BTreeMap<Capability, bool>) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    // In a profile, words with braces need no quotes.
    let plain = |word: &str| word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./={}:,@%+".contains(&b));
    let word = |word: &String| if plain(word) { word.clone() } else { shell_words::quote(word).into_owned() };
    let joined = |words: &[String]| quoted(&words.iter().map(word).collect::<Vec<_>>().join(" "));
    // The version is omitted, because the next upgrade changes it, and each run detects it.
    let mut text = format!("# Made by pmi-conform.\nname = {}\n", quoted(&manager(implementation)));
    if implementation.has_upstream() {
        // For a bare proxy, only the path is written, because the runner completes the command.
        text += &format!("command = {}\n", quoted(&implementation.label));
    } else {
        text += &format!("command = {}\n", joined(&implementation.command));
        if let Some(nodes) =
            implementation.command_nodes.as_ref().filter(|nodes| **nodes != implementation.command)
        {
            text += &format!("command-nodes = {}\n", joined(nodes));
        }
    }
    text += &implementation.dialect.map(|dialect| format!("dialect = \"{dialect}\"\n")).unwrap_or_default();
    for (key, offered) in [("offers", true), ("lacks", false)] {
        let words: Vec<String> =
            offers.iter().filter(|(_, has)| **has == offered).map(|(need, _)| quoted(need.word())).collect();
        if !words.is_empty() {
            text += &format!("{key} = [{}]\n", words.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn accepts_versions_with_leading_zeros() {
        let version = |text: &str| {
            let profile = format!("name = \"x\"\ncommand = \"x\"\nversion = \"{text}\"");
            toml::from_str::<Profile>(&profile).map(|p| p.version)
        };
        assert_eq!(version("22.05.8"), Ok(Some(semver::Version::new(22, 5, 8))));
        assert!(version("new").unwrap_err().message().contains("invalid version \"new\""));
    }

    #[rstest]
    #[case("python3 /x/threads.py -n {ranks} {agent}", "threads")]
    #[case("python3 -m my.manager {ranks} {agent}", "my.manager")]
    #[case("env A=1 timeout 5 ./pm {ranks} {agent}", "pm")]
    #[case("sh -c 'exec srun -n {ranks} {agent}'", "srun")]
    #[case("/a/shepherd {ranks} {agent}", "shepherd")]
    fn profile_is_named_after_the_manager(#[case] command: &str, #[case] name: &str) {
        let text = draft_profile(&Implementation::from_argument(command).unwrap(), &BTreeMap::new());
        assert!(text.contains(&format!("\nname = \"{name}\"\n")), "{text}");
    }

    #[test]
    fn profile_name_does_not_depend_on_the_version() {
        let mut hydra = Implementation::from_argument("mpiexec.hydra -n {ranks} {agent}").unwrap();
        let written_for = |hydra: &mut Implementation, patch| {
            hydra.version = Some(semver::Version::new(5, 0, patch));
            draft_profile(hydra, &BTreeMap::new())
        };
        let before = written_for(&mut hydra, 1);
        assert!(before.contains("\nname = \"mpiexec.hydra\"\n"), "{before}");
        assert_eq!(written_for(&mut hydra, 2), before);
    }

    #[test]
    fn related_deviations_start_with_the_closest_version() {
        let mut hydra = Implementation::from_argument("mpiexec.hydra -n {ranks} {agent}").unwrap();
        (hydra.version, hydra.uses_alarms) = (Some(semver::Version::new(5, 0, 1)), false);
        let names = |of: &Implementation| -> Vec<String> {
            related_deviations(of)
                .iter()
                .filter_map(|known| known.implementation().map(str::to_owned))
                .collect()
        };
        assert_eq!(names(&hydra).first().map(String::as_str), Some("MPICH Hydra 5.0.2"));
        // Intel's Hydra is a different program with the same name.
        hydra.version = None;
        assert_eq!(names(&hydra), [""; 0]);
        let other = Implementation::from_argument("pm {ranks} {agent}").unwrap();
        assert_eq!(names(&other), [""; 0]);
    }

    #[test]
    fn ignores_deviations_for_another_version() {
        let text =
            "name = \"x\"\ncommand = \"pm {ranks} {agent}\"\nversion = \"4.3.2\"\ndeviations = \"d\"\n";
        let recorded = |file: &Path| RecordedDeviations::File(file.to_owned());
        let with = |from: &str| read(Path::new("x"), &format!("{text}version-from = \"{from}\""), &recorded);
        let same = with("echo pm 4.3.2 of today").unwrap();
        assert!(same.deviations.is_some() && same.notices.is_empty());
        let other = with("echo 4.3.3").unwrap();
        assert!(other.deviations.is_none() && other.notices.iter().any(|n| n.contains("4.3.3")));
        assert!(with("no-such-command-here").unwrap().deviations.is_some());
    }

    #[test]
    fn reads_limits_from_a_profile() {
        let text = "name = \"x\"\ncommand = \"pm {ranks} {agent}\"\nmax-ranks = 3\nstart-timeout = 0.5";
        let recorded = |file: &Path| RecordedDeviations::File(file.to_owned());
        let this = read(Path::new("x"), text, &recorded).unwrap();
        assert_eq!(this.capacity_problem(3, 1), None);
        assert!(this.capacity_problem(4, 1).is_some_and(|why| why.contains("4 processes")));
        assert_eq!(this.start_timeout, Some(Duration::from_millis(500)));
        let wrong = text.replace("0.5", "-1");
        assert!(
            read(Path::new("x"), &wrong, &recorded)
                .unwrap_err()
                .to_string()
                .contains("invalid number of seconds")
        );
    }

    #[test]
    fn drafted_profile_starts_the_same_command() {
        let command = "pm --mode='a b' -n {ranks} --on {hosts} 'x {nodes}' {agent}";
        let of = Implementation::from_argument(command).unwrap();
        let text =
            draft_profile(&of, &BTreeMap::from([(Capability::Spawn, false), (Capability::Names, true)]));
        let again = read(Path::new("x"), &text, &|file| RecordedDeviations::File(file.to_owned())).unwrap();
        for (ranks, nodes) in [(1, 1), (3, 2)] {
            let command = |of: &Implementation| of.command(ranks, nodes, &["agent".to_owned()], "job");
            assert_eq!(command(&again), command(&of), "{text}");
        }
        assert_eq!(
            again.claimed_capabilities,
            BTreeMap::from([(Capability::Spawn, false), (Capability::Names, true)])
        );
    }

    #[test]
    fn loads_built_in_profiles_by_each_of_their_names() {
        let mut names: Vec<String> = builtin().into_iter().flat_map(|b| b.names).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "two profiles have the same name");
        for name in ["slurm", "flux", "hydra-5.0", "gforker", "intel"] {
            assert!(names.iter().any(|n| n == name), "{name}");
        }
        for name in names {
            let this = find(&name).unwrap_or_else(|e| panic!("@{name}: {e}"));
            if let Some(RecordedDeviations::Builtin(path, text)) = &this.deviations {
                let read = Deviations::parse(path, text, this.version.as_ref(), this.connection_method);
                read.unwrap_or_else(|e| panic!("@{name}: {e}"));
            }
        }
    }
}
