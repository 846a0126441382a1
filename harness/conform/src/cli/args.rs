//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::report::{CampaignFormat, Format, ReportSpec};
use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use pmi_judge::verdict::Strictness;
use pmi_runner::measure::MeasuredPhase;
use pmi_scenario::ast::{Capability, Dialect};
use pmi_scenario::requirement::ADVISORY_SETS;
use pmi_wire::hydra::Family;

/// Returns the parser for the optional operations in `--has` and `--lacks`.
fn optional() -> PossibleValuesParser {
    Capability::optional_operations().map(|(word, _)| word).collect::<Vec<_>>().into()
}

pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0    conforms, or deviates only as recorded (broken SHOULDs are shown)
  1    a broken MUST or SHALL (--strict: or SHOULD), a crash, a hang, or a stale deviation
  2    usage error, or a mistake in a scenario
  3    the harness could not judge a scenario
  4    nothing was judged
  130  interrupted";

const RECORD_HELP: &str = "\
The job keeps its standard streams and its signals; the report goes to standard error.

Exit codes:
  0    both sides conform (broken SHOULDs are shown)
  1    the process manager or the program breaks a MUST or SHALL
  2    usage error
  3    the session was not recorded, or only in part";

const MEASURE_HELP: &str = "\
All ranks send their requests at the same time, and each figure is the time until the last rank has its response. One process handles \
all connections, so every figure includes a few microseconds of overhead per message. `grows as` is the power of the number of ranks that \
fits best. Spawn and names are left out if they are refused; if a manager crashes instead of refusing, exclude the operation with --lacks.

Exit codes:
  0    everything was measured
  1    a budget was exceeded
  2    usage error
  3    something could not be measured";

const DOCTOR_HELP: &str = "\
Runs a few short jobs. They show whether the implementation starts, connects, negotiates a version and completes a session, whether it \
supports several nodes, spawn and names, and how the runner can detect that no response will come. With --versions, prints the response \
to each offered version of PMI instead, or what a program or library does after each response.

Exit codes:
  0    the implementation can be tested (--versions: the table is printed)
  1    it cannot be tested: a step fails, so the steps that need it were not tried
  2    usage error, or the command does not exist
  3    a proxy was started with the wrong control protocol (--versions: no valid offer or response)";

const BISECT_HELP: &str = "\
Compares neighbouring versions as `report compare` does. A finding that a version has but the previous version lacks was introduced in \
that version; a finding that only the previous version has was fixed in that version. Recorded deviations do not count, and neither do \
scenarios that could not be judged on one of the two versions. A scenario in which versions differ is played again on each version \
(--repeat), so that no version is blamed for an intermittent failure; the frequency of each such failure is printed.

Exit codes:
  0    no version introduced a finding that is more than a note
  1    a version introduced such a finding
  2    usage error
  3    a version could not be judged at all
  130  interrupted";

const INIT_HELP: &str = "\
Writes to the current folder: pmi-conform.toml, the profile; pmi-conform-deviations.toml, a draft with an entry for each cause that was \
found; and .github/workflows/pmi-conform.yml or .gitlab/pmi-conform.yml. Existing files are never overwritten.

Exit codes:
  0    the files are written, whatever the run found
  1    the process manager cannot be tested: the result of `doctor` is printed
  2    usage error, or a file already exists
  130  interrupted";

const INTEROP_HELP: &str = "\
Runs each program under each process manager with --program and --manager. With --client-log and --server-log, runs nothing: it compares \
the responses in the server's logs with those after which the client continued, and the client's requests with those that the server \
accepted. Logs of programs and libraries under test contain responses that lack fields on purpose, so they show which fields are \
needed; a recording shows which fields were present when the session worked.

Exit codes:
  0    every job ended with status 0 and broke no MUST; logs: all known messages are understood
  1    a job hung or failed, or a MUST is broken; logs: a message is not understood
  2    usage error
  3    a job could not be judged; logs: no message is known
  130  interrupted";

const REPORT_HELP: &str = "\
Exit codes:
  0    the report is written, whatever its verdicts
  2    usage error, or the log cannot be read";

/// Headings of option groups in the help.
const IUT: &str = "Implementation under test";
const RUN: &str = "Selection and run";
const RESULT: &str = "Result";

/// Commands by task, in the order in which the help lists them.
pub(super) const GROUPS: [(&str, &[&str]); 4] = [
    ("Test an implementation (the default without a command)", &["doctor", "init", "record", "interop"]),
    ("Explore and measure it", &["fuzz", "measure", "serve"]),
    ("Work with results", &["report", "explain"]),
    ("Work on the suite", &["scenario", "suite"]),
];

/// Former commands and options, and their replacements.
pub(super) const RENAMED: [(&str, &str); 15] = [
    ("bisect", "report bisect"),
    ("check", "scenario check"),
    ("compare", "report compare"),
    ("compatibility", "interop --client-log LOG --server-log LOG"),
    ("coverage", "suite coverage"),
    ("fmt", "scenario fmt"),
    ("judge", "report judge"),
    ("matrix", "report matrix"),
    ("mutants", "suite mutants"),
    ("profiles", "explain profiles"),
    ("requirements", "explain requirements"),
    ("show", "scenario show"),
    ("versions", "doctor --versions"),
    ("--export", "scenario export"),
    ("--list", "scenario list"),
];

/// Finds a former command or option among the arguments, and returns it with its replacement.
pub(super) fn renamed(args: &[OsString]) -> Option<(&'static str, &'static str)> {
    let first = args.first()?;
    // If the first argument is a subcommand, its options are not checked, because they may have the names of former options.
    let options = if first.to_string_lossy().starts_with('-') { args } else { &[] };
    RENAMED.into_iter().find(|(old, _)| first == *old || options.iter().any(|arg| arg == *old))
}

/// Adds the help option to a subcommand and its subcommands. They lack it because the root command replaces clap's help option.
fn with_help(command: clap::Command) -> clap::Command {
    let help = Arg::new("help").short('h').long("help").action(ArgAction::Help).help("Print help");
    command.arg(help).mut_subcommands(with_help)
}

pub(super) fn parser() -> clap::Command {
    Cli::command().mut_subcommands(with_help)
}

/// Returns the parser. Its help lists the commands by task.
pub(super) fn command() -> clap::Command {
    let command = parser();
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or_default();
    let mut tasks = String::new();
    for (task, names) in GROUPS {
        let heading = command.get_styles().get_header();
        tasks += &format!("{heading}{task}:{heading:#}\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let literal = command.get_styles().get_literal();
            let about = about.map(ToString::to_string).unwrap_or_default();
            tasks += &format!("  {literal}{name:width$}{literal:#}  {about}\n");
        }
    }
    let template =
        format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{tasks}\n{{all-args}}{{after-help}}");
    command.help_template(template).mut_subcommands(|subcommand| subcommand.hide(true))
}

/// Test a PMI implementation: a process manager, a program or a library.
#[derive(Parser)]
#[command(
    name = "pmi-conform",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_flag = true,
    disable_help_subcommand = true,
    disable_version_flag = true,
    arg(Arg::new("summary").short('h').action(ArgAction::HelpShort).hide(true)),
    arg(Arg::new("version").short('V').long("version").action(ArgAction::Version).help("Print the version").help_heading(RESULT).hide_short_help(true))
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    #[command(flatten)]
    pub(super) play: Play,
    /// Print all options (-h: the most common ones)
    #[arg(long, action = ArgAction::SetTrue, help_heading = RESULT)]
    pub(super) help: bool,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Check that an implementation can be tested here, and suggest profile settings
    Doctor(Doctor),
    /// Write a profile, the known deviations and a CI workflow for a process manager
    Init(Init),
    /// Run a real job with a tap between the process manager and its programs, and judge both
    Record(Record),
    /// Show which programs and process managers understand each other
    Interop(Interop),
    /// Play generated sessions to find bugs that no scenario covers
    Fuzz(Box<Fuzz>),
    /// Measure how start-up and operation times grow with the number of ranks
    Measure(Measure),
    /// Run a program under the reference process manager
    Serve(Serve),
    /// Render a log, judge it again, compare runs, and bisect versions
    Report(Report),
    /// Explain a requirement, rule, scenario, operation or profile
    Explain(Explain),
    /// Check, format, show, list and export scenarios
    #[command(subcommand)]
    Scenario(ScenarioCommand),
    /// Show what the suite covers, and that it fails for each known fault
    #[command(subcommand)]
    Suite(SuiteCommand),
    /// Print the JSON schema of a line of the log
    #[command(hide = true)]
    Schema,
    /// Print a completion script
    #[command(hide = true)]
    Completions {
        /// Shell that reads the script
        shell: clap_complete::Shell,
    },
    /// Write the man pages
    #[command(hide = true)]
    Man {
        /// Folder for the pages
        dir: PathBuf,
    },
    /// Act as mpiexec for a hydra_pmi_proxy, as --server does with a bare proxy
    #[command(hide = true)]
    HydraUpstream(HydraUpstream),
    /// Load a library and make the calls that the runner requests, as --library does
    #[command(hide = true)]
    LibraryAgent {
        /// The library
        library: PathBuf,
    },
}

#[derive(Subcommand)]
pub(super) enum ScenarioCommand {
    /// Report mistakes in scenario files
    Check {
        /// Files or folders [default: the embedded suite]
        paths: Vec<PathBuf>,
    },
    /// Format scenario files
    Fmt {
        /// Change nothing, and fail if a file is not formatted
        #[arg(long)]
        check: bool,
        /// Files or folders
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Print a scenario or a fragment of the embedded suite
    Show {
        /// Name, as in `scenario list` and in reports
        name: String,
        /// Print the messages of this dialect in place of operations, and the fragments that the scenario uses
        #[arg(long, value_parser = one_dialect())]
        dialect: Option<Dialect>,
    },
    /// List the scenarios that the same options would play
    List(Box<Play>),
    /// Write the embedded scenarios, fragments and requirements to a folder
    Export {
        /// The folder
        dir: PathBuf,
    },
}

#[derive(Subcommand)]
pub(super) enum SuiteCommand {
    /// Play the suite against every fault and variation of the reference
    Mutants(Mutants),
    /// Show which requirements the scenarios test
    Coverage(Coverage),
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Explain {
    #[command(subcommand)]
    pub(super) list: Option<Listed>,
    /// Requirement, rule, scenario, operation, command or C function, e.g. rfc13.put.unique, kvs/get-of-nothing, put, PMI2_KVS_Put
    pub(super) id: Option<String>,
}

#[derive(Subcommand)]
pub(super) enum Listed {
    /// List all requirements
    Requirements {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Write the book's pages to this folder: one for each source, and the errata
        #[arg(long, value_name = "DIR", conflicts_with = "json")]
        pages: Option<PathBuf>,
    },
    /// List the built-in profiles, for --server @NAME
    Profiles {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the Wireshark plugin, which decodes PMI and the captures of `report --format pcapng`
    Wireshark,
}

/// The way in which a process gets its connection.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ConnectionMethodArg {
    /// Processes inherit a descriptor (PMI_FD)
    #[default]
    Fd,
    /// Processes connect to an address (PMI_PORT)
    Port,
    /// A process without a process manager starts one (mpiexec -pmi_args)
    Singleton,
}

impl ConnectionMethodArg {
    /// Returns the option that selects this method, as two words. Returns no words for the default method.
    pub(super) fn option(self) -> Vec<String> {
        let name = self.to_possible_value().filter(|_| self != Self::Fd);
        name.map_or(Vec::new(), |name| vec!["--connection".to_owned(), name.get_name().to_owned()])
    }
}

#[derive(Args)]
pub(super) struct Play {
    /// Process manager: mpiexec, a command with {ranks} and {agent}, @PROFILE
    #[arg(long, value_name = "CMD", env = "PMI_CONFORM_SERVER", hide_env = true, help_heading = IUT)]
    pub(super) server: Option<String>,
    /// Command for several nodes, with {nodes} or {hosts}
    #[arg(long, value_name = "CMD", requires = "server", help_heading = IUT, hide_short_help = true)]
    pub(super) server_nodes: Option<String>,
    /// Program, which is started under the reference process manager
    #[arg(long, value_name = "CMD", conflicts_with_all = ["server", "library", "memory", "has", "lacks"], help_heading = IUT)]
    pub(super) client: Option<String>,
    /// PMI library with the C API; --server selects its process manager
    #[arg(long, value_name = "FILE", env = "PMI_CONFORM_LIBRARY", hide_env = true, conflicts_with = "memory", help_heading = IUT)]
    pub(super) library: Option<PathBuf>,
    /// pmi-1.1, pmi-2 or all [default: pmi-1.1 with --server, else detected]
    #[arg(long, value_name = "DIALECT", value_parser = dialects(), hide_possible_values = true, help_heading = IUT)]
    pub(super) dialect: Option<String>,
    /// How processes connect: fd, port (PMI_PORT) or singleton
    #[arg(long, value_name = "WAY", default_value = "fd", hide_possible_values = true, conflicts_with = "memory", help_heading = IUT, hide_short_help = true)]
    pub(super) connection: ConnectionMethodArg,
    /// Control protocol of a bare hydra_pmi_proxy [default: detected]
    #[arg(long, value_name = "VERSION", requires = "server", help_heading = IUT, hide_short_help = true)]
    pub(super) family: Option<Family>,
    /// Optional operations that must be supported
    #[arg(long, value_name = "OPERATIONS", value_delimiter = ',', value_parser = optional(), hide_possible_values = true, help_heading = IUT, hide_short_help = true)]
    pub(super) has: Vec<String>,
    /// Operations to skip: spawn, names, pmi-1.2, keyval-spaces, alone
    #[arg(long, value_name = "OPERATIONS", value_delimiter = ',', value_parser = optional(), hide_possible_values = true, help_heading = IUT, hide_short_help = true)]
    pub(super) lacks: Vec<String>,
    /// Number of processes of a program
    #[arg(long, short = 'n', value_name = "N", default_value_t = 2, requires = "client", value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = IUT, hide_short_help = true)]
    pub(super) ranks: u32,
    /// Skip scenarios with more than N processes, without spawned ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = IUT, hide_short_help = true)]
    pub(super) max_ranks: Option<u32>,
    /// Skip scenarios that need more than N nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = IUT, hide_short_help = true)]
    pub(super) max_nodes: Option<u32>,
    /// Accept ranks on other machines: ADDRESS[:PORT[-PORT]]
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["memory", "client", "library"], help_heading = IUT, hide_short_help = true)]
    pub(super) listen: Option<String>,
    /// Path of the agent on remote machines [default: next to this command]
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = IUT, hide_short_help = true)]
    pub(super) agent: Option<PathBuf>,
    /// Test the in-memory reference server, without processes
    #[arg(long, conflicts_with = "server", help_heading = IUT, hide_short_help = true)]
    pub(super) memory: bool,

    /// Scenario files or folders [default: the embedded suite]
    #[arg(hide_short_help = true, help_heading = RUN)]
    pub(super) paths: Vec<PathBuf>,
    /// Only scenarios whose name contains this (wildcard *, exact =NAME)
    #[arg(long, short, value_name = "PATTERN", help_heading = RUN)]
    pub(super) filter: Vec<String>,
    /// Only scenarios that test this requirement (wildcard *)
    #[arg(long, value_name = "ID", help_heading = RUN)]
    pub(super) requirement: Vec<String>,
    /// Only part K of N
    #[arg(long, value_name = "K/N", value_parser = shard, help_heading = RUN, hide_short_help = true)]
    pub(super) shard: Option<(usize, usize)>,
    /// Only scenarios that are red in this log (NDJSON)
    #[arg(long, value_name = "LOG", help_heading = RUN, hide_short_help = true)]
    pub(super) rerun_failed: Option<PathBuf>,
    /// Parallel launches [default: number of processors]
    #[arg(long, short, value_name = "N", value_parser = positive, help_heading = RUN)]
    pub(super) jobs: Option<usize>,
    /// Longest wait for each step
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds, env = "PMI_CONFORM_TIMEOUT", hide_env = true, help_heading = RUN, hide_short_help = true)]
    pub(super) timeout: std::time::Duration,
    /// Longest wait for processes to start (longer on a loaded machine) [default: --timeout]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = RUN, hide_short_help = true)]
    pub(super) start_timeout: Option<std::time::Duration>,
    /// Play each scenario N times, and count the worst result
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = RUN, hide_short_help = true)]
    pub(super) repeat: Option<u32>,
    /// Replay red scenarios up to N times; one that then passes is FLAKY
    #[arg(long, value_name = "N", conflicts_with = "repeat", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = RUN)]
    pub(super) retries: Option<u32>,
    /// Stop after N red scenarios
    #[arg(long, value_name = "N", value_parser = positive, help_heading = RUN, hide_short_help = true)]
    pub(super) max_fail: Option<usize>,
    /// Continue even if five consecutive scenarios get no response
    #[arg(long, help_heading = RUN, hide_short_help = true)]
    pub(super) no_give_up: bool,

    /// Findings that are known and accepted (TOML)
    #[arg(long, value_name = "FILE", help_heading = RESULT)]
    pub(super) deviations: Option<PathBuf>,
    /// Write a draft with an entry for each cause that is not recorded
    #[arg(long, value_name = "FILE", help_heading = RESULT, hide_short_help = true)]
    pub(super) draft_deviations: Option<PathBuf>,
    /// Also fail on broken SHOULDs (LEVEL should, the default) or de facto requirements (de-facto)
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "should", value_parser = strictness(), hide_possible_values = true, help_heading = RESULT, hide_short_help = true)]
    pub(super) strict: Option<Strictness>,
    /// Also fail on these requirements: pmi2-draft, pmi2-mpich or mpich-1.2
    #[arg(long, value_name = "SET", help_heading = RESULT, value_delimiter = ',', value_parser = advisory_sets(), hide_possible_values = true, hide_short_help = true)]
    pub(super) against: Vec<String>,
    /// html, ndjson, json, junit, sarif, markdown, github, codequality, tap, terminal, sequence (charts), python=DIR (reproducers),
    /// pcapng=FILE (Wireshark)
    #[arg(long, value_name = "FORMAT[=FILE]", help_heading = RESULT)]
    pub(super) report: Vec<ReportSpec>,
    /// Print every scenario, and every finding in full
    #[arg(long, short, help_heading = RESULT)]
    pub(super) verbose: bool,
    /// Print only the index of causes and the summary
    #[arg(long, short, conflicts_with = "verbose", help_heading = RESULT)]
    pub(super) quiet: bool,
    /// Color: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true, help_heading = RESULT, hide_short_help = true)]
    pub(super) color: clap::ColorChoice,
}

#[derive(Args)]
#[command(after_help = DOCTOR_HELP)]
pub(super) struct Doctor {
    /// Process manager, as for a test [default: the built-in reference]
    #[arg(long, value_name = "CMD", env = "PMI_CONFORM_SERVER", hide_env = true)]
    pub(super) server: Option<String>,
    /// Command for several nodes
    #[arg(long, value_name = "CMD", requires = "server")]
    pub(super) server_nodes: Option<String>,
    /// Operations that the process manager lacks; they are not probed
    #[arg(long, value_name = "OPERATIONS", value_delimiter = ',', requires = "server", conflicts_with = "library", value_parser = PROBED_OPERATIONS)]
    pub(super) lacks: Vec<String>,
    /// Control protocol of a bare hydra_pmi_proxy [default: detected]
    #[arg(long, value_name = "VERSION", requires = "server")]
    pub(super) family: Option<Family>,
    /// Program that uses PMI
    #[arg(long, value_name = "CMD", conflicts_with = "server")]
    pub(super) client: Option<String>,
    /// PMI library; --server selects its process manager
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server_nodes", "family", "client"])]
    pub(super) library: Option<PathBuf>,
    /// Number of processes of a program
    #[arg(long, short = 'n', value_name = "N", default_value_t = 2, requires = "client", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) ranks: u32,
    /// How the process manager's processes connect
    #[arg(long, value_name = "WAY", default_value = "fd", value_parser = fd_or_port())]
    pub(super) connection: ConnectionMethodArg,
    /// Print the response to each offered version, and what follows it
    #[arg(long, conflicts_with_all = ["server_nodes", "family", "ranks", "connection", "start_timeout"])]
    pub(super) versions: bool,
    /// Longest wait for a response
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds, env = "PMI_CONFORM_TIMEOUT", hide_env = true)]
    pub(super) timeout: std::time::Duration,
    /// Longest wait for processes to start (longer on a loaded machine) [default: --timeout]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) start_timeout: Option<std::time::Duration>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
#[command(after_help = INIT_HELP)]
pub(super) struct Init {
    /// Process manager, as for a test
    #[arg(long, value_name = "CMD", env = "PMI_CONFORM_SERVER", hide_env = true)]
    pub(super) server: String,
    /// Operations that the process manager lacks; they are not probed
    #[arg(long, value_name = "OPERATIONS", value_delimiter = ',', value_parser = PROBED_OPERATIONS)]
    pub(super) lacks: Vec<String>,
    /// Parallel launches [default: number of processors]
    #[arg(long, short, value_name = "N", value_parser = positive)]
    pub(super) jobs: Option<usize>,
    /// Command for several nodes
    #[arg(long, value_name = "CMD")]
    pub(super) server_nodes: Option<String>,
    /// CI service to write a workflow for
    #[arg(long, value_name = "CI", default_value = "github", value_parser = ["github", "gitlab", "both", "none"])]
    pub(super) ci: String,
    /// Play each scenario N times, to detect intermittent findings
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) repeat: u32,
    /// Only scenarios whose name contains this (wildcard *)
    #[arg(long, short, value_name = "PATTERN")]
    pub(super) filter: Vec<String>,
    /// Longest wait for each step
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds, env = "PMI_CONFORM_TIMEOUT", hide_env = true)]
    pub(super) timeout: std::time::Duration,
    /// Longest wait for processes to start (longer on a loaded machine) [default: --timeout]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) start_timeout: Option<std::time::Duration>,
}

#[derive(Args)]
pub(super) struct Serve {
    /// Number of processes
    #[arg(short = 'n', long = "ranks", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) ranks: u32,
    /// Number of nodes in the process mapping
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) nodes: u32,
    /// Give the processes PMI_PORT instead of PMI_FD
    #[arg(long)]
    pub(super) pmi_port: bool,
    /// Run the processes on these hosts, in blocks, with one node per host; --launch starts them, and they connect to PMI_PORT
    #[arg(long, value_name = "HOST,HOST,...", value_delimiter = ',', requires = "launch", conflicts_with_all = ["nodes", "pmi_args"])]
    pub(super) hosts: Vec<String>,
    /// Command that starts a process on a host: 'ssh {host} {command}'; {command} is one word for the remote shell
    #[arg(long, value_name = "CMD", requires = "hosts")]
    pub(super) launch: Option<String>,
    /// Address at which the hosts reach this machine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", requires = "hosts")]
    pub(super) listen: std::net::IpAddr,
    /// Serve a process that is already running and listens on this port, like mpiexec -pmi_args
    #[arg(long, num_args = 4, value_names = ["PORT", "INTERFACE", "KEY", "PID"], conflicts_with_all = ["pmi_port", "ranks", "nodes", "command"])]
    pub(super) pmi_args: Vec<String>,
    /// Add this fault to the process manager; `pmi-conform suite mutants --list` lists the names
    #[arg(long, value_name = "NAME")]
    pub(super) fault: Option<String>,
    /// Add these unusual but conforming variations
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(super) vary: Vec<String>,
    /// Keep the state of the job in this file, for faults that occur only in the next job
    #[arg(long, value_name = "FILE", hide = true)]
    pub(super) state: Option<PathBuf>,
    /// Log the start and the end of each process
    #[arg(short, long)]
    pub(super) verbose: bool,
    /// The program and its arguments
    #[arg(required_unless_present = "pmi_args", trailing_var_arg = true)]
    pub(super) command: Vec<OsString>,
}

#[derive(Args)]
#[command(after_help = RECORD_HELP)]
pub(super) struct Record {
    /// Keep the session in this folder: its log, and scenarios that play it again
    #[arg(long, short, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// Also fail on this set of requirements: the draft, or MPICH's message table
    #[arg(long, value_name = "SET", value_delimiter = ',', value_parser = advisory_sets())]
    pub(super) against: Vec<String>,
    /// Print every finding in full
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// Command of the job; if the launcher is unknown, write {tap} before the program
    #[arg(required = true, trailing_var_arg = true)]
    pub(super) command: Vec<String>,
}

#[derive(Args)]
#[command(after_help = INTEROP_HELP)]
pub(super) struct Interop {
    /// Program with its arguments; may be given several times
    #[arg(long, value_name = "CMD", requires = "manager", required_unless_present = "client_log")]
    pub(super) program: Vec<String>,
    /// Process manager: mpiexec, mpirun, srun, or a command with {ranks} and {program}; may be given several times
    #[arg(long, value_name = "CMD", requires = "program")]
    pub(super) manager: Vec<String>,
    /// Number of processes
    #[arg(short = 'n', long = "ranks", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) ranks: u32,
    /// Longest time for one program under one process manager
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(super) timeout: std::time::Duration,
    /// Also fail on this set of requirements: the draft, or MPICH's message table
    #[arg(long, value_name = "SET", value_delimiter = ',', value_parser = advisory_sets())]
    pub(super) against: Vec<String>,
    /// Log or recording of a program or library; may be given several times
    #[arg(long, value_name = "LOG", requires = "server_log", conflicts_with_all = ["program", "manager", "ranks", "timeout", "against"])]
    pub(super) client_log: Vec<PathBuf>,
    /// Log or recording of a process manager; may be given several times
    #[arg(long, value_name = "LOG", requires = "client_log")]
    pub(super) server_log: Vec<PathBuf>,
    /// Print JSON, with every finding
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
pub(super) struct HydraUpstream {
    /// The proxy
    #[arg(long)]
    pub(super) proxy: PathBuf,
    /// Control protocol of the proxy
    #[arg(long)]
    pub(super) family: Family,
    /// Make the proxy give its processes PMI_PORT
    #[arg(long)]
    pub(super) pmi_port: bool,
    /// Number of processes
    #[arg(short = 'n', long = "ranks", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) ranks: u32,
    /// Number of proxies
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) nodes: u32,
    /// Longest wait for a proxy to start its processes, and to exit after they end
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(super) patience: std::time::Duration,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    pub(super) command: Vec<OsString>,
}

#[derive(Args)]
pub(super) struct Coverage {
    /// Log of a run to evaluate (NDJSON) [default: a run of the reference in memory]
    #[arg(long, value_name = "LOG")]
    pub(super) log: Vec<PathBuf>,
    /// Fail if a requirement is neither tested nor excluded, if no fault shows that a requirement is tested, or if an empty cell of the input space is unexplained
    #[arg(long)]
    pub(super) check: bool,
    /// Print the input space instead: in which states and with which kinds of arguments each operation is played
    #[arg(long, conflicts_with = "log")]
    pub(super) inputs: bool,
}

#[derive(Args)]
pub(super) struct Mutants {
    /// Scenario files or folders [default: the embedded suite]
    pub(super) paths: Vec<PathBuf>,

    /// Only faults and variations whose name contains this (wildcard *)
    #[arg(long, short, value_name = "PATTERN")]
    pub(super) filter: Vec<String>,
    /// Print JSON, with every scenario that found something, and play each variation alone
    #[arg(long)]
    pub(super) json: bool,
    /// List faults and variations without playing them
    #[arg(long)]
    pub(super) list: bool,
    /// Faults to play in parallel [default: number of processors]
    #[arg(long, short, value_name = "N", value_parser = positive)]
    pub(super) jobs: Option<usize>,
    /// Play the faults of programs instead, against this program; {fault} is replaced with the name of each fault
    #[arg(long, value_name = "CMD", conflicts_with = "list")]
    pub(super) client: Option<String>,
    /// Play the faults of libraries instead, against this library; LIBRARY_FAULT contains the name of a fault
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "client"])]
    pub(super) library: Option<PathBuf>,
    /// Dialect of the program or library: pmi-1.1 or pmi-2
    #[arg(long, value_name = "DIALECT", default_value = "pmi-1.1", value_parser = one_dialect(), hide_possible_values = true)]
    pub(super) dialect: Dialect,
}

/// Headings of the options of `fuzz`.
const CAMPAIGN: &str = "Campaign";
const FINDINGS: &str = "Findings";

#[derive(Args)]
#[command(after_help = "\
Exit codes:
  0    nothing new was found
  1    something new was found, or a replayed finding still occurs
  2    usage error
  3    no session could be judged
  130  interrupted")]
pub(super) struct Fuzz {
    /// Process manager, as for a test [default: the built-in reference]
    #[arg(long, value_name = "CMD", env = "PMI_CONFORM_SERVER", hide_env = true, help_heading = IUT)]
    pub(super) server: Option<String>,
    /// Find differences between two or more process managers instead
    #[arg(long, value_name = "CMD", num_args = 2.., conflicts_with_all = ["server", "family"], help_heading = IUT)]
    pub(super) differential: Vec<String>,
    /// Program, which gets unusual and invalid responses
    #[arg(long, value_name = "CMD", conflicts_with_all = ["server", "differential", "library", "has", "lacks"], help_heading = IUT)]
    pub(super) client: Option<String>,
    /// PMI library, with generated calls and unusual and invalid responses
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "differential", "has", "lacks"], help_heading = IUT)]
    pub(super) library: Option<PathBuf>,
    /// Protocol of the sessions: pmi-1.1, pmi-2, or all (each session uses one) [default: pmi-1.1 for a server, the one that a
    /// program offers, all APIs of a library]
    #[arg(long, value_name = "DIALECT", help_heading = IUT, value_parser = dialects(), hide_possible_values = true)]
    pub(super) dialect: Option<String>,
    /// Control protocol of a bare hydra_pmi_proxy [default: detected]
    #[arg(long, value_name = "VERSION", requires = "server", help_heading = IUT)]
    pub(super) family: Option<Family>,
    /// How processes connect: fd, or port (PMI_PORT)
    #[arg(long, value_name = "WAY", default_value = "fd", value_parser = fd_or_port(), hide_possible_values = true, conflicts_with_all = ["client", "library"], help_heading = IUT)]
    pub(super) connection: ConnectionMethodArg,
    /// Accept connections that agents on other machines relay: ADDRESS[:PORT[-PORT]]
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["client", "library"], help_heading = IUT)]
    pub(super) listen: Option<String>,
    /// Path of the agent on remote machines [default: next to this command]
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = IUT)]
    pub(super) agent: Option<PathBuf>,
    /// Optional operations to use [default: those that a probe finds]
    #[arg(long, value_name = "OPERATIONS", value_delimiter = ',', value_parser = OF_SESSIONS, help_heading = IUT)]
    pub(super) has: Vec<String>,
    /// Optional operations to leave out
    #[arg(long, value_name = "OPERATIONS", value_delimiter = ',', value_parser = OF_SESSIONS, hide_possible_values = true, help_heading = IUT)]
    pub(super) lacks: Vec<String>,
    /// Also report violations of this set of requirements: the draft, or MPICH's message table
    #[arg(long, value_name = "SET", help_heading = IUT, value_delimiter = ',', value_parser = advisory_sets())]
    pub(super) against: Vec<String>,

    /// Seed for the whole campaign [default: random; it is printed]
    #[arg(long, value_name = "N", help_heading = CAMPAIGN)]
    pub(super) seed: Option<u64>,
    /// End after N sessions
    #[arg(long, value_name = "N", help_heading = CAMPAIGN)]
    pub(super) sessions: Option<u64>,
    /// End after this time [default: 60, unless --sessions is given]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = CAMPAIGN)]
    pub(super) time: Option<std::time::Duration>,
    /// Parallel sessions [default: number of processors]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = CAMPAIGN)]
    pub(super) workers: Option<usize>,
    /// Maximum number of ranks in a session; free sessions may have more, and 1 disables them
    #[arg(long, short = 'n', value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4), help_heading = CAMPAIGN)]
    pub(super) ranks: u32,
    /// Send only valid input: sessions follow the standard, and a finding counts only if valid input reaches it
    #[arg(long, help_heading = CAMPAIGN)]
    pub(super) valid: bool,
    /// Longest wait for a response
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds, help_heading = CAMPAIGN)]
    pub(super) timeout: std::time::Duration,
    /// Folder of the campaign and its findings
    #[arg(long, value_name = "DIR", default_value = "pmi-conform-fuzz", help_heading = CAMPAIGN)]
    pub(super) out: PathBuf,
    /// Continue the campaign in the --out folder; its findings count as known
    #[arg(long, help_heading = CAMPAIGN)]
    pub(super) resume: bool,
    /// Also mutate the sessions in this folder: another campaign's corpus, or scenarios; may be given several times
    #[arg(long, value_name = "DIR", help_heading = CAMPAIGN)]
    pub(super) corpus: Vec<PathBuf>,
    /// Play each session of --corpus once, unchanged, and no others
    #[arg(long, requires = "corpus", conflicts_with_all = ["sessions", "time", "resume", "seed"], help_heading = CAMPAIGN)]
    pub(super) only_corpus: bool,
    /// Write to this folder a small subset of the --corpus sessions that has the same coverage and findings
    #[arg(long, value_name = "NEW", requires = "corpus", conflicts_with_all = ["only_corpus", "client", "library", "replay"], help_heading = CAMPAIGN)]
    pub(super) minimize_corpus: Option<PathBuf>,
    /// Known buckets and excluded commands (TOML)
    #[arg(long, value_name = "FILE", help_heading = CAMPAIGN)]
    pub(super) known: Option<PathBuf>,

    /// Replay a finding several times; DIR is its folder, or a scenario file
    #[arg(long, value_name = "DIR", help_heading = FINDINGS)]
    pub(super) replay: Option<PathBuf>,
    /// Export the findings in the --out folder as scenarios to this folder
    #[arg(long, value_name = "DIR", help_heading = FINDINGS)]
    pub(super) export: Option<PathBuf>,
    /// Write a draft for --known, with an entry for each bucket
    #[arg(long, value_name = "FILE", conflicts_with_all = ["replay", "export", "minimize_corpus"], help_heading = FINDINGS)]
    pub(super) draft_known: Option<PathBuf>,
    /// Also write a report: json, sarif, junit or html
    #[arg(long, value_name = "FORMAT=FILE", value_parser = fuzz_report, help_heading = FINDINGS)]
    pub(super) report: Vec<(CampaignFormat, PathBuf)>,
}

/// Optional operations that `doctor` probes and `measure` measures.
const PROBED_OPERATIONS: [&str; 2] = ["spawn", "names"];

/// Optional operations that campaigns can use.
const OF_SESSIONS: [&str; 3] = ["spawn", "names", "pmi-1.2"];

fn fuzz_report(text: &str) -> anyhow::Result<(CampaignFormat, PathBuf)> {
    let spec = text.split_once('=').filter(|(_, file)| !file.is_empty());
    let spec = spec.and_then(|(name, file)| Some((CampaignFormat::from_str(name, false).ok()?, file.into())));
    spec.context("use json=FILE, sarif=FILE, junit=FILE or html=FILE")
}

#[derive(Args)]
#[command(after_help = REPORT_HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Report {
    #[command(subcommand)]
    pub(super) command: Option<ReportCommand>,
    /// Log of `--report ndjson=FILE` or `record -o`
    #[arg(required = true)]
    pub(super) log: Option<PathBuf>,
    /// html, sequence (charts), ndjson, json, junit, tap, markdown, github, codequality, sarif, terminal, pcapng (for Wireshark), or python
    /// (with -o, a folder of standalone reproducers)
    #[arg(long, value_name = "FORMAT", default_value = "terminal", hide_possible_values = true)]
    pub(super) format: Format,
    /// Lowest level of requirement whose violation fails a scenario: must, should (the default LEVEL) or de-facto [default: as in the run]
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "should", value_parser = strictness())]
    pub(super) strict: Option<Strictness>,
    /// File for the report [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Only charts of scenarios whose name contains this (wildcard *)
    #[arg(long, short, value_name = "PATTERN")]
    pub(super) filter: Vec<String>,
    /// In the terminal format, print every scenario, and every finding in full
    #[arg(long, short)]
    pub(super) verbose: bool,
}

#[derive(Subcommand)]
pub(super) enum ReportCommand {
    /// Judge a log again from its events
    Judge(Again),
    /// Show the differences between two runs; exit with 1 if there are any
    Compare(Compare),
    /// Find the version that introduced or fixed each finding
    Bisect(Bisect),
    /// Write pages with many runs side by side: requirement by implementation
    Matrix(Matrix),
}

#[derive(Args)]
pub(super) struct Again {
    /// Log of `--report ndjson=FILE` or `record -o`
    pub(super) log: PathBuf,
    /// Findings that are known and accepted (TOML)
    #[arg(long, value_name = "FILE")]
    pub(super) deviations: Option<PathBuf>,
    /// Also fail on this set of requirements: the draft, or MPICH's message table
    #[arg(long, value_name = "SET", value_delimiter = ',', value_parser = advisory_sets())]
    pub(super) against: Vec<String>,
    /// Lowest level of requirement whose violation fails a scenario: must, should (the default LEVEL) or de-facto [default: as in the run]
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "should", value_parser = strictness())]
    pub(super) strict: Option<Strictness>,
    /// html, sequence, ndjson, json, junit, tap, markdown, github, codequality, sarif or terminal
    #[arg(long, value_name = "FORMAT", default_value = "terminal", hide_possible_values = true)]
    pub(super) format: Format,
    /// In the terminal format, print every scenario, and every finding in full
    #[arg(long, short)]
    pub(super) verbose: bool,
}

/// The changes that make `report compare` exit with status 1.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FailOn {
    /// Any change
    Any,
    /// A new finding other than a note, or a worse verdict
    New,
}

#[derive(Args)]
pub(super) struct Compare {
    /// Log of the first run (NDJSON)
    pub(super) before: PathBuf,
    /// Log of the second run
    pub(super) after: PathBuf,
    /// Changes for which the exit status is 1
    #[arg(long, value_name = "CHANGE", default_value = "any")]
    pub(super) fail_on: FailOn,
    /// Name the scenarios that only one of the runs played
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
#[command(after_help = BISECT_HELP)]
pub(super) struct Bisect {
    /// Logs of earlier runs, the oldest version first; NAME=FILE names the version
    #[arg(value_name = "[NAME=]LOG", conflicts_with = "server")]
    pub(super) logs: Vec<String>,
    /// Version of the process manager, as for a test; repeat the option for each version, the oldest first
    #[arg(long, value_name = "CMD", required_unless_present = "logs")]
    pub(super) server: Vec<String>,
    /// Only scenarios whose name contains this (wildcard *)
    #[arg(long, short, value_name = "PATTERN", conflicts_with = "logs")]
    pub(super) filter: Vec<String>,
    /// Only scenarios that test this requirement
    #[arg(long, value_name = "ID", conflicts_with = "logs")]
    pub(super) requirement: Vec<String>,
    /// Replay each scenario with differing results N times on each version, to distinguish change from chance
    #[arg(long, value_name = "N", default_value_t = 25, conflicts_with = "logs", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) repeat: u32,
    /// Protocol
    #[arg(long, value_name = "DIALECT", value_parser = dialects(), conflicts_with = "logs")]
    pub(super) dialect: Option<String>,
    /// Parallel launches [default: number of processors]
    #[arg(long, short, value_name = "N", value_parser = positive, conflicts_with = "logs")]
    pub(super) jobs: Option<usize>,
    /// Longest wait for each step
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds, env = "PMI_CONFORM_TIMEOUT", hide_env = true)]
    pub(super) timeout: std::time::Duration,
    /// Also print findings that every version has, and all scenarios
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
pub(super) struct Matrix {
    /// Logs (NDJSON) in the order of the columns; NAME=FILE names the implementation
    #[arg(required_unless_present = "interop", value_name = "[NAME=]LOG")]
    pub(super) logs: Vec<String>,
    /// Add a table of programs and process managers: the output of `interop --json`; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(super) interop: Vec<PathBuf>,
    /// Treat runs of the same kind as versions, the oldest first, and show which version introduced or fixed each finding
    #[arg(long)]
    pub(super) history: bool,
    /// Folder for index.html, matrix.json, RESULTS.md, and a page and a badge for each run
    #[arg(long, short, value_name = "DIR")]
    pub(super) output: PathBuf,
}

#[derive(Args)]
#[command(after_help = MEASURE_HELP)]
pub(super) struct Measure {
    /// Process manager, as for a test; several are measured in turn and compared with the first [default: the built-in reference]
    #[arg(long, value_name = "CMD")]
    pub(super) server: Vec<String>,
    /// Numbers of ranks
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1,2,4,8,16", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) ranks: Vec<u32>,
    /// Nodes over which the ranks are spread
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) nodes: u32,
    /// Launches for each number of ranks; the median is reported
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: u32,
    /// Run a soak test for this time instead: make requests with the largest number of ranks, check the history, and sample memory and descriptors
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with_all = ["rounds", "budget"])]
    pub(super) soak: Option<std::time::Duration>,
    /// Requests of a soak test, distributed evenly over its duration
    #[arg(long, value_name = "N", default_value = "100000", requires = "soak", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) requests: u64,
    /// Longest allowed time of a phase, as in `barrier=0.05`; exit with 1 if the phase takes longer
    #[arg(long, value_name = "PHASE=SECONDS", value_parser = budget)]
    pub(super) budget: Vec<(MeasuredPhase, f64)>,
    /// Longest wait for a response
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(super) timeout: std::time::Duration,
    /// Protocol of the ranks
    #[arg(long, value_name = "DIALECT", default_value_t, value_parser = one_dialect())]
    pub(super) dialect: Dialect,
    /// Operations to leave out
    #[arg(long, value_name = "OPERATIONS", value_delimiter = ',', value_parser = PROBED_OPERATIONS)]
    pub(super) lacks: Vec<String>,
    /// Print JSON, in seconds and bytes
    #[arg(long)]
    pub(super) json: bool,
    /// Also write a page with plots: html=FILE
    #[arg(long, value_name = "html=FILE", value_parser = page)]
    pub(super) report: Option<PathBuf>,
}

/// Parses `--report` for a command whose only report format is an HTML page.
fn page(given: &str) -> anyhow::Result<PathBuf> {
    let file = given.strip_prefix("html=").filter(|file| !file.is_empty());
    file.map(PathBuf::from).context("use html=FILE")
}

/// Returns the parser for a single dialect.
fn one_dialect() -> impl TypedValueParser<Value = Dialect> {
    PossibleValuesParser::new(Dialect::WORDS).map(|given| given.parse().unwrap_or_default())
}

/// Returns the parser for `--connection` of a command that cannot start a singleton.
fn fd_or_port() -> impl TypedValueParser<Value = ConnectionMethodArg> {
    PossibleValuesParser::new(["fd", "port"])
        .map(|given| if given == "port" { ConnectionMethodArg::Port } else { ConnectionMethodArg::Fd })
}

/// Parses the value of `measure --budget`.
fn budget(given: &str) -> anyhow::Result<(MeasuredPhase, f64)> {
    let (name, most) = given.split_once('=').context("use PHASE=SECONDS, as in barrier=0.05")?;
    let known = MeasuredPhase::NAMES.into_iter().find(|(known, _)| *known == name);
    let (_, phase) = known.with_context(|| {
        let names: Vec<&str> = MeasuredPhase::NAMES.into_iter().map(|(name, _)| name).collect();
        format!("unknown phase \"{name}\"; the phases are {}", names.join(", "))
    })?;
    let most = most.parse().ok().filter(|most: &f64| most.is_finite() && *most >= 0.0);
    Ok((phase, most.with_context(|| format!("invalid number of seconds \"{given}\""))?))
}

/// Returns the parser for the sets of requirements whose violations are red only with `--against`.
fn advisory_sets() -> PossibleValuesParser {
    PossibleValuesParser::new(ADVISORY_SETS.iter().map(|(set, _)| *set))
}

/// Returns the parser for the values of `--dialect`.
fn dialects() -> PossibleValuesParser {
    PossibleValuesParser::new(Dialect::WORDS.into_iter().chain(["all"]))
}

/// Returns the parser for the level of `--strict`.
fn strictness() -> impl TypedValueParser<Value = Strictness> {
    PossibleValuesParser::new(Strictness::NAMES.map(|(name, _)| name)).map(|given| {
        let known = Strictness::NAMES.into_iter().find(|(name, _)| *name == given);
        known.map(|(_, level)| level).unwrap_or_default()
    })
}

fn shard(text: &str) -> anyhow::Result<(usize, usize)> {
    let parse = || {
        let (k, n) = text.split_once('/')?;
        let (k, n) = (k.parse().ok()?, n.parse().ok()?);
        (1 <= k && k <= n).then_some((k, n))
    };
    parse().context("use K/N with K from 1 to N, for example 1/3")
}

fn positive(text: &str) -> anyhow::Result<usize> {
    text.parse().ok().filter(|n| *n > 0).context("use a number of at least 1")
}

fn seconds(text: &str) -> anyhow::Result<std::time::Duration> {
    let number = text.parse::<f64>().ok().filter(|s| (0.01..=86_400.0).contains(s));
    number.map(std::time::Duration::from_secs_f64).context("use a number of seconds from 0.01 to 86400")
}

/// Returns the number of jobs to run at the same time: the requested number or, by default, the number of processors.
pub(super) fn side_by_side(requested: Option<usize>) -> usize {
    requested.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}
