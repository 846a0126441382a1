//! Writes the program that reproduces a finding.

use pmi_judge::event::Event;

use super::library;
use super::python::PythonScript;
use super::steps::ReproducerSession;
use super::summary::{FindingSummary, Reproducer};
use super::symptom::{NotReproducible, Symptom};

/// Returns the program that reproduces a symptom. `events` is the session that showed the symptom. `quote` returns the text of a line of
/// the scenario. The text is needed for a process of the harness that ended, because no event states how it ended.
///
/// # Errors
///
/// Returns an error if no program can reproduce the symptom. [`NotReproducible`] lists the reasons.
pub fn reproducer(
    about: FindingSummary<'_>,
    events: &[Event],
    symptom: &Symptom,
    quote: &dyn Fn(usize) -> String,
) -> Result<Reproducer, NotReproducible> {
    if library::is_of_library(events) {
        return Ok(Reproducer { text: library::program(about, events, symptom)?, suffix: "c" });
    }
    let session = ReproducerSession::read(events, symptom, quote)?;
    Ok(Reproducer { text: PythonScript { about, session: &session }.text(), suffix: "py" })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use pmi_judge::event::{Bytes, Event, EventKind};
    use pmi_judge::{Finding, PartyKind, builtin_requirements};
    use pmi_wire::Proc;

    use super::super::summary::LINES;
    use super::*;

    const AGENT: &str = "/dev/shm/pmi-conform-x/g0/pmi-conform-agent";

    fn proc(rank: u32) -> Proc {
        Proc { group: 0, rank }
    }

    fn events(kinds: Vec<EventKind>) -> Vec<Event> {
        let command = ["mpiexec", "-n", "2", AGENT].map(str::to_owned).to_vec();
        let launched = EventKind::Launched { command, ranks: 2, nodes: 1 };
        let all = std::iter::once(launched).chain(kinds);
        all.zip(0..).map(|(kind, seq)| Event::new(seq, kind)).collect()
    }

    fn asks(rank: u32, text: &str) -> EventKind {
        EventKind::ToServer { proc: proc(rank), bytes: Bytes(text.into()) }
    }

    fn responds(rank: u32, text: &str) -> EventKind {
        EventKind::FromServer { proc: proc(rank), bytes: Bytes(text.into()) }
    }

    /// Returns the script for a finding about a server at event `seq`.
    fn script(kinds: Vec<EventKind>, seq: u64, seen: &str) -> Result<String, NotReproducible> {
        let events = events(kinds);
        let finding = Finding { seq, ..Finding::new("rfc13.get.value", PartyKind::Server, "expected", seen) };
        let symptom = Symptom::of(&finding, &events).unwrap();
        let about = FindingSummary { title: "get\nvalue", expected: "the \"value\"", seen, run_counts: None };
        reproducer(about, &events, &symptom, &|_| String::new()).map(|program| program.text)
    }

    /// Returns whether Python can parse a script.
    fn is_python(script: &str) -> bool {
        let check = "import ast, sys; ast.parse(sys.stdin.read())";
        let mut python = Command::new("python3").args(["-c", check]).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut python.stdin.take().unwrap(), script.as_bytes()).unwrap();
        python.wait().unwrap().success()
    }

    #[test]
    fn script_uses_the_kvsname_that_it_receives() {
        let session = vec![
            asks(0, "cmd=get_my_kvsname\n"),
            responds(0, "cmd=my_kvsname kvsname=kvs_4711\n"),
            asks(1, "cmd=get_my_kvsname\n"),
            responds(1, "cmd=my_kvsname kvsname=kvs_4711\n"),
            asks(0, "cmd=get kvsname=kvs_4711 key=a\n"),
            responds(0, "cmd=get_result rc=0 value='\"\\\x01\n"),
        ];
        let script = script(session, 6, "\"cmd=get_result rc=0 value=\\'\\\"\\\\\\x01\"").unwrap();
        assert!(script.contains(r#"send("0.0", b"cmd=get kvsname={kvsname0} key=a\n")"#), "{script}");
        assert!(
            script.contains(r#"said, shown = recv("0.0", b"cmd=get_result rc=0 value=\'\"\\\x01\n")"#),
            "{script}"
        );
        assert!(script.contains(r#"COMMAND = ["mpiexec", "-n", "2", "{agent}"]"#), "{script}");
        assert!(is_python(&script), "{script}");
    }

    #[test]
    fn script_explains_the_race_that_causes_sigpipe() {
        let died = EventKind::Crashed { name: "the launcher, mpiexec".to_owned(), signal: 13 };
        let events = events(vec![asks(0, "cmd=x\n"), died]);
        let finding = Finding::new(
            builtin_requirements::NO_CRASH,
            PartyKind::Server,
            "lives",
            "the launcher, mpiexec, died of signal 13",
        );
        let symptom = Symptom::of(&finding, &events).unwrap();
        let about =
            FindingSummary { title: "t", expected: "lives", seen: &finding.seen, run_counts: Some((2, 200)) };
        let script = reproducer(about, &events, &symptom, &|_| String::new()).unwrap().text;
        assert!(
            script.contains("signal 13, in 2 of 200 runs (1 %); a race: the launcher dies only if"),
            "{script}"
        );
        assert!(script.lines().count() <= LINES && is_python(&script), "{script}");
    }

    #[test]
    fn script_for_a_program_offers_a_port() {
        let env = [("PMI_ID", "0"), ("PMI_PORT", "127.0.0.1:4711")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let started = EventKind::Started { proc: proc(0), env, args: Vec::new(), bad_fd: None };
        let [initack, response] = [(); 2].map(|()| Bytes(Vec::new()));
        let greeted = EventKind::Greeted { proc: proc(0), initack, response };
        let mut events = events(vec![started, greeted, asks(0, "cmd=x\n")]);
        let command = vec!["./a.out".to_owned()];
        events[0] = Event::new(0, EventKind::Launched { command, ranks: 1, nodes: 1 });
        let finding = Finding { seq: 3, ..Finding::new("x", PartyKind::Client, "y", "\"cmd=x\"") };
        let symptom = Symptom::of(&finding, &events).unwrap();
        let about = FindingSummary { title: "t", expected: "y", seen: &finding.seen, run_counts: None };
        let script = reproducer(about, &events, &symptom, &|_| String::new()).unwrap().text;
        assert!(script.contains("cmd=set size=1") && !script.contains("PMI_FD"), "{script}");
        assert!(is_python(&script), "{script}");
    }

    #[test]
    fn script_makes_stray_connections() {
        let stray = Proc { group: Proc::STRAY_GROUP, rank: 0 };
        let bytes = Bytes(b"cmd=initack pmiid=77\n".to_vec());
        let [initack, response] = [(); 2].map(|()| Bytes(Vec::new()));
        let greeted = EventKind::Greeted { proc: proc(0), initack, response };
        let session = vec![
            greeted,
            EventKind::ToServer { proc: stray, bytes },
            EventKind::ClosedByServer { proc: proc(0) },
        ];
        let script = script(session, 3, "the end of the connection").unwrap();
        let [connects, sends, ends] = [
            format!("stray(\"{}.0\", \"0.0-1\")", Proc::STRAY_GROUP),
            "b\"cmd=initack pmiid=77\\n\")".to_owned(),
            "recv(\"0.0\", b\"\")".to_owned(),
        ]
        .map(|part| script.find(&part).unwrap_or_else(|| panic!("no {part} in {script}")));
        assert!(connects < sends && sends < ends && is_python(&script), "{script}");
    }

    #[test]
    fn script_detects_the_death_of_a_daemon() {
        let died = EventKind::Crashed { name: "slurmstepd".to_owned(), signal: 11 };
        let events = events(vec![asks(0, "cmd=x\n"), died]);
        let seen = "slurmstepd died of signal 11";
        let finding = Finding::new(builtin_requirements::NO_CRASH, PartyKind::Server, "lives", seen);
        let symptom = Symptom::of(&finding, &events).unwrap();
        let about = FindingSummary { title: "t", expected: "lives", seen, run_counts: None };
        let script = reproducer(about, &events, &symptom, &|_| String::new()).unwrap().text;
        let before = script.find("before = managers()").unwrap();
        assert!(before < script.find("b\"cmd=x").unwrap(), "{script}");
        assert!(script.contains("\"slurmstepd\" in before and \"slurmstepd\" not in said"), "{script}");
        assert!(!script.contains("hydra_pmi_proxy") && is_python(&script), "{script}");
    }

    #[test]
    fn script_states_frequency_of_intermittent_finding() {
        let events = events(vec![asks(0, "cmd=x\n"), responds(0, "cmd=y\n")]);
        let finding =
            Finding { seq: 2, ..Finding::new("rfc13.get.value", PartyKind::Server, "z", "\"cmd=y\"") };
        let symptom = Symptom::of(&finding, &events).unwrap();
        let about =
            FindingSummary { title: "t", expected: "z", seen: "\"cmd=y\"", run_counts: Some((2, 200)) };
        let script = reproducer(about, &events, &symptom, &|_| String::new()).unwrap().text;
        assert!(script.contains("\n# seen: \"cmd=y\", in 2 of 200 runs (1 %)\n"), "{script}");
        assert!(
            script.contains(
                "does not occur; it occurred in 2 of 200 runs (1 %) before, so run this script again"
            ),
            "{script}"
        );
        assert!(is_python(&script), "{script}");
    }

    #[test]
    fn script_is_short_and_abbreviates_long_values() {
        let long = format!("cmd=put key=a value={}\n", "x".repeat(1000));
        let many =
            (0..200).flat_map(|n| [asks(n % 2, &long), responds(n % 2, &format!("cmd=put_result rc={n}\n"))]);
        let script = script(many.collect(), 400, "\"cmd=put_result rc=199\"").unwrap();
        assert!(script.lines().count() <= LINES && script.contains("b\"x\" * 1000"), "{script}");
        assert!(is_python(&script), "{script}");
    }

    #[test]
    fn script_stops_the_server_while_hundreds_of_ranks_send() {
        let ranks = 0..120;
        let init = "cmd=init pmi_version=1 pmi_subversion=1\n";
        let mut events: Vec<_> = ranks.clone().map(|n| asks(n, init)).collect();
        events.extend(ranks.clone().map(|n| responds(n, "cmd=response_to_init rc=0\n")));
        events.extend(ranks.map(|n| asks(n, &format!("cmd=get kvsname=kvs key=absent-{n}\n"))));
        events.push(responds(0, "cmd=get_result rc=0 value=\n"));
        let last = events.len() as u64;
        let script = script(events, last, "\"cmd=get_result rc=0 value=\"").unwrap();
        let places = [
            "send(\"0.0-119\"",
            "server(19)",
            "key=absent-0",
            "key=absent-119",
            "server(18)",
            "shown = recv",
        ]
        .map(|text| script.find(text).unwrap_or_else(|| panic!("{text}: {script}")));
        assert!(places.is_sorted(), "{places:?}: {script}");
        assert!(script.lines().count() <= LINES && is_python(&script), "{script}");
    }

    #[test]
    fn script_expects_silence_for_a_missing_response() {
        let silence = EventKind::NoResponse { proc: proc(1), proof: pmi_judge::event::SilenceProof::Idle };
        let observed_twice = vec![asks(1, "cmd=get_maxes\n"), silence.clone(), silence];
        let script = script(observed_twice, 2, "silence").unwrap();
        assert!(script.contains("said, shown = recv(\"0.1\", None)"), "{script}");
        assert_eq!(script.matches("recv(\"0.1\", None").count(), 1, "{script}");
    }

    #[test]
    fn finding_with_proxy_messages_has_no_reproducer() {
        let text = Bytes(Vec::new());
        let passed_on = EventKind::FromProxy { group: 0, proxy: 0, id: 1, text, held: false };
        let session = vec![passed_on, responds(0, "cmd=x\n")];
        assert_eq!(script(session, 2, "cmd=x").unwrap_err(), NotReproducible::Upstream);
    }
}
