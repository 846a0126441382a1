//! Whether anybody may meet a failure, or only who says what no process and no process manager says.

use pmi_judge::event::{Event, What};
use pmi_judge::{Monitor, Side};
use pmi_scenario::ast::UnderTest;

/// Whether all that our own side said was lawful, up to the event that shows a failure, or, without one, up to where whoever is under test
/// ends, dies or stays silent. It is the other side.
pub(crate) fn is_lawful(events: &[Event], under_test: UnderTest, shown_at: Option<u64>) -> bool {
    let ours = match under_test {
        UnderTest::Server => Side::Client,
        UnderTest::Client | UnderTest::Library => Side::Server,
    };
    let shows = |event: &&Event| match event.what {
        What::Crashed { .. } | What::NoAnswer { .. } | What::StillRunning { .. } | What::JobStays { .. } => {
            true
        }
        What::ClosedByServer { .. } | What::Ended { ours: false, .. } => ours == Side::Client,
        What::Exited { .. } | What::ClosedByClient { .. } => ours == Side::Server,
        _ => false,
    };
    let mut monitor = Monitor::new();
    let is_before = |event: &&Event| shown_at.map_or(!shows(event), |seq| event.seq <= seq);
    events.iter().take_while(is_before).for_each(|event| monitor.observe(event));
    let scripted = events.iter().any(|event| matches!(event.what, What::ToProxy { scripted: true, .. }));
    !scripted && !monitor.take_findings().iter().any(|found| found.party == ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_judge::event::Bytes;
    use pmi_wire::Proc;

    #[test]
    fn what_is_said_before_something_shows_is_lawful_or_not() {
        let proc = Proc { group: 0, rank: 0 };
        let bytes = |text: &str| Bytes(text.into());
        let asks = |text: &str| What::ToServer { proc, bytes: bytes(text) };
        let events = |whats: Vec<What>| -> Vec<Event> {
            let launched = What::Launched { command: Vec::new(), ranks: 1, nodes: 1 };
            let init = asks("cmd=init pmi_version=1 pmi_subversion=1\n");
            let text = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
            let answer = What::FromServer { proc, bytes: bytes(text) };
            let all = [launched, init, answer].into_iter().chain(whats);
            all.zip(0..).map(|(what, seq)| Event::new(seq, what)).collect()
        };
        let closed = || What::ClosedByServer { proc };
        let frob_after_all = vec![asks("cmd=get_maxes\n"), asks("cmd=frob\n")];
        assert!(is_lawful(&events(frob_after_all.clone()), UnderTest::Server, Some(3)));
        assert!(!is_lawful(&events(frob_after_all), UnderTest::Server, Some(4)));
        for (whats, lawful) in [
            (vec![asks("cmd=get_maxes\n"), closed()], true),
            (vec![asks("cmd=get_maxes\n"), closed(), asks("cmd=frob\n")], true),
            (vec![asks("cmd=frob\n"), closed()], false),
            (vec![asks("\n"), closed()], false),
        ] {
            assert_eq!(is_lawful(&events(whats.clone()), UnderTest::Server, None), lawful, "{whats:?}");
        }
    }
}
