//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::report::{CampaignFormat, Format, ReportSpec, UnknownFormat};
use anyhow::{Context, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use pmi_judge::verdict::Strictness;
use pmi_runner::measure::Phase;
use pmi_scenario::ast::{Dialect, Need};
use pmi_scenario::requirement::ADVISORY_SETS;
use pmi_wire::hydra::Family;

/// The operations that an implementation may lack, for `--has` and `--lacks`.
fn optional() -> PossibleValuesParser {
    Need::optional().map(|(word, _)| word).collect::<Vec<_>>().into()
}

const EXIT_CODES: &str = "\
Exit codes:
  0    conforms, or deviates only as recorded (broken SHOULDs are shown)
  1    a MUST or SHALL is broken (--strict: or a SHOULD), a crash, a hang, or a stale deviation
  2    usage error, or a mistake in a scenario
  3    the harness could not judge a scenario
  4    nothing was judged
  130  interrupted";

const RECORD_HELP: &str = "\
The job's standard streams and its signals are its own; the report goes to standard error.

Exit codes:
  0    both sides conform (broken SHOULDs are shown)
  1    a MUST or SHALL is broken, by the process manager or by the program
  2    usage error
  3    nothing was recorded, or not all";

const VERSIONS_HELP: &str = "\
Of a server: each offer of a version, what it answers, and whether the next request on that connection is answered (in PMI-2 where
that was agreed on). Of a program or a library: what it offers, each answer, and what it does then. A line is a launch or two.

Exit codes:
  0    the table is shown
  2    usage error
  3    nothing could be started, or nothing was offered";

const MEASURE_HELP: &str = "\
All ranks ask at once; the time is that until the last has its answer. One process speaks for all of them, so that every number holds some
microseconds of ours for each message. `grows as` is the power of the number of ranks that fits best. Spawn and names are left out where
they are refused; where a manager does something worse, say --lacks.

Exit codes:
  0    everything was measured
  1    a budget was exceeded
  2    usage error
  3    something could not be measured";

const DOCTOR_HELP: &str = "\
A few launches, one for each question: does it start, are there connections, which versions are taken, does a session come through, are
there two nodes, spawn and names, and how is silence known.

Exit codes:
  0    it can be judged
  1    it cannot: a step fails, and nothing was tried that needs it
  2    usage error, or there is no such command
  3    it is a proxy that is spoken to in the wrong way";

const BISECT_HELP: &str = "\
Neighbouring versions are compared as `compare` does: what a scenario finds in one and not in the one before it, that version has brought, and
what it finds no more, that version has mended. What one of the two could not be asked, or did not play, is no change. Deviations do
not count. Scenarios in which versions differ are played again on each (see `--repeat`), so that no version is blamed for an intermittent failure: its
frequency is listed.

Exit codes:
  0    no version has brought anything that is bad
  1    one has
  2    usage error
  3    of a version, nothing could be judged
  130  interrupted";

const INIT_HELP: &str = "\
In the current folder: pmi-conform.toml, the profile; pmi-conform-deviations.toml, a draft of what was found, an entry for each cause; and
.github/workflows/pmi-conform.yml or .gitlab/pmi-conform.yml. Nothing is written over what is there.

Exit codes:
  0    the files are written, whatever was found
  1    it cannot be judged: what `doctor` says of it is shown
  2    usage error, or a file is there already
  130  interrupted";

const COMPATIBILITY_HELP: &str = "\
Nothing is run: what the server sends in its logs is held against what the client went on from in its own, and the
client's requests against what the server accepted. Where answers lack a field on purpose, as in a run against
programs or libraries, it shows what is needed; a recording shows what was there when it worked.

Exit codes: 0 nothing is known to break, 1 a message is not understood, 3 no message is known to be.";

const INTEROP_HELP: &str = "\
Exit codes:
  0    every job ended with status 0 and neither side broke a MUST
  1    a job hung or ended otherwise, or a MUST is broken
  2    usage error
  3    a job could not be judged
  130  interrupted";

/// Judge a PMI-1 implementation, a process manager, a program or a library, against Flux RFC 13.
///
/// Without --server and --client it judges the reference process manager that is built in.
#[derive(Parser)]
#[command(name = "pmi-conform", version, after_help = EXIT_CODES, args_conflicts_with_subcommands = true)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    #[command(flatten)]
    pub(super) play: Play,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Look whether something can be judged here, step by step, and say what to write into its profile
    Doctor(Doctor),
    /// Write what a repository needs to have its process manager judged: a profile, what it is known to do differently, a file for CI
    Init(Init),
    /// Run a program under the reference process manager
    Serve(Serve),
    /// Play mpiexec to a hydra_pmi_proxy: what --server makes of one
    #[command(hide = true)]
    HydraUpstream(HydraUpstream),
    /// Run a job with a tap between the process manager and its programs, and judge both
    Record(Record),
    /// Run programs under process managers through the tap, each under each, and say who errs
    Interop(Interop),
    /// Load a library and make the calls that the runner says: what --library starts
    #[command(hide = true)]
    LibraryAgent {
        /// The library
        library: PathBuf,
    },
    /// List the profiles that are built in, for --server @NAME
    Profiles {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// List the requirements
    Requirements {
        /// As JSON
        #[arg(long)]
        json: bool,
        /// Write them to this folder as the book has them: a page for each source, and the errata
        #[arg(long, value_name = "DIR", conflicts_with = "json")]
        pages: Option<PathBuf>,
    },
    /// Explain a requirement (its tests, and the implementations known to break it), a scenario or an operation
    Explain {
        /// A requirement, rule, scenario, operation, command or function, e.g. rfc13.put.unique, kvs/get-of-nothing, put, PMI2_KVS_Put
        id: String,
    },
    /// Show a scenario or a fragment of the embedded suite
    Show {
        /// Its name, as in --list and in reports
        name: String,
        /// Spell its operations in this dialect, and show the fragments that it uses
        #[arg(long, value_parser = one_dialect())]
        dialect: Option<Dialect>,
    },
    /// Show which requirements the scenarios test
    Coverage(Coverage),
    /// Show that the suite can fail: play it against every fault and variation of the reference server
    Mutants(Mutants),
    /// Look for what nobody wrote a scenario for: play generated sessions against a process manager
    Fuzz(Box<Fuzz>),
    /// Look for mistakes in scenario files
    Check {
        /// Files or folders; the embedded suite if none are given
        paths: Vec<PathBuf>,
    },
    /// Lay out scenario files
    Fmt {
        /// Change nothing; fail if something would change
        #[arg(long)]
        check: bool,
        /// Files or folders
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Judge the log of a run again, by the events in it
    Judge(Again),
    /// Render the log of a run as another report
    Report(Report),
    /// Show what changed between two runs, in what both have played; exit 1 if something did
    Compare(Compare),
    /// Play the suite on several versions of a process manager, and say of each finding which version brought or mended it
    Bisect(Bisect),
    /// Write pages that show many runs beside each other: which requirement which implementation keeps
    Matrix(Matrix),
    /// Show whether a client and a server can talk to each other, by logs of each; exit 1 if a message is not understood
    Compatibility(Compatibility),
    /// Show which versions a server answers to each offer, or what a program or a library makes of each answer
    Versions(Versions),
    /// Measure how long a process manager takes to start ranks, and for what they ask, by their number
    Measure(Measure),
    /// Print the JSON schema of a line of the log
    Schema,
    /// Print a completion script
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages
    Man {
        /// Into which folder
        dir: PathBuf,
    },
}

#[derive(Args)]
pub(super) struct Play {
    /// Scenario files or folders to play instead of the embedded suite
    pub(super) paths: Vec<PathBuf>,

    /// The implementation under test: a launcher (mpiexec, srun, flux ...) or a hydra_pmi_proxy, a command with {ranks} and {agent}
    /// (also {nodes} or {hosts}), or @PROFILE
    #[arg(long, value_name = "CMD", env = "PMI_CONFORM_SERVER", help_heading = "What is tested")]
    pub(super) server: Option<String>,
    /// The command for scenarios on several nodes, with {agent}, {ranks} and {nodes} or {hosts}
    #[arg(long, value_name = "CMD", requires = "server", help_heading = "What is tested")]
    pub(super) server_nodes: Option<String>,
    /// The control protocol that a hydra_pmi_proxy speaks, where it is not the one that its version tells
    #[arg(long, value_name = "VERSION", requires = "server", help_heading = "What is tested")]
    pub(super) family: Option<Family>,
    /// A PMI library to judge, libpmi.so.0: its calls, and what it says to a process manager, which we are. With --server, its calls
    /// under that one
    #[arg(
        long,
        value_name = "FILE",
        env = "PMI_CONFORM_LIBRARY",
        conflicts_with = "memory",
        help_heading = "What is tested"
    )]
    pub(super) library: Option<PathBuf>,
    /// Optional operations that it offers, so that lacking them is a failure
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = optional(), help_heading = "What is tested")]
    pub(super) has: Vec<String>,
    /// Optional operations that it lacks: their scenarios do not apply
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = optional(), help_heading = "What is tested")]
    pub(super) lacks: Vec<String>,
    /// The program under test: it is started under the reference process manager, which plays every lawful and unlawful
    /// part that the scenarios give it
    #[arg(long, value_name = "CMD", conflicts_with_all = ["server", "library", "memory", "has", "lacks"], help_heading = "What is tested")]
    pub(super) client: Option<String>,
    /// How processes get their connections: fd, which they inherit (PMI_FD), port, where they make them (PMI_PORT), or singleton: one
    /// process, not started by the process manager, that asks for one (mpiexec -pmi_args); a program under test is started so too, and
    /// finds ours under the name mpiexec where it is a singleton
    #[arg(long, value_name = "WAY", default_value = "fd", value_parser = ["fd", "port", "singleton"], conflicts_with = "memory", help_heading = "What is tested")]
    pub(super) connection: String,
    /// Processes of the job run where they cannot hand over their connections, on other machines: they relay them to this address, by
    /// which this machine is reached from there. ADDRESS:PORT or ADDRESS:FIRST-LAST names the ports, one for each launch that may be
    /// open at once: twice as many as work side by side, or one if only one does
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["memory", "client", "library"], help_heading = "What is tested")]
    pub(super) listen: Option<String>,
    /// Where the agent is on the machines of the job: a file pmi-conform-agent, which may be a link to pmi-conform [default: beside
    /// this command]
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = "What is tested")]
    pub(super) agent: Option<PathBuf>,
    /// Number of processes of the program under test, where a scenario does not say it
    #[arg(long, short = 'n', value_name = "N", default_value_t = 2, requires = "client", value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = "What is tested")]
    pub(super) ranks: u32,
    /// Judge the reference server in memory, without processes
    #[arg(long, conflicts_with = "server", help_heading = "What is tested")]
    pub(super) memory: bool,

    /// Play only scenarios whose name contains this, or fits it where it has a *; `=NAME` for exactly one. Several add up
    #[arg(long, short, value_name = "PATTERN", help_heading = "Selection")]
    pub(super) filter: Vec<String>,
    /// Play only scenarios that test this requirement (* allowed)
    #[arg(long, value_name = "ID", help_heading = "Selection")]
    pub(super) requirement: Vec<String>,
    /// Play the Kth of N parts of the selection
    #[arg(long, value_name = "K/N", value_parser = shard, help_heading = "Selection")]
    pub(super) shard: Option<(usize, usize)>,
    /// Play only what was red in this log (ndjson)
    #[arg(long, value_name = "LOG", help_heading = "Selection")]
    pub(super) rerun_failed: Option<PathBuf>,
    /// List the selected scenarios and play nothing
    #[arg(long, help_heading = "Selection")]
    pub(super) list: bool,

    /// Launches at work side by side; with more than one, a launch that only waits makes room for another [default: number of
    /// processors]
    #[arg(long, short, value_name = "N", value_parser = positive, help_heading = "How it runs")]
    pub(super) jobs: Option<usize>,
    /// Longest wait for what a step expects, in seconds; for a program under test, how long it may do nothing that can be
    /// seen
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds, env = "PMI_CONFORM_TIMEOUT", help_heading = "How it runs")]
    pub(super) timeout: std::time::Duration,
    /// The same for processes that are to be started, until they report or, of a program under test, say something [default: as --timeout]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "How it runs")]
    pub(super) start_timeout: Option<std::time::Duration>,
    /// Most processes of a job: what needs more does not apply
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "What is tested")]
    pub(super) max_ranks: Option<u32>,
    /// Most nodes of a job
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "What is tested")]
    pub(super) max_nodes: Option<u32>,
    /// Stop after so many red scenarios
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "How it runs")]
    pub(super) max_fail: Option<usize>,

    /// Play each scenario so many times; the worst counts, and it is told how often it was red
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "How it runs")]
    pub(super) repeat: Option<u32>,
    /// Play a scenario that is red or misses a recorded deviation again, up to N times. One that is not red in the end is flaky, which is
    /// reported and makes nothing red, unless the failure depends on other jobs that run at the same time
    #[arg(long, value_name = "N", conflicts_with = "repeat", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "How it runs")]
    pub(super) retries: Option<u32>,

    /// Try every scenario, even if nothing was started or answered in five in a row
    #[arg(long, help_heading = "How it runs")]
    pub(super) no_give_up: bool,

    /// Findings that are known and accepted (TOML)
    #[arg(long, value_name = "FILE", help_heading = "Verdict")]
    pub(super) deviations: Option<PathBuf>,
    /// The protocol that is spoken: pmi-1.1, pmi-2, or all that the server takes an offer of; pmi-1.1 with --server, else all
    #[arg(long, value_name = "DIALECT", help_heading = "Verdict", value_parser = dialects())]
    pub(super) dialect: Option<String>,
    /// Judge by a set of requirements that is only told otherwise: pmi2-draft (MPICH's draft), pmi2-mpich (its message table)
    #[arg(long, value_name = "SET", help_heading = "Verdict", value_delimiter = ',', value_parser = advisory_sets())]
    pub(super) against: Vec<String>,
    /// Which broken requirements are red, as profiles may say too: must, the MUSTs and SHALLs; should, also the SHOULDs
    /// (without a level, this); de-facto, also what implementations agree on beyond the specification [default: must]
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "should", value_parser = strictness(), help_heading = "Verdict")]
    pub(super) strict: Option<Strictness>,
    /// Write a deviations file with what no deviation covers, an entry for each cause. The reasons are left to you; with --repeat, what
    /// happens only sometimes is told from the rest
    #[arg(long, value_name = "FILE", help_heading = "Verdict")]
    pub(super) draft_deviations: Option<PathBuf>,

    /// Also report as html (a page), ndjson (the log), json, junit, tap, markdown, github (annotations), codequality (GitLab's), sarif,
    /// terminal or sequence (charts of who said what), to standard output or `FORMAT=FILE`; python=DIR is a folder with a standalone
    /// program for each red finding
    #[arg(long, value_name = "FORMAT[=FILE]", help_heading = "Output")]
    pub(super) report: Vec<ReportSpec>,
    /// Show every scenario, and every finding in full
    #[arg(long, short, help_heading = "Output")]
    pub(super) verbose: bool,
    /// Show only the index of causes and the summary
    #[arg(long, short, conflicts_with = "verbose", help_heading = "Output")]
    pub(super) quiet: bool,
    /// Colours
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = "Output")]
    pub(super) color: clap::ColorChoice,
    /// Write the embedded scenarios, fragments and requirements to this folder and play nothing
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(super) export: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = DOCTOR_HELP)]
pub(super) struct Doctor {
    /// A process manager, as for judging [default: the built-in reference process manager]
    #[arg(long, value_name = "CMD", env = "PMI_CONFORM_SERVER")]
    pub(super) server: Option<String>,
    /// The command for several nodes, as for judging
    #[arg(long, value_name = "CMD", requires = "server")]
    pub(super) server_nodes: Option<String>,
    /// The control protocol that a hydra_pmi_proxy speaks, where it is not the one that its version tells
    #[arg(long, value_name = "VERSION", requires = "server")]
    pub(super) family: Option<Family>,
    /// A program that speaks PMI
    #[arg(long, value_name = "CMD", conflicts_with = "server")]
    pub(super) client: Option<String>,
    /// A PMI library, under the process manager that --server names, if it does
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server_nodes", "family", "client"])]
    pub(super) library: Option<PathBuf>,
    /// Number of processes of a program
    #[arg(long, short = 'n', value_name = "N", default_value_t = 2, requires = "client", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) ranks: u32,
    /// How processes of a process manager get their connections, as for judging
    #[arg(long, value_name = "WAY", default_value = "fd", value_parser = ["fd", "port"])]
    pub(super) connection: String,
    /// Longest wait for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds, env = "PMI_CONFORM_TIMEOUT")]
    pub(super) timeout: std::time::Duration,
    /// The same for processes that are to be started [default: as --timeout]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) start_timeout: Option<std::time::Duration>,
    /// As JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
#[command(after_help = INIT_HELP)]
pub(super) struct Init {
    /// The process manager, as for judging
    #[arg(long, value_name = "CMD", env = "PMI_CONFORM_SERVER")]
    pub(super) server: String,
    /// The command for several nodes, as for judging
    #[arg(long, value_name = "CMD")]
    pub(super) server_nodes: Option<String>,
    /// For which CI: github, gitlab, both or none
    #[arg(long, value_name = "CI", default_value = "github", value_parser = ["github", "gitlab", "both", "none"])]
    pub(super) ci: String,
    /// How often each scenario is played, to tell what happens only sometimes
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) repeat: u32,
    /// Play only these scenarios, as for judging
    #[arg(long, short, value_name = "PATTERN")]
    pub(super) filter: Vec<String>,
    /// Longest wait for what a step expects, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds, env = "PMI_CONFORM_TIMEOUT")]
    pub(super) timeout: std::time::Duration,
    /// The same for processes that are to be started [default: as --timeout]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) start_timeout: Option<std::time::Duration>,
}

#[derive(Args)]
pub(super) struct Serve {
    /// Number of processes
    #[arg(short = 'n', long = "ranks", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) ranks: u32,
    /// Number of nodes that the processes are told they are on
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) nodes: u32,
    /// Give the processes PMI_PORT instead of PMI_FD: they make their connections themselves
    #[arg(long)]
    pub(super) pmi_port: bool,
    /// Run the processes on these hosts, in blocks, each host a node: --launch starts them, and they come back by PMI_PORT
    #[arg(long, value_name = "HOST,HOST,...", value_delimiter = ',', requires = "launch", conflicts_with_all = ["nodes", "pmi_args"])]
    pub(super) hosts: Vec<String>,
    /// What starts a process on a host, as in 'ssh {host} {command}': {command} is one word, for the shell there
    #[arg(long, value_name = "CMD", requires = "hosts")]
    pub(super) launch: Option<String>,
    /// The address by which those hosts reach this machine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", requires = "hosts")]
    pub(super) listen: std::net::IpAddr,
    /// Serve a process that has been started already and listens on this port, as mpiexec -pmi_args does
    #[arg(long, num_args = 4, value_names = ["PORT", "INTERFACE", "KEY", "PID"], conflicts_with_all = ["pmi_port", "ranks", "nodes", "command"])]
    pub(super) pmi_args: Vec<String>,
    /// Let the process manager have this fault (`pmi-conform mutants --list`)
    #[arg(long, value_name = "NAME")]
    pub(super) fault: Option<String>,
    /// Let it be unusual, though lawful, in these ways
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(super) vary: Vec<String>,
    /// Log what is started and what ends
    #[arg(short, long)]
    pub(super) verbose: bool,
    /// The program and its arguments
    #[arg(required_unless_present = "pmi_args", trailing_var_arg = true)]
    pub(super) command: Vec<OsString>,
}

#[derive(Args)]
#[command(after_help = RECORD_HELP)]
pub(super) struct Record {
    /// Keep the session in this folder: its log, and a scenario that plays it again
    #[arg(long, short, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// Judge by a set of requirements that is only told otherwise: pmi2-draft (MPICH's draft), pmi2-mpich (its message table)
    #[arg(long, value_name = "SET", value_delimiter = ',', value_parser = advisory_sets())]
    pub(super) against: Vec<String>,
    /// Show every finding in full
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// The command, with {tap} in front of the program
    #[arg(required = true, trailing_var_arg = true)]
    pub(super) command: Vec<String>,
}

#[derive(Args)]
#[command(after_help = INTEROP_HELP)]
pub(super) struct Interop {
    /// A program with its arguments. Several add up
    #[arg(long, value_name = "CMD", required = true)]
    pub(super) program: Vec<String>,
    /// A process manager: mpiexec, mpirun, srun, or a command with {ranks} and {program}. Several add up
    #[arg(long, value_name = "CMD", required = true)]
    pub(super) manager: Vec<String>,
    /// Number of processes
    #[arg(short = 'n', long = "ranks", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) ranks: u32,
    /// Longest time for one program under one process manager, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(super) timeout: std::time::Duration,
    /// Judge by a set of requirements that is only told otherwise: pmi2-draft (MPICH's draft), pmi2-mpich (its message table)
    #[arg(long, value_name = "SET", value_delimiter = ',', value_parser = advisory_sets())]
    pub(super) against: Vec<String>,
    /// As JSON, with every finding
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
pub(super) struct HydraUpstream {
    /// The proxy
    #[arg(long)]
    pub(super) proxy: PathBuf,
    /// The protocol that it speaks
    #[arg(long)]
    pub(super) family: Family,
    /// Has it give its processes PMI_PORT
    #[arg(long)]
    pub(super) pmi_port: bool,
    /// Number of processes
    #[arg(short = 'n', long = "ranks", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) ranks: u32,
    /// Number of proxies
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) nodes: u32,
    /// How long a proxy may take to start processes and to end after them, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(super) patience: std::time::Duration,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    pub(super) command: Vec<OsString>,
}

#[derive(Args)]
pub(super) struct Coverage {
    /// Count what these runs executed (ndjson logs); without any, what the reference server in memory executes
    #[arg(long, value_name = "LOG")]
    pub(super) log: Vec<PathBuf>,
    /// Fail if a MUST that binds servers is neither tested nor excluded, if no fault shows that its test can fail, or if a cell of
    /// the input space is open
    #[arg(long)]
    pub(super) check: bool,
    /// Show the input space instead: what servers may be asked and programs and libraries may be told, and which scenarios do
    #[arg(long, conflicts_with = "log")]
    pub(super) inputs: bool,
    /// The input space as JSON
    #[arg(long, requires = "inputs")]
    pub(super) json: bool,
}

#[derive(Args)]
pub(super) struct Mutants {
    /// Scenario files or folders to try instead of the embedded suite
    pub(super) paths: Vec<PathBuf>,

    /// Only faults and variations whose name contains this, or fits it where it has a *
    #[arg(long, short, value_name = "PATTERN")]
    pub(super) filter: Vec<String>,
    /// As JSON, with every scenario that found something
    #[arg(long, conflicts_with = "matrix")]
    pub(super) json: bool,
    /// Every scenario that killed each fault, not only the first
    #[arg(long)]
    pub(super) matrix: bool,
    /// Say what there is, and play nothing
    #[arg(long)]
    pub(super) list: bool,
    /// Played side by side [default: number of processors]
    #[arg(long, short, value_name = "N", value_parser = positive)]
    pub(super) jobs: Option<usize>,
}

#[derive(Args)]
#[command(after_help = "\
Exit codes:
  0    nothing new was found
  1    something new was found, or what is replayed still shows
  2    usage error
  3    no session could be judged
  130  interrupted")]
pub(super) struct Fuzz {
    /// The implementation under test, as for judging [default: the built-in reference process manager]
    #[arg(long, value_name = "CMD", env = "PMI_CONFORM_SERVER", help_heading = "What is tested")]
    pub(super) server: Option<String>,
    /// Look for differences between these implementations instead, two or more
    #[arg(long, value_name = "CMD", num_args = 2.., conflicts_with_all = ["server", "family"], help_heading = "What is tested")]
    pub(super) differential: Vec<String>,
    /// The program under test, as for judging: what its server answers is made unusual and wrong
    #[arg(long, value_name = "CMD", conflicts_with_all = ["server", "differential", "library", "has", "lacks"], help_heading = "What is tested")]
    pub(super) client: Option<String>,
    /// The library under test, as for judging: calls of it, and wrong answers to what it asks
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "differential", "has", "lacks"], help_heading = "What is tested")]
    pub(super) library: Option<PathBuf>,
    /// The protocol that sessions are in: pmi-1.1, pmi-2, or all, each session in one [default: pmi-1.1 for a server, what a program
    /// offers, the APIs that a library has]
    #[arg(long, value_name = "DIALECT", help_heading = "What is tested", value_parser = dialects())]
    pub(super) dialect: Option<String>,
    /// The control protocol that a hydra_pmi_proxy speaks, where it is not the one that its version tells
    #[arg(long, value_name = "VERSION", requires = "server", help_heading = "What is tested")]
    pub(super) family: Option<Family>,
    /// How processes get their connections: fd, which they inherit (PMI_FD), or port, where they make them (PMI_PORT)
    #[arg(long, value_name = "WAY", default_value = "fd", value_parser = ["fd", "port"], conflicts_with_all = ["client", "library"], help_heading = "What is tested")]
    pub(super) connection: String,
    /// Processes of the job run where they cannot hand over their connections, on other machines: they relay them to this address, by
    /// which this machine is reached from there. ADDRESS:PORT or ADDRESS:FIRST-LAST names the ports, one for each launch that may be
    /// open at once: twice as many as work side by side, or one if only one does
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["client", "library"], help_heading = "What is tested")]
    pub(super) listen: Option<String>,
    /// Where the agent is on the machines of the job: a file pmi-conform-agent, which may be a link to pmi-conform [default: beside
    /// this command]
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = "What is tested")]
    pub(super) agent: Option<PathBuf>,
    /// Optional operations that it offers: spawn, names, pmi-1.2. What is said neither here nor of a known launcher is asked for once,
    /// and used in sessions if that succeeds
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = OF_SESSIONS, help_heading = "What is tested")]
    pub(super) has: Vec<String>,
    /// Optional operations that are not asked for
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = OF_SESSIONS, help_heading = "What is tested")]
    pub(super) lacks: Vec<String>,
    /// What breaks a set of requirements that is only told otherwise is a finding: pmi2-draft, pmi2-mpich, mpich-1.2
    #[arg(long, value_name = "SET", help_heading = "What is tested", value_delimiter = ',', value_parser = advisory_sets())]
    pub(super) against: Vec<String>,

    /// The number from which all sessions are drawn [default: random; printed]
    #[arg(long, value_name = "N", help_heading = "Campaign")]
    pub(super) seed: Option<u64>,
    /// End after so many sessions
    #[arg(long, value_name = "N", help_heading = "Campaign")]
    pub(super) sessions: Option<u64>,
    /// End after so many seconds [default: 60, unless --sessions is given]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Campaign")]
    pub(super) time: Option<std::time::Duration>,
    /// Sessions side by side [default: number of processors]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Campaign")]
    pub(super) workers: Option<usize>,
    /// Most ranks of a session
    #[arg(long, short = 'n', value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4), help_heading = "Campaign")]
    pub(super) ranks: u32,
    /// Make no mistakes: sessions are as RFC 13 or the draft of PMI-2 has them, if unusual, and only what valid input leads to counts
    #[arg(long, help_heading = "Campaign")]
    pub(super) valid: bool,
    /// Longest wait for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds, help_heading = "Campaign")]
    pub(super) timeout: std::time::Duration,
    /// Where findings are stored
    #[arg(long, value_name = "DIR", default_value = "pmi-conform-fuzz", help_heading = "Campaign")]
    pub(super) out: PathBuf,
    /// Go on where the campaign in DIR (--out) ended; what it found is known
    #[arg(long, help_heading = "Campaign")]
    pub(super) resume: bool,
    /// Make sessions of those in DIR, too: another campaign's corpus, or scenarios of a suite; several may be given
    #[arg(long, value_name = "DIR", help_heading = "Campaign")]
    pub(super) corpus: Vec<PathBuf>,
    /// Play each session in DIR (--corpus) once, as it is, and no others: corpora and findings of earlier campaigns, on this version
    #[arg(long, requires = "corpus", conflicts_with_all = ["sessions", "time", "resume", "seed"], help_heading = "Campaign")]
    pub(super) only_corpus: bool,
    /// Write into this folder few and small ones of the sessions in DIR (--corpus), which reach what all of them reach and show what all
    /// of them show; of several folders they become one corpus
    #[arg(long, value_name = "NEW", requires = "corpus", conflicts_with_all = ["only_corpus", "client", "library", "replay"], help_heading = "Campaign")]
    pub(super) minimize_corpus: Option<PathBuf>,
    /// Buckets that are known, and what to leave alone (TOML)
    #[arg(long, value_name = "FILE", help_heading = "Campaign")]
    pub(super) known: Option<PathBuf>,

    /// Play a finding again, five times: its folder, or a scenario file of a session
    #[arg(long, value_name = "DIR", help_heading = "Findings")]
    pub(super) replay: Option<PathBuf>,
    /// Write the findings in DIR (--out) as scenarios into this folder
    #[arg(long, value_name = "DIR", help_heading = "Findings")]
    pub(super) export: Option<PathBuf>,
    /// Write a file for --known with what the campaign found, an entry for each place in which something died and for each other bucket.
    /// The reasons are left to you
    #[arg(long, value_name = "FILE", conflicts_with_all = ["replay", "export", "minimize_corpus"], help_heading = "Findings")]
    pub(super) draft_known: Option<PathBuf>,
    /// Write a report: json, sarif, junit or html (a page, with what was found and reached over time)
    #[arg(long, value_name = "FORMAT=FILE", value_parser = fuzz_report, help_heading = "Findings")]
    pub(super) report: Vec<(CampaignFormat, PathBuf)>,
}

/// Optional operations that sessions of campaigns may use.
const OF_SESSIONS: [&str; 3] = ["spawn", "names", "pmi-1.2"];

fn fuzz_report(text: &str) -> Result<(CampaignFormat, PathBuf), UnknownFormat> {
    let (name, file) = text.split_once('=').filter(|(_, file)| !file.is_empty()).ok_or(UnknownFormat)?;
    Ok((name.parse()?, file.into()))
}

#[derive(Args)]
pub(super) struct Again {
    /// A log that `--report ndjson=FILE` or `record -o` wrote
    pub(super) log: PathBuf,
    /// What the implementation is known to do differently
    #[arg(long, value_name = "FILE")]
    pub(super) deviations: Option<PathBuf>,
    /// Judge by a set of requirements that is only told otherwise: pmi2-draft (MPICH's draft), pmi2-mpich (its message table)
    #[arg(long, value_name = "SET", value_delimiter = ',', value_parser = advisory_sets())]
    pub(super) against: Vec<String>,
    /// Which broken requirements are red: must, should (without a level) or de-facto [default: as in the run]
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "should", value_parser = strictness())]
    pub(super) strict: Option<Strictness>,
    /// html, sequence, ndjson, json, junit, tap, markdown, github, codequality, sarif or terminal
    #[arg(long, value_name = "FORMAT", default_value = "terminal")]
    pub(super) format: Format,
}

#[derive(Args)]
#[command(after_help = "\
Exit codes:
  0    the report is written, whatever the run came to
  2    usage error, or a log that cannot be read")]
pub(super) struct Report {
    /// A log that `--report ndjson=FILE` or `record -o` wrote
    pub(super) log: PathBuf,
    /// html (a page), sequence (charts of who said what), ndjson, json, junit, tap, markdown, github (annotations), codequality (GitLab's),
    /// sarif, terminal, or python (with -o, a folder of standalone programs)
    #[arg(long, value_name = "FORMAT", default_value = "terminal")]
    pub(super) format: Format,
    /// Which broken requirements are red: must, should (without a level) or de-facto [default: as in the run]
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "should", value_parser = strictness())]
    pub(super) strict: Option<Strictness>,
    /// Where to [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Draw only scenarios whose name contains this, or fits it where it has a *; `=NAME` for exactly one. Several add up
    #[arg(long, short, value_name = "PATTERN")]
    pub(super) filter: Vec<String>,
}

#[derive(Args)]
pub(super) struct Compare {
    /// The log of the first run, as `--report ndjson=FILE` wrote it
    pub(super) before: PathBuf,
    /// The log of the second run
    pub(super) after: PathBuf,
    /// When to exit with 1: where anything changed, or only where something is new that is bad
    #[arg(long, value_name = "WHAT", default_value = "any", value_parser = ["any", "new"])]
    pub(super) fail_on: String,
    /// Name the scenarios that only one of the runs has played
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// As JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
#[command(after_help = BISECT_HELP)]
pub(super) struct Bisect {
    /// Logs of earlier runs, the oldest version first, as `--report ndjson=FILE` wrote them; NAME=FILE says what the version is called
    #[arg(value_name = "[NAME=]LOG", conflicts_with = "server")]
    pub(super) logs: Vec<String>,
    /// A version of the process manager, as for judging; the oldest first, each with an option of its own
    #[arg(long, value_name = "CMD", required_unless_present = "logs")]
    pub(super) server: Vec<String>,
    /// Play only these scenarios, as for judging
    #[arg(long, short, value_name = "PATTERN", conflicts_with = "logs")]
    pub(super) filter: Vec<String>,
    /// Play only scenarios that test this requirement
    #[arg(long, value_name = "ID", conflicts_with = "logs")]
    pub(super) requirement: Vec<String>,
    /// Play a scenario in which versions differ N times on each version, to separate chance from change
    #[arg(long, value_name = "N", default_value_t = 25, conflicts_with = "logs", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) repeat: u32,
    /// The protocol that is spoken: pmi-1.1, pmi-2 or all
    #[arg(long, value_name = "DIALECT", value_parser = dialects(), conflicts_with = "logs")]
    pub(super) dialect: Option<String>,
    /// Launches at work side by side; with more than one, a launch that only waits makes room for another [default: number of
    /// processors]
    #[arg(long, short, value_name = "N", value_parser = positive, conflicts_with = "logs")]
    pub(super) jobs: Option<usize>,
    /// Longest wait for what a step expects, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds, env = "PMI_CONFORM_TIMEOUT")]
    pub(super) timeout: std::time::Duration,
    /// Tell what is found in every version, and all scenarios, too
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// As JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
pub(super) struct Matrix {
    /// Logs that `--report ndjson=FILE` wrote, in the order in which they are to stand; NAME=FILE says what the implementation is called
    #[arg(required_unless_present = "interop", value_name = "[NAME=]LOG")]
    pub(super) logs: Vec<String>,
    /// Show programs under process managers, too: what `interop --json` printed. Several add up
    #[arg(long, value_name = "FILE")]
    pub(super) interop: Vec<PathBuf>,
    /// Say what each run has brought and mended: those of one kind are of versions of one implementation, the oldest first
    #[arg(long)]
    pub(super) history: bool,
    /// Where to: index.html, matrix.json, RESULTS.md, and a page and a badge for each run
    #[arg(long, short, value_name = "DIR")]
    pub(super) output: PathBuf,
}

#[derive(Args)]
#[command(after_help = COMPATIBILITY_HELP)]
pub(super) struct Compatibility {
    /// A log of a program or a library, or a recording of one. Several add up
    #[arg(long, value_name = "LOG", required = true)]
    pub(super) client: Vec<PathBuf>,
    /// A log of a process manager, or a recording of one. Several add up
    #[arg(long, value_name = "LOG", required = true)]
    pub(super) server: Vec<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
#[command(after_help = VERSIONS_HELP)]
pub(super) struct Versions {
    /// A process manager, as for judging [default: the built-in reference process manager]
    #[arg(long, value_name = "CMD", env = "PMI_CONFORM_SERVER")]
    pub(super) server: Option<String>,
    /// A program that speaks PMI
    #[arg(long, value_name = "CMD", conflicts_with = "server")]
    pub(super) client: Option<String>,
    /// A PMI library
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "client"])]
    pub(super) library: Option<PathBuf>,
    /// Longest wait for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    pub(super) timeout: std::time::Duration,
    /// As JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
#[command(after_help = MEASURE_HELP)]
pub(super) struct Measure {
    /// A process manager, as for judging; several are measured in turn, and compared with the first [default: the built-in reference
    /// process manager]
    #[arg(long, value_name = "CMD")]
    pub(super) server: Vec<String>,
    /// Numbers of ranks
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1,2,4,8,16", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) ranks: Vec<u32>,
    /// Nodes that they are spread over
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) nodes: u32,
    /// Launches for each number of ranks, of which the median counts
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: u32,
    /// The most that something may take, in seconds, as in `barrier=0.05`; exit 1 if it takes longer
    #[arg(long, value_name = "WHAT=SECONDS", value_parser = budget)]
    pub(super) budget: Vec<(Phase, f64)>,
    /// Longest wait for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(super) timeout: std::time::Duration,
    /// The protocol in which the ranks ask
    #[arg(long, value_name = "DIALECT", default_value = Dialect::Pmi1.word(), value_parser = one_dialect())]
    pub(super) dialect: Dialect,
    /// What is not asked for, since it is not offered
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = ["spawn", "names"])]
    pub(super) lacks: Vec<String>,
    /// How many ranks each of our agents speaks for: one, since a process manager starts a process for each rank
    #[arg(long, value_name = "N", default_value = "1", value_parser = ranks_per_agent)]
    pub(super) ranks_per_agent: u32,
    /// As JSON, in seconds and bytes
    #[arg(long)]
    pub(super) json: bool,
    /// Also as a page with plots: html=FILE
    #[arg(long, value_name = "html=FILE", value_parser = page)]
    pub(super) report: Option<PathBuf>,
}

/// Reads `--ranks-per-agent`.
fn ranks_per_agent(given: &str) -> anyhow::Result<u32> {
    match given.parse() {
        Ok(1) => Ok(1),
        Ok(2..) => bail!(
            "a process manager starts a process for each rank, and that process has one connection: PMI_FD is one descriptor, and a \
             PMI_ID, with which a process connects to PMI_PORT, is that of one process; so an agent speaks for one rank"
        ),
        _ => bail!("write a number from 1"),
    }
}

/// Reads `--report` of a command that has one page to show.
fn page(given: &str) -> anyhow::Result<PathBuf> {
    let file = given.strip_prefix("html=").filter(|file| !file.is_empty());
    file.map(PathBuf::from).context("write html=FILE")
}

/// A dialect where there is to be one.
fn one_dialect() -> impl TypedValueParser<Value = Dialect> {
    PossibleValuesParser::new(Dialect::NAMES.map(|(name, _)| name))
        .map(|given| Dialect::called(&given).unwrap_or_default())
}

/// Reads a budget of `measure`.
fn budget(given: &str) -> anyhow::Result<(Phase, f64)> {
    let (name, most) = given.split_once('=').context("write WHAT=SECONDS, as in barrier=0.05")?;
    let known = Phase::NAMES.into_iter().find(|(known, _)| *known == name);
    let (_, phase) = known.with_context(|| {
        let names: Vec<&str> = Phase::NAMES.into_iter().map(|(name, _)| name).collect();
        format!("\"{name}\" is not measured; there are {}", names.join(", "))
    })?;
    let most = most.parse().ok().filter(|most: &f64| most.is_finite() && *most >= 0.0);
    Ok((phase, most.with_context(|| format!("\"{given}\" names no number of seconds"))?))
}

/// Sets of requirements that nobody is judged by unless the user asks for it.
fn advisory_sets() -> PossibleValuesParser {
    PossibleValuesParser::new(ADVISORY_SETS.iter().map(|(set, _)| *set))
}

/// What `--dialect` takes.
fn dialects() -> PossibleValuesParser {
    PossibleValuesParser::new(Dialect::NAMES.map(|(name, _)| name).into_iter().chain(["all"]))
}

/// Reads a level of `--strict`.
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
    parse().context("write K/N with K from 1 to N, for example 1/3")
}

fn positive(text: &str) -> anyhow::Result<usize> {
    text.parse().ok().filter(|n| *n > 0).context("write a number from 1")
}

fn seconds(text: &str) -> anyhow::Result<std::time::Duration> {
    let number = text.parse::<f64>().ok().filter(|s| (0.01..=86_400.0).contains(s));
    number.map(std::time::Duration::from_secs_f64).context("write seconds, from 0.01 to 86400")
}

/// How many things are done at the same time: as many as asked for, else one for each processor.
pub(super) fn side_by_side(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}
