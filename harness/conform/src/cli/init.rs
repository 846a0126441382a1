//! `init`: writes a profile, a file of known deviations and a CI file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;
use pmi_judge::deviations::{draft, summarize_draft};

use super::args::{Cli, Command, Init};
use super::doctor::examine;
use super::exit::{CANNOT_JUDGE, INTERRUPTED};
use super::output::print;
use super::play::{ends_on_signals, select_scenarios};
use super::progress::RunProgress;
use crate::report::{counts_text, doctor_text, times};

const PROFILE: &str = "pmi-conform.toml";
const DEVIATIONS: &str = "pmi-conform-deviations.toml";
const GITHUB: (&str, &str) = (".github/workflows/pmi-conform.yml", include_str!("init/github.yml"));
const GITLAB: (&str, &str) = (".gitlab/pmi-conform.yml", include_str!("init/gitlab.yml"));

/// Number of retries in the CI job. The drafted deviations list the intermittent failures that occurred during `init`; retries cover all
/// other intermittent failures.
const RETRIES: u32 = 3;

pub(super) fn init(args: &Init) -> anyhow::Result<u8> {
    let ci: &[(&str, &str)] = match &args.ci[..] {
        "github" => &[GITHUB],
        "gitlab" => &[GITLAB],
        "both" => &[GITHUB, GITLAB],
        _ => &[],
    };
    let files = [PROFILE, DEVIATIONS].into_iter().chain(ci.iter().map(|(file, _)| *file));
    let existing: Vec<&str> = files.filter(|file| Path::new(file).exists()).collect();
    anyhow::ensure!(
        existing.is_empty(),
        "{}: already exists, and init never overwrites a file: remove the old files, or use a different folder",
        existing.join(", ")
    );
    let words = |command: &str| {
        let mut words = vec!["pmi-conform".to_owned()];
        words.extend((!command.is_empty()).then(|| command.to_owned()));
        words.push(format!("--server={}", args.server));
        words.extend(args.server_nodes.iter().map(|nodes| format!("--server-nodes={nodes}")));
        words.push(format!("--timeout={}", args.timeout.as_secs_f64()));
        words.extend(args.start_timeout.iter().map(|time| format!("--start-timeout={}", time.as_secs_f64())));
        words
    };
    let lacks = args.lacks.iter().map(|operation| format!("--lacks={operation}"));
    let Some(Command::Doctor(doctor)) =
        Cli::try_parse_from(words("doctor").into_iter().chain(lacks))?.command
    else {
        anyhow::bail!("cannot pass these arguments to doctor; see `pmi-conform doctor --help`");
    };
    let examined = examine(&doctor)?;
    let Some(mut profile) = examined.profile.clone().filter(|_| examined.examination.is_fit()) else {
        print(&doctor_text(
            &examined.label,
            &examined.examination,
            examined.profile.as_deref(),
            &examined.next_command,
        ))?;
        anyhow::ensure!(
            !examined.examination.is_fit(),
            "--server {}: already names a profile; name a command, and init writes a profile for it",
            args.server
        );
        return Ok(CANNOT_JUDGE);
    };
    let mut words = words("");
    words.push(format!("--dialect={}", examined.examination.dialect));
    words.extend(
        examined
            .examination
            .operations
            .iter()
            .map(|(need, has)| format!("--{}={}", if *has { "has" } else { "lacks" }, need.word())),
    );
    words.extend(args.jobs.map(|jobs| format!("--jobs={jobs}")));
    words.extend((args.repeat > 1).then(|| format!("--repeat={}", args.repeat)));
    words.extend(args.filter.iter().map(|pattern| format!("--filter={pattern}")));
    let play = Cli::try_parse_from(words)?.play;
    let interrupted = ends_on_signals()?;
    let Some(prepared) = select_scenarios(&play)?.prepare(&play, &interrupted)? else {
        return Ok(INTERRUPTED);
    };
    let precedents = prepared.precedents();
    let (run, _) = prepared.play(&mut RunProgress::new(
        format!("playing each scenario {}", times(args.repeat.into())),
        "scenarios",
    ))?;
    let end = run.end.as_ref().context("the run has no end record")?;
    if end.interrupted {
        return Ok(INTERRUPTED);
    }
    let name = profile.lines().find_map(|line| line.strip_prefix("name = ")).unwrap_or_default();
    let name = name.trim_matches('"').to_owned();
    let known = draft(&name, &run.results, run.header.strict, &precedents);
    let drafted = summarize_draft(&known);
    profile += &format!("deviations = \"{DEVIATIONS}\"\n");
    let mut options = vec![format!("--retries={RETRIES}")];
    options.extend(args.filter.iter().map(|pattern| format!("--filter={pattern}")));
    let mut written = vec![write_new(PROFILE, &profile)?, write_new(DEVIATIONS, &known)?];
    for (file, template) in ci {
        // GitHub's action expects one option per line, and GitLab's template expects all options in one variable.
        let separator = if file.starts_with(".github") { "\n            " } else { " " };
        let text = template
            .replace("{version}", env!("CARGO_PKG_VERSION"))
            .replace("{profile}", PROFILE)
            .replace("{options}", &options.join(separator))
            .replace("{file}", file);
        written.push(write_new(file, &text)?);
    }
    let mut text = format!("{}\n", counts_text(&run));
    for file in &written {
        let what = match file.to_str() {
            Some(PROFILE) => "the command that starts the process manager".to_owned(),
            Some(DEVIATIONS) => format!("known deviations: {}", drafted.as_deref().unwrap_or("none")),
            _ => "tests the process manager on each push; adapt the marked steps".to_owned(),
        };
        text += &format!("  {:34} {what}\n", file.display());
    }
    let filters = args.filter.iter().map(|pattern| format!(" --filter {}", shell_words::quote(pattern)));
    let filters: String = filters.collect();
    text += &format!("\nnext: pmi-conform --server @{PROFILE} --retries {RETRIES}{filters}\n");
    print(&text)?;
    Ok(0)
}

/// Creates a file. Fails if the file already exists.
fn write_new(file: &str, text: &str) -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(file);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let opened = fs::File::options().write(true).create_new(true).open(&path);
    opened.and_then(|mut f| f.write_all(text.as_bytes())).with_context(|| file.to_owned())?;
    Ok(path)
}
