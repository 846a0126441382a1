//! Causes: groups of findings that probably result from the same mistake. The findings of a group break the same requirement, and their
//! observations differ only in insignificant numbers and names.

use pmi_scenario::ids;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::builtin_requirements::NO_CRASH;
use crate::evidence;
use crate::verdict::{JudgedFinding, ScenarioResult, Strictness, Verdict};
use crate::{Finding, ObservationKind, Severity};

/// Prefixes of the numbers that distinguish one mistake from another. All other numbers are ranks, process numbers, line numbers or values
/// from the harness's input.
const SIGNIFICANT_NUMBER_PREFIXES: [&str; 5] = ["signal ", "rc=", "status ", "version=", "RFC "];

/// Fields whose values are names that the implementation chooses. These names differ between jobs.
pub(crate) const CHOSEN_NAME_KEYS: [&str; 3] = ["kvsname=", "jobid=", "port="];

/// Requirements whose violation means that a value is wrong, or that a response belongs to another process or request.
const WRONG_DATA_REQUIREMENTS: [&str; 21] = [
    ids::RFC13_BARRIER_ALL_IN_BEFORE_ANY_OUT,
    ids::RFC13_GET_VALUE,
    ids::RFC13_KVSNAME_DISTINCT,
    ids::RFC13_LOOKUP_PORT,
    ids::RFC13_MAPPING_TRUE,
    ids::RFC13_PUBLISH_LOOKUP,
    ids::RFC13_PUT_UNIQUE,
    ids::RFC13_PUT_VISIBLE_AFTER_BARRIER,
    ids::RFC13_SPAWN_PREPUT,
    ids::RFC13_VALUE_BLANK,
    ids::RFC13_WIRE_RESPONSE_MATCHES_REQUEST,
    ids::PMI2_COMMON_FENCE,
    ids::PMI2_COMMON_FENCE_VISIBLE,
    ids::PMI2_COMMON_GET_VALUE,
    ids::PMI2_COMMON_JOBATTR_MAPPING,
    ids::PMI2_COMMON_NAMES_LOOKUP,
    ids::PMI2_COMMON_ONE_RESPONSE,
    ids::PMI2_COMMON_RESPONSE_NAME,
    ids::PMI2_COMMON_SPAWN_PREPUT,
    ids::PMI2_DRAFT_ANY_BYTE,
    ids::PMI2_DRAFT_THRID_TELLS_APART,
];

/// The kinds of mistakes that findings show, in order of decreasing severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// A process of the implementation died.
    Crash,
    /// A value is wrong, or a response reached the wrong process or request.
    Corruption,
    /// Any other violation.
    Violation,
    /// A request was refused.
    Refusal,
}

impl FindingKind {
    /// Returns the kind of a finding.
    pub fn of(finding: &Finding) -> Self {
        let is_missing = finding.kind.is_some_and(|kind| kind.is_missing_answer());
        match finding.requirement.as_str() {
            NO_CRASH => Self::Crash,
            _ if is_refusal(finding.observed()) => Self::Refusal,
            id if WRONG_DATA_REQUIREMENTS.contains(&id)
                && !is_missing
                && finding.observed().contains('=') =>
            {
                Self::Corruption
            }
            _ => Self::Violation,
        }
    }
}

/// Returns whether the observed text is a response with an rc other than 0.
fn is_refusal(seen: &str) -> bool {
    let tuples = seen.split([' ', ';', '"']);
    let mut codes = tuples.filter_map(|tuple| tuple.strip_prefix("rc="));
    codes.any(|code| code.bytes().any(|byte| byte != b'0'))
}

/// Findings that probably have the same cause. Findings that are covered by deviations with different reasons have different causes.
#[derive(Debug, Clone)]
pub struct CommonCause<'a> {
    /// The broken requirement.
    pub requirement: &'a str,
    /// The severity of the findings.
    pub severity: Severity,
    /// The reason for the deviation that covers the findings, if any.
    pub deviation: Option<&'a str>,
    /// The findings, one for each scenario. The first finding represents the cause. If any of the findings results from valid input only,
    /// the first one does. The other findings are in the order of the results.
    pub findings: Vec<(&'a ScenarioResult, &'a JudgedFinding)>,
}

impl CommonCause<'_> {
    /// Returns true if the scenarios that show this cause passed when they were played again.
    pub fn is_flaky(&self) -> bool {
        self.findings.first().is_some_and(|(result, _)| result.verdict == Verdict::Flaky)
    }

    /// Returns whether at least one of the findings results from valid input only.
    pub fn is_valid_input(&self) -> bool {
        self.findings.iter().any(|(_, judged)| judged.valid_input)
    }
}

/// Returns the observed text, with `#` in place of the numbers and names that do not distinguish causes. The location
/// of a crash is kept, because it distinguishes crashes.
pub fn shape(finding: &Finding) -> String {
    let seen = finding.observed();
    let place = finding.place.as_ref().map(|place| format!("(in {place}"));
    match place.as_ref().and_then(|place| seen.rsplit_once(place.as_str())) {
        Some((before, after)) => mask(before) + place.as_deref().unwrap_or_default() + &mask(after),
        None => mask(seen),
    }
}

/// Returns the observation `seen` with `#` in place of the numbers and names that do not distinguish causes.
pub(crate) fn mask(seen: &str) -> String {
    let mut named = String::with_capacity(seen.len());
    for part in seen.split_inclusive([' ', ';', '"', '\\']) {
        match CHOSEN_NAME_KEYS.iter().find_map(|key| Some(part.split_at(part.find(key)? + key.len()))) {
            Some((key, name)) => {
                let end = name.strip_suffix([' ', ';', '"', '\\']).map_or("", |inner| &name[inner.len()..]);
                named.extend([key, "#", end]);
            }
            None => named.push_str(part),
        }
    }
    let seen = named.as_str();
    let mut shape = String::with_capacity(seen.len());
    let mut rest = seen;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        shape.push_str(before);
        let is_significant =
            SIGNIFICANT_NUMBER_PREFIXES.iter().any(|word| before.trim_end_matches('-').ends_with(word));
        shape.push_str(if is_significant { &from[..end] } else { "#" });
        rest = &from[end..];
    }
    shape.push_str(rest);
    shape
}

/// Returns a key that is equal for findings with the same requirement and the same cause: for a crash, its location (with the line, if
/// known) or the failed assertion; otherwise, the [`shape`].
pub fn key(finding: &Finding) -> String {
    if finding.requirement != NO_CRASH {
        return shape(finding);
    }
    // The text of an assertion serves as its key. Shapes contain no line numbers, so different assertions may have the same shape.
    let assertion = || finding.seen.split_once(": ").map(|(_, assertion)| assertion.to_owned());
    let with_line = || finding.seen.rsplit_once("(in ").map(|(_, place)| place.to_owned());
    let place = finding.place.as_ref().map(|place| with_line().unwrap_or_else(|| place.to_string()));
    place.or_else(assertion).unwrap_or_else(|| shape(finding))
}

/// Merges each crash at an unknown location into the crashes at a known location that have the same process and signal. Does nothing unless
/// there is exactly one such location.
fn add_crashes_without_place(all: &mut Vec<CommonCause<'_>>) {
    let same =
        |cause: &CommonCause<'_>| (cause.severity, cause.is_flaky(), cause.deviation.map(str::to_owned));
    for index in (0..all.len()).rev() {
        let Some((_, JudgedFinding { finding, .. })) = all[index].findings.first() else { continue };
        if all[index].requirement != NO_CRASH || finding.place.is_some() {
            continue;
        }
        let bare = shape(finding);
        let is_place = |cause: &CommonCause<'_>| {
            let died = |(_, judged): &(&ScenarioResult, &JudgedFinding)| {
                judged.finding.place.is_some() && shape(&judged.finding).split(" (in ").next() == Some(&bare)
            };
            same(cause) == same(&all[index]) && cause.findings.iter().any(died)
        };
        let mut places = (0..all.len()).filter(|place| is_place(&all[*place]));
        if let (Some(place), None) = (places.next(), places.next()) {
            let unplaced = all.remove(index);
            let cause = &mut all[if place > index { place - 1 } else { place }];
            cause.findings.extend(unplaced.findings);
        }
    }
}

/// Minimum number of findings of a cause into which rarer causes are merged.
const MIN_GENERAL_SCENARIOS: usize = 5;
/// Minimum ratio of the number of findings of a cause to that of a rarer cause that is merged into it.
const MIN_GENERAL_RATIO: usize = 5;

/// Returns the response that a finding reports, and the command of the preceding request. Returns `None` for a crash, or if the request is
/// unknown.
fn exchange(result: &ScenarioResult, finding: &Finding) -> Option<(String, Vec<u8>)> {
    if finding.requirement == NO_CRASH {
        return None;
    }
    let request = evidence::command(finding, &result.last_events)?;
    // A silence while another process's partial request holds up the server has a separate cause. All other silences after the same
    // request have the same cause, regardless of their proof.
    let is_held_up = finding.kind == Some(ObservationKind::SilenceDuringPartialRequest);
    let absence = finding.absence_text().filter(|_| !is_held_up);
    Some((absence.map_or_else(|| key(finding), str::to_owned), request))
}

/// Moves the findings that `selects` accepts from one cause to another, which lists each scenario once.
fn move_findings(
    all: &mut [CommonCause<'_>],
    from: usize,
    to: usize,
    selects: impl Fn(&ScenarioResult, &JudgedFinding) -> bool,
) {
    let moved: Vec<_> =
        all[from].findings.extract_if(.., |(result, judged)| selects(result, judged)).collect();
    for (result, judged) in moved {
        let findings = &mut all[to].findings;
        if !findings.iter().any(|(listed, _)| std::ptr::eq(*listed, result)) {
            findings.push((result, judged));
        }
    }
}

/// Merges findings into a far more frequent cause with the same response to the same request. Such a cause is a general mistake, which
/// scenarios about other operations report as violations of the requirements that they test.
fn merge_into_general_causes(all: &mut Vec<CommonCause<'_>>) {
    type Group<'a> = (Option<&'a str>, bool, (String, Vec<u8>));
    // The outer map assigns to each group its causes (indices into `all`), and the inner map assigns to each cause its number of findings.
    // Both maps are sorted, so reports on the same results are identical.
    let mut groups: BTreeMap<Group<'_>, BTreeMap<usize, usize>> = BTreeMap::new();
    for (place, cause) in all.iter().enumerate() {
        for (result, JudgedFinding { finding, .. }) in &cause.findings {
            if let Some(exchange) = exchange(result, finding) {
                let group = (cause.deviation, cause.is_flaky(), exchange);
                *groups.entry(group).or_default().entry(place).or_default() += 1;
            }
        }
    }
    for ((_, _, shared), counts) in groups {
        let most = counts.iter().max_by_key(|(place, count)| (**count, Reverse(**place)));
        let Some((&general, &most)) = most.filter(|(_, most)| **most >= MIN_GENERAL_SCENARIOS) else {
            continue;
        };
        for (&special, count) in counts.iter().filter(|(place, _)| **place != general) {
            let stays_apart = count * MIN_GENERAL_RATIO > most
                || WRONG_DATA_REQUIREMENTS.contains(&all[special].requirement)
                || all[special].severity > all[general].severity;
            if stays_apart {
                continue;
            }
            move_findings(all, special, general, |result, judged| {
                exchange(result, &judged.finding).as_ref() == Some(&shared)
            });
        }
    }
    all.retain(|cause| !cause.findings.is_empty());
}

/// Minimum number of requirements that the rows of a scenario about lawful variations must cite for the same observation at the same step
/// before their findings are attributed to another cause than the variations.
const MIN_UNRELATED_VARIATIONS: usize = 3;

/// Merges findings about lawful variations that all show the same. Each row of such a scenario cites the requirement that allows its
/// variation, but an implementation that fails in any variation has another mistake. If other scenarios show the same mistake, the findings
/// are added to theirs.
fn merge_unrelated_variations(all: &mut Vec<CommonCause<'_>>) {
    type Observed<'a> = (&'a str, String);
    type Group<'a> = (Option<&'a str>, bool, usize, Observed<'a>);
    fn observed(judged: &JudgedFinding) -> Observed<'_> {
        (&judged.finding.expected, key(&judged.finding))
    }
    let varied = |result: &ScenarioResult| result.scenario.split(['/', '[']).any(|part| part == "lawful");
    let mut groups: BTreeMap<Group<'_>, BTreeMap<usize, usize>> = BTreeMap::new();
    for (place, cause) in all.iter().enumerate().filter(|(_, cause)| cause.requirement != NO_CRASH) {
        for &(_, judged) in cause.findings.iter().filter(|(result, _)| varied(result)) {
            let group = (cause.deviation, cause.is_flaky(), judged.finding.line, observed(judged));
            *groups.entry(group).or_default().entry(place).or_default() += 1;
        }
    }
    for ((deviation, is_flaky, _, shared), counts) in groups {
        if counts.len() < MIN_UNRELATED_VARIATIONS {
            continue;
        }
        let shows = |&(result, judged): &(&ScenarioResult, &JudgedFinding)| {
            !varied(result) && observed(judged) == shared
        };
        let elsewhere = |cause: &CommonCause<'_>| cause.findings.iter().filter(|found| shows(found)).count();
        let is_alike = |cause: &CommonCause<'_>| (cause.deviation, cause.is_flaky()) == (deviation, is_flaky);
        let common = (0..all.len()).filter(|place| is_alike(&all[*place])).max_by_key(|place| {
            let cause = &all[*place];
            (elsewhere(cause), counts.get(place).copied(), cause.severity, Reverse(*place))
        });
        let Some(common) = common else { continue };
        for place in counts.into_keys().filter(|place| *place != common) {
            move_findings(all, place, common, |result, judged| varied(result) && observed(judged) == shared);
        }
    }
    all.retain(|cause| !cause.findings.is_empty());
}

/// Groups the findings of all results by cause. Causes without a deviation precede causes with a deviation. Within each group, causes are
/// sorted by severity. Among equally severe causes, flaky causes are last, and causes that valid input triggers are first.
pub fn causes(results: &[ScenarioResult]) -> Vec<CommonCause<'_>> {
    let mut all: Vec<CommonCause<'_>> = Vec::new();
    let mut places = HashMap::new();
    for result in results {
        for judged in &result.findings {
            let (requirement, severity) = (judged.finding.requirement.as_str(), judged.severity);
            let deviation = judged.deviation.as_deref();
            // A scenario that passed when it was played again is not a failure, so its findings form a separate cause.
            let is_flaky = result.verdict == Verdict::Flaky;
            // A note that --strict can make red is not merged with a note that it cannot make red.
            let counts = Strictness::DeFacto.counts(judged);
            let key = (requirement, severity, counts, deviation, is_flaky, key(&judged.finding));
            let place = *places.entry(key).or_insert_with(|| {
                all.push(CommonCause { requirement, severity, deviation, findings: Vec::new() });
                all.len() - 1
            });
            let cause = &mut all[place];
            // A cause lists each scenario once.
            let listed = [cause.findings.first(), cause.findings.last()];
            if listed.into_iter().flatten().any(|(listed, _)| std::ptr::eq(*listed, result)) {
                continue;
            }
            let first_is_valid = cause.findings.first().is_none_or(|(_, first)| first.valid_input);
            let place = if judged.valid_input && !first_is_valid { 0 } else { cause.findings.len() };
            cause.findings.insert(place, (result, judged));
        }
    }
    add_crashes_without_place(&mut all);
    merge_unrelated_variations(&mut all);
    merge_into_general_causes(&mut all);
    let kind =
        |cause: &CommonCause<'_>| cause.findings.first().map(|(_, judged)| FindingKind::of(&judged.finding));
    all.sort_by_cached_key(|cause| {
        (
            cause.deviation.is_some(),
            Reverse(cause.severity),
            cause.is_flaky(),
            !cause.is_valid_input(),
            kind(cause),
        )
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PartyKind;
    use crate::backtrace::CrashLocation;
    use crate::bytes::Bytes;
    use crate::event::{Event, EventKind};
    use crate::testing::P;

    fn seen(text: &str) -> String {
        seen_in(text, None)
    }

    fn seen_in(text: &str, place: Option<CrashLocation>) -> String {
        shape(&Finding { place, ..Finding::new("rfc13.get.value", PartyKind::Server, "", text) })
    }

    #[test]
    fn causes_ignore_insignificant_numbers() {
        for (one, other) in [
            ("rank 0 died of signal 11", "rank 12 died of signal 11"),
            ("\"cmd=get_result rc=-1 value=a1\"", "\"cmd=get_result rc=-1 value=a23\""),
            ("\"cmd=my_kvsname kvsname=ab_c\"", "\"cmd=my_kvsname kvsname=def\""),
        ] {
            assert_eq!(seen(one), seen(other));
        }
        for (one, other) in [
            ("rank 0 died of signal 11", "rank 0 died of signal 6"),
            ("\"cmd=get_result rc=-1\"", "\"cmd=get_result rc=0\""),
            ("pmi_version=1", "pmi_version=2"),
            ("silence", "the end of the connection"),
        ] {
            assert_ne!(seen(one), seen(other));
        }
    }

    fn result(scenario: &str, finding: Finding, valid_input: bool) -> ScenarioResult {
        let judged = JudgedFinding { valid_input, ..crate::result::judged(&Default::default(), finding) };
        ScenarioResult { scenario: scenario.into(), findings: vec![judged], ..ScenarioResult::default() }
    }

    #[test]
    fn crashes_at_the_same_location_share_a_cause() {
        let died = |seen: &str, function: &str, line: u32| {
            let place = Some(CrashLocation::Function(function.into()));
            let seen = format!("{seen} (in {function} at pm.c:{line})");
            Finding { place, ..Finding::new(NO_CRASH, PartyKind::Server, "", seen) }
        };
        let results = [
            result("a", died("pm died of signal 11", "PMI_KVS_Fence", 1), false),
            result("b", died("the launcher, pm, died of signal 6", "PMI_KVS_Fence", 1), true),
            result("c", died("pm died of signal 11", "PMI2_KVS_Fence", 1), false),
            result("d", died("pm died of signal 11", "PMI_KVS_Fence", 2), false),
        ];
        let causes = causes(&results);
        let asserts = |line: u32| {
            key(&Finding::new(
                NO_CRASH,
                PartyKind::Server,
                "",
                format!("pm died of signal 6: pm.c:{line}: x"),
            ))
        };
        assert_ne!(asserts(1), asserts(2));
        let scenarios = |cause: &CommonCause<'_>| {
            cause.findings.iter().map(|(result, _)| result.scenario.clone()).collect::<Vec<_>>()
        };
        assert_eq!(causes.iter().map(scenarios).collect::<Vec<_>>(), [vec!["b", "a"], vec!["c"], vec!["d"]]);
    }

    #[test]
    fn crash_without_location_joins_the_only_cause() {
        let died = |place: Option<&str>| {
            let seen = match place {
                Some(function) => format!("pm died of signal 11 (in {function} at pm.c:1)"),
                None => "pm died of signal 11".to_owned(),
            };
            let place = place.map(|name| CrashLocation::Function(name.to_owned()));
            Finding { place, ..Finding::new(NO_CRASH, PartyKind::Server, "", seen) }
        };
        let of = |places: &[Option<&str>]| {
            let results: Vec<_> = places
                .iter()
                .zip('a'..)
                .map(|(place, name)| result(&name.to_string(), died(*place), false))
                .collect();
            causes(&results).iter().map(|cause| cause.findings.len()).collect::<Vec<_>>()
        };
        assert_eq!(of(&[None, Some("get"), None]), [3]);
        assert_eq!(of(&[None, Some("get"), Some("put")]), [1, 1, 1], "the crash may belong to either place");
    }

    #[test]
    fn specific_cause_joins_the_general_cause() {
        let found_after = |name: &str, requirement: &str, writes: &[&str], seen: &str| {
            let events = (1..).zip(writes).map(|(seq, write)| {
                let bytes = Bytes(write.as_bytes().to_vec());
                Event::new(seq, EventKind::ToServer { proc: P, bytes })
            });
            let finding =
                Finding { proc: Some(P), seq: 9, ..Finding::new(requirement, PartyKind::Server, "", seen) };
            ScenarioResult { last_events: events.collect(), ..result(name, finding, true) }
        };
        let found = |name: &str, requirement: &str, request: &str| {
            found_after(name, requirement, &[&format!("cmd={request}\n")], "silence")
        };
        let mut results: Vec<_> =
            (0..8).map(|n| found(&format!("a/{n}"), "rfc13.finalize.ack", "finalize")).collect();
        let split = ["c", "md=fina", "lize", "\n"];
        results.push(found_after("wire/split", "rfc13.wire.newline", &split, "silence: the server waits"));
        let of = |results: &[ScenarioResult]| {
            causes(results).iter().map(|c| (c.requirement.to_owned(), c.findings.len())).collect::<Vec<_>>()
        };
        assert_eq!(of(&results), [("rfc13.finalize.ack".to_owned(), 9)]);
        // The same silence after a different request is a different cause.
        results.push(found("wire/other", "rfc13.wire.newline", "get_maxes kvsname=k"));
        assert_eq!(of(&results).len(), 2);
        // A few scenarios are not enough for a general cause.
        assert_eq!(of(&results[4..9]).len(), 2);
    }

    /// A get that returns success for a missing key fails in each variation of the server.
    #[test]
    fn same_failure_in_several_variations_has_another_cause() {
        let found = |scenario: &str, requirement: &str| {
            let finding = Finding::new(requirement, PartyKind::Library, "PMI_KVS_Get fails", "it succeeded");
            result(scenario, Finding { line: 19, ..finding }, true)
        };
        let errors = ids::RFC13_API_KVS_GET_ERRORS;
        let mut results = vec![
            found("library/kvs/get-unknown", errors),
            found("library/lawful[bytewise]", "rfc13.wire.newline"),
            found("library/lawful[rc-one]", "rfc13.abnf.int"),
        ];
        let of = |results: &[ScenarioResult]| {
            causes(results).iter().map(|c| (c.requirement.to_owned(), c.findings.len())).collect::<Vec<_>>()
        };
        assert_eq!(of(&results).len(), 3, "two variations may have two causes");
        results.push(found("library/lawful[extra-key]", "rfc13.parser.extra-keys"));
        assert_eq!(of(&results), [(errors.to_owned(), 4)]);
        assert_eq!(of(&results[1..]).len(), 1);
    }

    #[test]
    fn causes_with_valid_input_or_wrong_data_come_first() {
        let found = |id: &str, seen: &str| Finding::new(id, PartyKind::Server, "", seen);
        let results = [
            result("a", found("rfc13.error.close", "silence"), false),
            result("b", found("rfc13.get.value", "\"cmd=get_result rc=-1\""), true),
            result("c", found("rfc13.mapping.format", "\"cmd=get_result rc=0 value=x\""), true),
            result("d", found("rfc13.get.value", "\"cmd=get_result rc=0 value=x\""), true),
        ];
        let order: Vec<&str> = causes(&results).iter().map(|cause| &*cause.findings[0].0.scenario).collect();
        assert_eq!(order, ["d", "c", "b", "a"]);
    }

    #[test]
    fn cause_lists_each_scenario_once() {
        let silent = |name: &str, valid_input: bool| {
            result(name, Finding::new("rfc13.error.close", PartyKind::Server, "", "silence"), valid_input)
        };
        let mut twice = silent("b", true);
        twice.findings.extend(silent("b", false).findings);
        let results = [silent("a", false), twice, silent("c", false)];
        let of_cause = &causes(&results)[0].findings;
        let listed: Vec<&str> = of_cause.iter().map(|(result, _)| &*result.scenario).collect();
        assert_eq!(listed, ["b", "a", "c"]);
    }

    #[test]
    fn flaky_scenario_has_a_separate_cause() {
        let fails = |name: &str, verdict| {
            let finding = Finding::new("rfc13.error.close", PartyKind::Server, "", "silence");
            ScenarioResult { verdict, ..result(name, finding, true) }
        };
        let results = [fails("a", Verdict::Flaky), fails("b", Verdict::Fail), fails("c", Verdict::Fail)];
        let causes = causes(&results);
        let listed: Vec<_> = causes.iter().map(|c| (c.is_flaky(), c.findings.len())).collect();
        assert_eq!(listed, [(false, 2), (true, 1)]);
    }

    #[test]
    fn launcher_output_does_not_distinguish_causes() {
        let ends = |words: &str| {
            let text = "the end of the connection";
            let mut finding = Finding::new("rfc13.get.value", PartyKind::Server, "", text);
            finding.add_launcher_end(&format!("the launcher, pm, ended with exit status 1: {words}"));
            (shape(&finding), FindingKind::of(&finding))
        };
        assert_eq!(ends("cannot read"), ends("rc=-1 after a put"));
    }

    #[test]
    fn each_crash_address_has_a_separate_cause() {
        let died = |offset| {
            let place = CrashLocation::Address { module: "pm-2".into(), offset };
            seen_in(&format!("rank 7 died of signal 11 (in {place})"), Some(place))
        };
        assert_eq!(died(0x1a2), "rank # died of signal 11 (in pm-2+0x1a2)");
        assert_ne!(died(0x1a2), died(0x3a4));
    }
}
