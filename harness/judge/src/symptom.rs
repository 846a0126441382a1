//! Symptoms of findings. A symptom is the part of a finding's text that stays the same after a rebuild or on a different machine. The
//! symptom of a crash consists of the signal and the function.

use crate::Finding;
use crate::backtrace::CrashLocation;
use crate::builtin_requirements::NO_CRASH;
use crate::cause::{CHOSEN_NAME_KEYS, CommonCause, mask};
use crate::verdict::JudgedFinding;

/// Minimum length of a common symptom, in bytes.
const MIN_CHARACTERS: usize = 6;

/// Fields of a message whose values differ between jobs or machines, in addition to names that an implementation chooses.
const VOLATILE_FIELDS: [&str; 3] = ["pmijobid=", "hostname=", "msg="];

/// Returns whether a recorded symptom matches a finding. For a crash, only the signal and the function are compared, because a recorded
/// symptom may contain addresses and line numbers from a different build. The function is compared only if both the symptom and the finding
/// state it.
pub fn matches(symptom: &str, finding: &Finding) -> bool {
    let Some(recorded) = Crash::read(symptom).filter(|_| finding.requirement == NO_CRASH) else {
        return finding.seen.contains(symptom);
    };
    let same_function = match (recorded.function, &finding.place) {
        (Some(recorded), Some(CrashLocation::Function(name))) => recorded == name,
        _ => true,
    };
    let same_signal = Crash::read(&finding.seen).is_some_and(|seen| seen.signal == recorded.signal);
    same_signal && same_function && finding.seen.contains(recorded.before)
}

/// Returns the longest text that the symptoms of all findings have in common, if this text is long enough to identify the findings.
pub fn common_symptom<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Option<String> {
    let mut all: Vec<String> = findings.into_iter().map(of).collect();
    all.sort_unstable();
    all.dedup();
    let (first, others) = all.split_first()?;
    let parts = first.split('#').map(|part| part.trim_matches(['"', ' ']));
    let parts = parts.filter(|part| others.iter().all(|other| other.contains(part)));
    parts.max_by_key(|part| part.len()).filter(|part| part.len() >= MIN_CHARACTERS).map(str::to_owned)
}

/// Returns a name for a cause. The name stays the same in later runs and after a rebuild. A crash without a known function is named after
/// the first scenario that shows it.
pub fn fingerprint(cause: &CommonCause<'_>) -> String {
    let Some((result, JudgedFinding { finding, .. })) = cause.findings.first() else {
        return cause.requirement.to_owned();
    };
    let name = format!("{}/{}", cause.requirement, of(finding));
    match &finding.place {
        Some(CrashLocation::Function(_)) => name,
        _ if finding.requirement == NO_CRASH => format!("{name}/{}", result.scenario),
        _ => name,
    }
}

/// Returns the text of a finding, with `#` in place of everything that changes after a rebuild or on a different machine.
pub(crate) fn of(finding: &Finding) -> String {
    if let Some(crash) = Crash::read(&finding.seen).filter(|_| finding.requirement == NO_CRASH) {
        return match &finding.place {
            Some(CrashLocation::Function(name)) => format!("signal {} (in {name})", crash.signal),
            // Addresses differ between builds, so the symptom omits them.
            _ => format!("signal {}", crash.signal),
        };
    }
    if let Some(absence) = finding.absence_text() {
        return absence.to_owned();
    }
    let shape = mask(&finding.seen);
    let word = |word: &str| {
        let is_volatile = word.contains("0x") || word.contains("\\x") || word.contains('/');
        let mut fields = CHOSEN_NAME_KEYS.iter().chain(&VOLATILE_FIELDS);
        let field = fields.find(|field| word.trim_start_matches('"').starts_with(**field));
        match field {
            _ if is_volatile => "#".to_owned(),
            Some(field) => format!("{field}#"),
            None => word.to_owned(),
        }
    };
    let part = |part: &str| {
        let end = part.trim_end_matches([' ', ';']).len();
        word(&part[..end]) + &part[end..]
    };
    shape.split_inclusive([' ', ';']).map(part).collect()
}

struct Crash<'a> {
    /// The text before the signal.
    before: &'a str,
    /// The number of the signal.
    signal: &'a str,
    /// The function, if the text names it.
    function: Option<&'a str>,
}

impl<'a> Crash<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (before, after) = text.split_once("signal ")?;
        let signal = &after[..after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len())];
        // Output of the program may come before the function and contain the same text, so the last occurrence is used.
        let place = after.rsplit_once(" (in ").map(|(_, place)| place.trim_end_matches(')'));
        let place = place.map(|place| place.rsplit_once(" at ").map_or(place, |(function, _)| function));
        let function = place.filter(|place| !place.contains("+0x"));
        (!signal.is_empty()).then_some(Self { before, signal, function })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::PartyKind;

    fn died(seen: &str, place: Option<CrashLocation>) -> Finding {
        Finding { place, ..Finding::new(NO_CRASH, PartyKind::Server, "", seen) }
    }

    fn function(name: &str) -> Option<CrashLocation> {
        Some(CrashLocation::Function(name.to_owned()))
    }

    fn at(offset: u64) -> Option<CrashLocation> {
        Some(CrashLocation::Address { module: "pm".to_owned(), offset })
    }

    #[rstest]
    #[case::line_and_folder(
        "pm died of signal 11 (in get at /a/pm.c:10)",
        function("get"),
        "signal 11 (in get)"
    )]
    #[case::address("pm died of signal 11 (in pm+0x1234)", at(0x1234), "signal 11")]
    #[case::assertion(
        "pm died of signal 6: pm: pm.c:12: get: Assertion `n' failed. (in get at pm.c:12)",
        function("get"),
        "signal 6 (in get)"
    )]
    #[case::unknown_place("pm died of signal 11", None, "signal 11")]
    fn crash_symptom_consists_of_signal_and_function(
        #[case] seen: &str,
        #[case] place: Option<CrashLocation>,
        #[case] symptom: &str,
    ) {
        assert_eq!(common_symptom([&died(seen, place)]).as_deref(), Some(symptom));
    }

    // The cases are crash locations from a different build, and symptoms that an earlier version wrote into a draft.
    #[rstest]
    #[case("signal 11 (in get)", function("get"), true)]
    #[case("signal 11 (in get at /a/pm.c:10)", function("get"), true)]
    #[case("the launcher, pm, died of signal 11 (in get at pm.c:10)", function("get"), true)]
    #[case("pm died of signal 11 (in pm+0x99)", at(0x1234), true)]
    #[case("signal 11 (in get)", None, true)]
    #[case("signal 11", function("get"), true)]
    #[case("signal 11 (in put)", function("get"), false)]
    #[case("signal 6 (in get)", function("get"), false)]
    #[case("signal 1", None, false)]
    #[case("srun died of signal 11", None, false)]
    fn symptom_matches_a_crash_in_another_build(
        #[case] symptom: &str,
        #[case] place: Option<CrashLocation>,
        #[case] same: bool,
    ) {
        let seen = match &place {
            Some(place @ CrashLocation::Function(_)) => {
                format!("the launcher, pm, died of signal 11 (in {place} at /b/pm.c:11)")
            }
            Some(place) => format!("pm died of signal 11 (in {place})"),
            None => "pm died of signal 11".to_owned(),
        };
        assert_eq!(matches(symptom, &died(&seen, place)), same);
    }

    #[rstest]
    #[case("\"cmd=get_result rc=0 value=\"", "cmd=get_result rc=0 value=")]
    #[case("\"cmd=my_kvsname kvsname=kvs_4711_0_node7_1\"", "cmd=my_kvsname kvsname=")]
    #[case("silence: the server has read everything and waits", "silence")]
    #[case("silence for 5s", "silence")]
    #[case("exit status 1, \"Abort in file /home/me/pmi.c at line 24\"", "exit status 1, \"Abort in file")]
    #[case("\"cmd=get_result rc=0 value=\\x01\\xf0\\x7f\"", "cmd=get_result rc=0")]
    #[case("\"cmd=maxes rc\" ... (5000 bytes)", "cmd=maxes rc\" ... (")]
    fn symptom_omits_values_that_vary_between_runs(#[case] seen: &str, #[case] symptom: &str) {
        let finding = Finding::new("rfc13.get.value", PartyKind::Server, "", seen);
        assert_eq!(common_symptom([&finding]).as_deref(), Some(symptom));
        assert!(matches(symptom, &finding));
    }

    #[test]
    fn symptom_contains_only_text_common_to_all_findings() {
        let finding = |seen: &str| Finding::new("rfc13.get.value", PartyKind::Server, "", seen);
        let seen = [finding("rank 1 sends too much"), finding("rank 23 sends too much")];
        assert_eq!(common_symptom(&seen).as_deref(), Some("sends too much"));
        assert_eq!(common_symptom(&[finding("a1b2"), finding("a2b2")]), None);
    }
}
