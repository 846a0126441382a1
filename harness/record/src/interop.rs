//! Runs every program under every process manager through the tap, and attributes each broken requirement to the program or the process
//! manager.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::time::Duration;

use pmi_process::stop::StopSignals;
use pmi_runner::party::server::with_ranks;
use serde::{Deserialize, Serialize};

use super::result;
use super::session::{self, SessionMode};
use super::tap::position::TAP_PLACEHOLDER;
use pmi_judge::PartyKind;
use pmi_judge::event::Exit;
use pmi_judge::verdict::{JudgedFinding, Verdict};
use pmi_scenario::requirement::Catalogue;

const RANKS: &str = "{ranks}";
const PROGRAM: &str = "{program}";

/// Launchers that accept `-n RANKS PROGRAM`.
const KNOWN_LAUNCHERS: [&str; 3] = ["mpiexec", "mpirun", "srun"];

/// The error for an unusable command of a process manager or program. For an unknown launcher, the message shows a usable command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TemplateError(String);

/// The command of a process manager, with the placeholders `{ranks}` and `{program}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerCommand {
    /// The command as the user wrote it.
    pub label: String,
    words: Vec<String>,
}

impl ManagerCommand {
    /// Parses a command. Well-known launchers need no placeholders.
    ///
    /// # Errors
    ///
    /// Returns an error if the command cannot be split into words, or contains no placeholder for the program although the launcher is
    /// unknown.
    pub fn new(label: &str) -> Result<Self, TemplateError> {
        let mut words = split(label)?;
        let name = Path::new(&words[0]).file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if !words.iter().any(|word| word == PROGRAM) {
            let counted = words.iter().any(|word| word.contains(RANKS));
            let command = if counted { label.to_owned() } else { with_ranks(label) };
            if !KNOWN_LAUNCHERS.contains(&name.split('.').next().unwrap_or_default()) {
                let what = if counted {
                    "where the program goes"
                } else {
                    "where the number of ranks and the program go"
                };
                return Err(TemplateError(format!(
                    "unknown launcher \"{name}\": mark {what} in the command, as in --manager '{command} {PROGRAM}'"
                )));
            }
            words = split(&command)?;
            words.push(PROGRAM.to_owned());
        }
        Ok(Self { label: label.to_owned(), words })
    }

    /// Returns the command that starts a program through a tap.
    fn command(&self, program: &[String], ranks: u32) -> Vec<String> {
        let mut command = Vec::new();
        for word in &self.words {
            if word == PROGRAM {
                command.push(TAP_PLACEHOLDER.to_owned());
                command.extend_from_slice(program);
            } else {
                command.push(word.replace(RANKS, &ranks.to_string()));
            }
        }
        command
    }
}

/// A program with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramCommand {
    /// The command as the user wrote it.
    pub label: String,
    words: Vec<String>,
}

impl ProgramCommand {
    /// Parses a command.
    ///
    /// # Errors
    ///
    /// Returns an error if the command cannot be split into words.
    pub fn new(label: &str) -> Result<Self, TemplateError> {
        Ok(Self { label: label.to_owned(), words: split(label)? })
    }
}

fn split(command: &str) -> Result<Vec<String>, TemplateError> {
    match shell_words::split(command) {
        Ok(words) if words.is_empty() => Err(TemplateError("the command is empty".into())),
        Ok(words) => Ok(words),
        Err(e) => Err(TemplateError(format!("cannot split the command \"{command}\" into words: {e}"))),
    }
}

/// The result of running a program under a process manager.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InteropResult {
    /// The command of the program, as the user wrote it.
    pub program: String,
    /// The command of the process manager, as the user wrote it.
    pub manager: String,
    /// The exit of the job.
    pub exit: Exit,
    /// The verdict on the session.
    pub verdict: Verdict,
    /// The reason why the session could not be judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The negotiated versions of PMI.
    #[serde(default)]
    pub versions: Vec<String>,
    /// The findings against the program and the process manager.
    pub findings: Vec<JudgedFinding>,
    /// Number of MUST requirements that the process manager broke.
    pub by_manager: usize,
    /// Number of MUST requirements that the program broke.
    pub by_program: usize,
}

impl InteropResult {
    /// Returns whether the job ended with status 0 and neither the program nor the process manager broke a MUST requirement.
    pub fn is_success(&self) -> bool {
        self.exit == Exit::Code(0) && matches!(self.verdict, Verdict::Pass | Verdict::Note | Verdict::Warn)
    }

    /// Summarizes the result in a few words.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        match (self.verdict, self.exit) {
            (Verdict::Hung, _) => parts.push("hangs".to_owned()),
            (_, Exit::Code(0)) => {}
            (_, Exit::Code(status)) => parts.push(format!("exit {status}")),
            (_, Exit::Signal(signal)) => parts.push(format!("signal {signal}")),
        }
        if self.verdict == Verdict::Unjudged {
            parts.push("not judged".to_owned());
        }
        for (n, who) in [(self.by_manager, "manager"), (self.by_program, "program")] {
            if n > 0 {
                parts.push(format!("{who} breaks {n} MUST{}", if n == 1 { "" } else { "s" }));
            }
        }
        if parts.is_empty() { "ok".into() } else { parts.join(", ") }
    }
}

/// The results of all combinations.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InteropMatrix {
    /// The commands of the programs, as the user wrote them.
    pub programs: Vec<String>,
    /// The commands of the process managers, as the user wrote them.
    pub managers: Vec<String>,
    /// The results: for each program, one result per process manager. Incomplete if the run was interrupted.
    pub cells: Vec<InteropResult>,
    /// True if the run was interrupted.
    pub interrupted: bool,
}

/// Runs every program under every process manager. The runs do not overlap, and the duration of each run is limited to `timeout`.
///
/// # Errors
///
/// Returns an error if a process manager cannot be started.
pub fn run(
    catalogue: &Catalogue,
    programs: &[ProgramCommand],
    managers: &[ManagerCommand],
    ranks: u32,
    timeout: Duration,
    binary: &Path,
    signals: &mut StopSignals,
) -> io::Result<InteropMatrix> {
    let mut matrix = InteropMatrix {
        programs: programs.iter().map(|p| p.label.clone()).collect(),
        managers: managers.iter().map(|m| m.label.clone()).collect(),
        cells: Vec::new(),
        interrupted: false,
    };
    for program in programs {
        for manager in managers {
            let command = manager.command(&program.words, ranks);
            let session =
                session::run(&command, binary, SessionMode::Bounded(timeout), signals, &mut |_| {})?;
            if session.interrupted {
                matrix.interrupted = true;
                return Ok(matrix);
            }
            let result = result::result(catalogue, &session, result::NAME.into(), String::new());
            matrix.cells.push(InteropResult {
                program: program.label.clone(),
                manager: manager.label.clone(),
                exit: session.exit,
                verdict: result.verdict,
                by_manager: result::broken(&result, PartyKind::Server).len(),
                by_program: result::broken(&result, PartyKind::Client).len(),
                reason: result.reason,
                versions: result.negotiated,
                findings: result.findings,
            });
        }
    }
    Ok(matrix)
}

impl InteropMatrix {
    /// Returns the exit code: 130 if the run was interrupted, 1 if a combination failed, 3 if a combination could not be judged, and
    /// otherwise 0.
    pub fn exit_code(&self) -> u8 {
        let bad = |cell: &InteropResult| {
            !cell.is_success() && (cell.verdict != Verdict::Unjudged || cell.exit != Exit::Code(0))
        };
        if self.interrupted {
            130
        } else if self.cells.iter().any(bad) {
            1
        } else if self.cells.iter().any(|cell| cell.verdict == Verdict::Unjudged) {
            3
        } else {
            0
        }
    }

    /// Formats the matrix, the programs whose exits differ between process managers, the reasons why combinations could not be judged, and
    /// the broken requirements.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (i, manager) in self.managers.iter().enumerate() {
            let _ = writeln!(text, "{:>4}  {}", column_name(i), escape_controls(manager));
        }
        let rows: Vec<&[InteropResult]> = self.cells.chunks(self.managers.len().max(1)).collect();
        let width =
            |cells: &mut dyn Iterator<Item = String>| cells.map(|c| c.chars().count()).max().unwrap_or(0);
        let first = width(&mut self.programs.iter().map(|p| escape_controls(p)));
        let widths: Vec<usize> = (0..self.managers.len())
            .map(|i| {
                width(&mut rows.iter().filter_map(|row| row.get(i)).map(InteropResult::text))
                    .max(column_name(i).len())
            })
            .collect();
        let mut header = format!("\n{:first$}", "");
        for (i, width) in widths.iter().enumerate() {
            let _ = write!(header, "  {:width$}", column_name(i));
        }
        let _ = writeln!(text, "{}", header.trim_end());
        for row in &rows {
            let mut line = format!("{:first$}", escape_controls(&row[0].program));
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(line, "  {:width$}", cell.text());
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        for row in rows.iter().filter(|row| row.iter().any(|cell| cell.exit != row[0].exit)) {
            let statuses: Vec<String> = row
                .iter()
                .enumerate()
                .map(|(i, cell)| format!("{} under {}", cell.exit, column_name(i)))
                .collect();
            let _ = writeln!(
                text,
                "\n{}: results differ: {}",
                escape_controls(&row[0].program),
                statuses.join(", ")
            );
        }
        self.reasons(&rows, &mut text);
        self.list_findings(&rows, &mut text);
        text
    }

    fn reasons(&self, rows: &[&[InteropResult]], text: &mut String) {
        for (i, cell) in rows.iter().flat_map(|row| row.iter().enumerate()) {
            if let Some(reason) = &cell.reason {
                let _ = writeln!(
                    text,
                    "\n{} under {}: {}",
                    escape_controls(&cell.program),
                    column_name(i),
                    escape_controls(reason)
                );
            }
        }
    }

    /// Lists each broken requirement once, with the combinations in which it was broken.
    fn list_findings(&self, rows: &[&[InteropResult]], text: &mut String) {
        for (party, name) in [(PartyKind::Server, "process manager"), (PartyKind::Client, "program")] {
            let all = || {
                let cells = rows.iter().flat_map(|row| row.iter().enumerate());
                cells.flat_map(|(i, cell)| cell.findings.iter().map(move |f| (i, cell, f)))
            };
            let mine = || all().filter(|(_, _, f)| f.finding.party == party);
            let broken: BTreeSet<&str> = mine().map(|(_, _, f)| f.finding.requirement.as_str()).collect();
            for id in broken {
                let here: Vec<_> = mine().filter(|(_, _, f)| f.finding.requirement == id).collect();
                let (_, _, example) = here[0];
                let grade = example.severity.label();
                let level = example.level.map(|l| format!(" ({l})")).unwrap_or_default();
                let _ =
                    writeln!(text, "\n{grade}  the {name}: {id}{level}: {}", escape_controls(&example.text));
                let _ = writeln!(text, "  expected  {}", escape_controls(&example.finding.expected));
                let _ = writeln!(text, "  seen      {}", escape_controls(&example.finding.seen));
                let mut places: Vec<String> = here
                    .iter()
                    .map(|(i, cell, _)| {
                        format!("{} under {}", escape_controls(&cell.program), column_name(*i))
                    })
                    .collect();
                places.dedup();
                let _ = writeln!(text, "  in        {}", places.join(", "));
            }
        }
    }
}

fn column_name(i: usize) -> String {
    match u8::try_from(i) {
        Ok(i @ 0..=25) => char::from(b'A' + i).to_string(),
        _ => format!("M{i}"),
    }
}

/// Escapes control characters, which could change the state of a terminal.
fn escape_controls(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interop_command_has_a_tap_before_the_program() {
        let program = ProgramCommand::new("./a.out 'x y'").unwrap();
        let known = ManagerCommand::new("/opt/bin/mpiexec.hydra -l").unwrap();
        let command = known.command(&program.words, 3);
        assert_eq!(command, ["/opt/bin/mpiexec.hydra", "-l", "-n", "3", "{tap}", "./a.out", "x y"]);
        for given in ["mpiexec -n {ranks}", "mpiexec -n 7"] {
            let command = ManagerCommand::new(given).unwrap().command(&program.words, 3);
            assert_eq!(command, ["mpiexec", "-n", "3", "{tap}", "./a.out", "x y"]);
        }
        let own = ManagerCommand::new("pm --n={ranks} -- {program} -z").unwrap();
        assert_eq!(own.command(&program.words, 2), ["pm", "--n=2", "--", "{tap}", "./a.out", "x y", "-z"]);
        for (bad, expected) in [
            (
                "pm -n 2",
                "mark where the number of ranks and the program go in the command, as in --manager 'pm -n {ranks} {program}'",
            ),
            (
                "pm -n {ranks}",
                "mark where the program goes in the command, as in --manager 'pm -n {ranks} {program}'",
            ),
            ("", "empty"),
            ("pm 'x", "cannot split"),
        ] {
            let error = ManagerCommand::new(bad).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn interop_matrix_reports_statuses_and_exit_code() {
        let cell = |manager: &str, exit, verdict| InteropResult {
            program: "a".into(),
            manager: manager.into(),
            exit,
            verdict,
            reason: None,
            versions: Vec::new(),
            findings: Vec::new(),
            by_manager: usize::from(verdict == Verdict::Fail),
            by_program: 0,
        };
        let matrix = |cells: Vec<InteropResult>| InteropMatrix {
            programs: vec!["a".into()],
            managers: cells.iter().map(|c| c.manager.clone()).collect(),
            cells,
            interrupted: false,
        };
        let (success, status_3) = (Exit::Code(0), Exit::Code(3));
        for (cells, code, expected) in [
            (vec![cell("x", success, Verdict::Note)], 0, "a  ok\n"),
            (vec![cell("x", success, Verdict::Fail)], 1, "a  manager breaks 1 MUST\n"),
            (vec![cell("x", success, Verdict::Unjudged)], 3, "a  not judged\n"),
            (vec![cell("x", status_3, Verdict::Pass)], 1, "a  exit 3\n"),
            (vec![cell("x", Exit::Signal(9), Verdict::Hung)], 1, "a  hangs\n"),
            (
                vec![cell("x", success, Verdict::Pass), cell("y", status_3, Verdict::Pass)],
                1,
                "a: results differ: exit status 0 under A, exit status 3 under B",
            ),
        ] {
            let matrix = matrix(cells);
            assert_eq!(matrix.exit_code(), code);
            assert!(matrix.text().contains(expected), "{}", matrix.text());
        }
    }
}
