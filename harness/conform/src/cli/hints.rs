//! Tests that each option named in a message exists and accepts the value that follows it.

use std::fs;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};
use pmi_scenario::ast::{Capability, Dialect};

use super::args::{Cli, GROUPS, RENAMED, parser};

/// Options of other programs that our messages mention.
const FOREIGN_OPTIONS: [&str; 3] = ["mpi", "oneliner", "overlap"];

/// An option named in a message, with the word after it.
struct OptionMention {
    option: String,
    value: String,
    place: String,
}

/// Collects the options that messages in the source files of a folder mention. String literals that begin with an option are skipped,
/// because they are arguments and not messages.
fn collect(folder: &Path, hints: &mut Vec<OptionMention>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            collect(&entry, hints);
            continue;
        }
        if entry.extension().is_none_or(|ending| ending != "rs") || entry.ends_with("hints.rs") {
            continue;
        }
        let text = fs::read_to_string(&entry).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for (at, _) in line.match_indices("--") {
                let option: String =
                    line[at + 2..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
                if option.len() < 2 || !line[..at].ends_with([' ', '(', '`', '\'']) {
                    continue;
                }
                let rest = &line[at + 2 + option.len()..];
                let value = rest.strip_prefix([' ', '=']).unwrap_or_default().trim_start_matches(['"', '\'']);
                let plain = |c: &char| c.is_ascii_alphanumeric() || "{}@.=/*_-".contains(*c);
                let value: String = value.chars().take_while(plain).collect();
                hints.push(OptionMention { option, value, place: format!("{}: {line}", entry.display()) });
            }
        }
    }
}

/// Returns the values that a message may show after the option: the literal value, or every possible value of a placeholder.
fn values(hint: &OptionMention) -> Vec<String> {
    if !hint.value.starts_with('{') {
        return vec![hint.value.trim_end_matches(['.', '-']).to_owned()];
    }
    let words: Vec<&str> = match hint.option.as_str() {
        "has" | "lacks" => Capability::optional_operations().map(|(word, _)| word).collect(),
        "connection" => vec!["fd", "port", "singleton"],
        "dialect" => Dialect::WORDS.to_vec(),
        _ => vec!["1"],
    };
    words.into_iter().map(str::to_owned).collect()
}

fn commands(command: &Command) -> Vec<Command> {
    let below = command.get_subcommands().flat_map(commands);
    below.chain([command.clone()]).collect()
}

fn accepts(command: &Command, option: &str, value: &str) -> bool {
    let Some(arg) = command.get_arguments().find(|arg| arg.get_long() == Some(option)) else { return false };
    // The word after a flag, or after an option with an optional value, is part of the message and not a value.
    let has_value = arg.get_action().takes_values() && !arg.is_require_equals_set() && !value.is_empty();
    let mut words = vec!["pmi-conform".to_owned(), format!("--{option}")];
    words.extend(has_value.then(|| value.to_owned()));
    let wrong = [ErrorKind::UnknownArgument, ErrorKind::InvalidValue, ErrorKind::ValueValidation];
    match command.clone().subcommand_required(false).try_get_matches_from(words) {
        Err(error) => !wrong.contains(&error.kind()) || (value.is_empty() && arg.get_action().takes_values()),
        Ok(_) => true,
    }
}

#[test]
fn command_line_accepts_suggested_options() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut hints = Vec::new();
    for name in ["conform", "fuzzer", "record", "runner", "process", "judge", "scenario"] {
        collect(&sources.join(name).join("src"), &mut hints);
    }
    assert!(hints.len() > 20, "{}", hints.len());
    let mut root = Cli::command();
    root.build();
    let commands = commands(&root);
    for hint in hints.iter().filter(|hint| !FOREIGN_OPTIONS.contains(&hint.option.as_str())) {
        for value in values(hint) {
            // Most messages come from the command without a subcommand. If that command has the option, it must accept the value.
            let of_root = root.get_arguments().any(|arg| arg.get_long() == Some(&*hint.option));
            let commands_to_try = if of_root { std::slice::from_ref(&root) } else { &commands[..] };
            let taken = commands_to_try.iter().any(|command| accepts(command, &hint.option, &value));
            let (place, option) = (&hint.place, &hint.option);
            assert!(taken, "{place}: suggests `--{option} {value}`, which the command line rejects");
        }
    }
}

/// A command that omits events suggests an option that writes them to a log. The option must belong to the same command.
#[test]
fn each_command_accepts_its_suggested_log_option() {
    for (hint, more) in
        [(crate::report::LOG_OPTION, &[][..]), (super::record::LOG_OPTION, &["--", "mpiexec"])]
    {
        let words = ["pmi-conform"].into_iter().chain(hint.split(' ')).chain(more.iter().copied());
        let parsed = Cli::command().try_get_matches_from(words);
        assert!(parsed.is_ok(), "{hint}: {}", parsed.unwrap_err());
    }
}

#[test]
fn help_lists_each_public_command_once() {
    let root = parser();
    let mut public: Vec<&str> =
        root.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name).collect();
    let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    public.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, public);
}

#[test]
fn each_former_command_has_a_replacement() {
    let root = parser();
    for (old, new) in RENAMED {
        assert!(root.find_subcommand(old).is_none(), "{old}");
        let mut command = &root;
        for word in new.split(' ').take_while(|word| !word.starts_with("--")) {
            command = command.find_subcommand(word).unwrap_or_else(|| panic!("{new}"));
        }
    }
}
