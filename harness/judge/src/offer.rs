//! The variables with which a process manager offers the wire protocol, and the launcher options that enable this offer.

use std::collections::BTreeMap;

use pmi_scenario::ids;

use crate::verdict::JudgedFinding;

/// Variables with which a process manager offers the wire protocol.
pub(crate) const OFFER_VARIABLES: [&str; 5] = ["PMI_FD", "PMI_PORT", "PMI_ID", "PMI_RANK", "PMI_SIZE"];

/// Returns whether a requirement applies only if the wire protocol is offered.
pub(crate) fn needs_offer(requirement: &str) -> bool {
    ENVIRONMENT_REQUIREMENTS.contains(&requirement)
}

/// Returns the reason why a process manager that does not offer the wire protocol is not judged. The reason includes the advice of
/// [`offering_option`], if there is any.
pub(crate) fn describe_missing_offer(command: &[String]) -> String {
    let option = offering_option(command).map(|option| format!("; {option}")).unwrap_or_default();
    format!("the process manager did not set PMI_FD for its processes{option}")
}

const CONNECTION_VARIABLES: [&str; 2] = ["PMI_FD", "PMI_PORT"];

/// Returns whether an environment offers a connection.
pub(crate) fn has_connection(env: &BTreeMap<String, String>) -> bool {
    CONNECTION_VARIABLES.iter().any(|name| env.contains_key(*name))
}

/// The requirements on the environment that offers the wire protocol.
const ENVIRONMENT_REQUIREMENTS: [&str; 4] = [
    ids::RFC13_ENV_PMI_FD,
    ids::RFC13_CONNECTION_PRECONNECTED,
    ids::RFC13_ENV_PMI_RANK,
    ids::RFC13_ENV_PMI_SIZE,
];

/// Launchers that offer the wire protocol only with an option.
const OFFERING_OPTIONS: [(&str, &str); 2] = [("srun", "--mpi=pmi2"), ("flux", "-o pmi=simple")];

/// Returns the advice to pass a certain option to the launcher of `command`. Returns `None` if no such option is known
/// for the launcher, or if the command already contains the option.
pub fn offering_option(command: &[String]) -> Option<String> {
    let words = || command.iter().flat_map(|word| word.split_whitespace());
    let is_named = |name: &str| words().any(|word| word.rsplit('/').next() == Some(name));
    let (launcher, option) = OFFERING_OPTIONS.iter().find(|(launcher, _)| is_named(launcher))?;
    // The value of an option may be a separate word.
    let given = words().flat_map(|word| word.split('=')).collect::<Vec<_>>();
    let is_given = option.split([' ', '=']).all(|part| given.contains(&part));
    (!is_given).then(|| format!("pass {option} to {launcher} to enable the wire protocol"))
}

/// Replaces the help text of each finding about the environment that offers the wire protocol with the advice of [`offering_option`], if
/// there is any.
pub(crate) fn suggest_option(findings: &mut [JudgedFinding], command: &[String]) {
    let about = |judged: &JudgedFinding| needs_offer(&judged.finding.requirement);
    if let Some(option) = offering_option(command) {
        findings.iter_mut().filter(|judged| about(judged)).for_each(|judged| judged.help.clone_from(&option));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Finding, PartyKind, Severity};

    #[test]
    fn finding_names_the_missing_option() {
        let help = |command: &[&str], id: &str| {
            let judged = JudgedFinding {
                finding: Finding::new(id, PartyKind::Server, "", ""),
                level: None,
                severity: Severity::Fail,
                text: String::new(),
                help: "own".to_owned(),
                valid_input: false,
                step: String::new(),
                deviation: None,
            };
            let mut findings = [judged];
            let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            suggest_option(&mut findings, &command);
            findings[0].help.clone()
        };
        let named = "pass --mpi=pmi2 to srun to enable the wire protocol";
        assert_eq!(help(&["/usr/bin/srun", "-n", "2"], ids::RFC13_ENV_PMI_SIZE), named);
        assert_eq!(help(&["srun", "-n", "2"], ids::RFC13_GET_VALUE), "own");
        assert_eq!(help(&["srun", "--mpi=pmi2", "-n", "2"], ids::RFC13_ENV_PMI_SIZE), "own");
        assert_eq!(help(&["srun", "--mpi", "pmi2"], ids::RFC13_ENV_PMI_SIZE), "own");
        assert_eq!(help(&["mpiexec", "-n", "2"], ids::RFC13_ENV_PMI_SIZE), "own");
    }
}
