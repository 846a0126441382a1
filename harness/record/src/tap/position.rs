//! The position of the tap in a command line.

use std::path::Path;

use pmi_runner::party::server::missing_program_error;

/// Placeholder for the tap.
pub const TAP_PLACEHOLDER: &str = "{tap}";

/// Known launchers, and those of their options that take a value.
const KNOWN_LAUNCHERS: [(&str, &[&str]); 4] = [
    ("mpiexec", &["-n", "-np", "--np"]),
    ("mpirun", &["-n", "-np", "--np"]),
    ("srun", &["-n", "--ntasks"]),
    ("flux", &["-n", "--ntasks"]),
];

/// The error for a command in which the position of the tap is unknown. The message shows a valid command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownTapPosition(String);

/// Returns the command with `{tap}`: as written by the user, or inserted before the program if the position is certain.
///
/// # Errors
///
/// Returns an error if the position is not certain.
pub fn insert_tap(command: &[String]) -> Result<Vec<String>, UnknownTapPosition> {
    if command.iter().any(|word| word == TAP_PLACEHOLDER) {
        return Ok(command.to_vec());
    }
    let program = program(command).ok_or_else(|| {
        let shown = shell_words::join(command);
        if let Some(launcher) =
            command.first().filter(|word| word.contains('/') && !Path::new(word).is_file())
        {
            return UnknownTapPosition(missing_program_error(launcher));
        }
        let launcher = command.first().map_or("mpiexec", String::as_str);
        UnknownTapPosition(format!(
            "cannot find the program in \"{shown}\": write {TAP_PLACEHOLDER} before it, as in\n  \
             pmi-conform record -- {launcher} OPTIONS {TAP_PLACEHOLDER} PROGRAM"
        ))
    })?;
    let mut placed = command.to_vec();
    placed.insert(program, TAP_PLACEHOLDER.to_owned());
    Ok(placed)
}

/// Returns the index of the program after a known launcher and its options.
fn program(command: &[String]) -> Option<usize> {
    let name = Path::new(command.first()?).file_name()?.to_str()?;
    let stem = name.split('.').next().unwrap_or(name);
    let (_, options) = KNOWN_LAUNCHERS.iter().find(|(known, _)| *known == stem)?;
    let mut at = 1;
    if stem == "flux" {
        command.get(1).filter(|word| *word == "run")?;
        at = 2;
    }
    while let Some(word) = command.get(at) {
        match word.as_str() {
            option if options.contains(&option) => at += 2,
            option if option.starts_with("--") && option.contains('=') => at += 1,
            option if option.starts_with('-') => return None,
            _ => {
                // After `:`, the command may start further programs, which would have no tap.
                return (!command[at..].iter().any(|word| word == ":")).then_some(at);
            }
        }
    }
    None
}

/// Returns the command with a path in place of `{tap}`.
pub(crate) fn fill_tap(command: &[String], tap: &Path) -> Vec<String> {
    let tap = tap.to_string_lossy();
    command.iter().map(|word| if word == TAP_PLACEHOLDER { tap.to_string() } else { word.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        shell_words::split(text).unwrap()
    }

    #[test]
    fn inserts_missing_tap_before_the_program() {
        for (given, expected) in [
            ("pm --x {tap} ./a -n", "pm --x {tap} ./a -n"),
            ("mpiexec -n 4 ./a -n 5", "mpiexec -n 4 {tap} ./a -n 5"),
            ("/opt/bin/mpiexec.hydra ./a", "/opt/bin/mpiexec.hydra {tap} ./a"),
            ("flux run -n 2 a", "flux run -n 2 {tap} a"),
            ("srun --mpi=pmi2 -n 2 ./a", "srun --mpi=pmi2 -n 2 {tap} ./a"),
        ] {
            assert_eq!(insert_tap(&words(given)), Ok(words(expected)), "{given}");
        }
        for doubtful in
            ["pm ./a", "mpiexec -f hosts -n 2 ./a", "mpiexec -n 2", "mpiexec -n 1 a : -n 1 b", "flux ./a"]
        {
            let error = insert_tap(&words(doubtful)).unwrap_err().to_string();
            let example = format!("pmi-conform record -- {} OPTIONS {{tap}} PROGRAM", words(doubtful)[0]);
            assert!(error.contains("write {tap} before it") && error.ends_with(&example), "{error}");
        }
        let error = insert_tap(&words("/nowhere/pm ./a")).unwrap_err().to_string();
        assert_eq!(error, "/nowhere/pm: no such program: the file does not exist");
    }
}
