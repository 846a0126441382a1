//! Validity: a session is valid if each message of our side follows the grammar and fits the state.

use pmi_scenario::ids;
use std::collections::HashSet;

use pmi_wire::{Direction, Proc};

use crate::event::{Event, What};
use crate::library::api::Argument;
use crate::{Monitor, Side};

/// The requirement that every known library breaks: they number the arguments of a spawn from one. A request in their form is
/// what a server meets in practice.
const AS_LIBRARIES_SPAWN: &str = ids::RFC13_SPAWN_ARG_INDICES;

/// Returns whether only valid input led to a failure of `under_test`.
///
/// Each message of the other side must follow the grammar and fit the state at its place. An incomplete message is invalid, since a
/// server may already have read it in another way. `shown_at` is the event that shows the failure. Without it, as for a crash, all
/// messages to open connections count.
pub fn is_reached_by_valid_input(events: &[Event], under_test: Side, shown_at: Option<u64>) -> bool {
    let ours = if under_test == Side::Server { Side::Client } else { Side::Server };
    let end = match shown_at {
        Some(seq) => events.iter().take_while(|event| event.seq <= seq).count(),
        None => end_of_input(events, ours),
    };
    let mut monitor = Monitor::new();
    monitor.inspects_responses = ours == Side::Server;
    for event in &events[..end] {
        let is_of_upstream = match event.what {
            What::ToProxy { scripted, .. } => scripted,
            What::ClosedByUpstream { .. } => true,
            _ => false,
        };
        monitor.observe(event);
        let breaks = |f: &crate::Finding| f.party == ours && f.requirement != AS_LIBRARIES_SPAWN;
        if is_of_upstream || is_invalid_call(event) || monitor.take_findings().iter().any(breaks) {
            return false;
        }
    }
    let direction = if ours == Side::Client { Direction::ToServer } else { Direction::FromServer };
    !monitor.is_irregular_of(ours) && !monitor.is_mid_message(direction)
}

/// Returns whether a call of PMI-1 passes an invalid NULL. A spawn may omit arguments, and PMI_Free_keyvals accepts NULL.
fn is_invalid_call(event: &Event) -> bool {
    let What::Called { function, arguments, .. } = &event.what else { return false };
    let takes_null =
        !function.starts_with("PMI_") || function.starts_with("PMI_Spawn") || function == "PMI_Free_keyvals";
    !takes_null && arguments.contains(&Argument::Null)
}

/// Returns the number of events up to the last one that may have led to a failure that no event shows: the last message to an open
/// connection, or the first trouble, if that is later. The events after it are the end of the session.
fn end_of_input(events: &[Event], ours: Side) -> usize {
    let mut closed: HashSet<Proc> = HashSet::new();
    let (mut input, mut trouble) = (0, None);
    for (event, number) in events.iter().zip(1..) {
        let is_trouble = match &event.what {
            What::ToServer { proc, .. } if ours == Side::Client && !closed.contains(proc) => {
                input = number;
                false
            }
            What::FromServer { proc, .. } | What::Called { proc, .. }
                if ours == Side::Server && !closed.contains(proc) =>
            {
                input = number;
                false
            }
            What::ClosedByServer { proc } | What::Ended { proc, ours: false } if ours == Side::Client => {
                closed.insert(*proc)
            }
            What::Exited { proc, .. } | What::ClosedByClient { proc } if ours == Side::Server => {
                closed.insert(*proc)
            }
            What::Crashed { .. } | What::StillRunning { .. } | What::JobStays { .. } => true,
            _ => false,
        };
        if is_trouble {
            trouble.get_or_insert(number);
        }
    }
    input.max(trouble.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::event::{Bytes, Exit, SilenceProof};

    const INIT: &str = "cmd=init pmi_version=1 pmi_subversion=1\n";
    const JOINED: &str = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";

    fn proc(rank: u32) -> Proc {
        Proc { group: 0, rank }
    }

    fn asks(rank: u32, text: &str) -> What {
        What::ToServer { proc: proc(rank), bytes: Bytes(text.into()) }
    }

    fn says(rank: u32, text: &str) -> What {
        What::FromServer { proc: proc(rank), bytes: Bytes(text.into()) }
    }

    /// Two ranks that have joined and know the keyval space, and what follows.
    fn session(whats: Vec<What>) -> Vec<Event> {
        let launched = What::Launched { command: Vec::new(), ranks: 2, nodes: 1 };
        let joins = (0..2).flat_map(|rank| {
            let name = says(rank, "cmd=my_kvsname kvsname=k\n");
            [asks(rank, INIT), says(rank, JOINED), asks(rank, "cmd=get_my_kvsname\n"), name]
        });
        let all = std::iter::once(launched).chain(joins).chain(whats);
        all.zip(0..).map(|(what, seq)| Event::new(seq, what)).collect()
    }

    /// Whether rank 0 sends valid input before the server closes all connections.
    fn is_valid(text: &str) -> bool {
        let close = |rank| What::ClosedByServer { proc: proc(rank) };
        let events = session(vec![asks(0, text), close(0), close(1)]);
        is_reached_by_valid_input(&events, Side::Server, None)
    }

    fn spawn(fields: &str) -> String {
        format!("mcmd=spawn\nnprocs=1\nexecname=x\ntotspawns=1\nspawnssofar=1\n{fields}info_num=0\nendcmd\n")
    }

    #[rstest]
    #[case::get("cmd=get kvsname=k key=a\n", true)]
    #[case::put("cmd=put kvsname=k key=a value=b c\n", true)]
    #[case::abort("cmd=abort exitcode=3\n", true)]
    #[case::junk_without_end("\x01\x7fcmd", false)]
    #[case::junk_line("frob\n", false)]
    #[case::equals_behind_command("cmd=get_my_kvsname==\n", false)]
    #[case::half_a_request("cmd=get_maxes", false)]
    #[case::changed_key("cmd=get kvsna<<lme=k key=a\n", false)]
    #[case::unknown_key("cmd=get kvsname=k key=a x=y\n", false)]
    #[case::other_order("cmd=get key=a kvsname=k\n", false)]
    #[case::other_keyval_space("cmd=get kvsname=other key=a\n", false)]
    #[case::reserved_key("cmd=put kvsname=k key=PMI_process_mapping value=b\n", false)]
    #[case::two_requests_at_once("cmd=get_maxes\ncmd=get_appnum\n", false)]
    #[case::init_again(INIT, false)]
    fn decides_message_by_message(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(is_valid(text), valid);
    }

    #[rstest]
    #[case::from_zero("arg0=a\nargcnt=1\npreput_num=1\npreput_key_0=p\npreput_val_0=v\n", true)]
    #[case::from_one_as_libraries_do("arg1=a\nargcnt=1\npreput_num=0\n", true)]
    #[case::value_like_the_end("arg0=endcmd\nargcnt=1\npreput_num=0\n", true)]
    #[case::changed_key("argcnt=0\npreput_num=0\npreput_al_1=\n", false)]
    #[case::other_order("preput_num=0\nargcnt=0\n", false)]
    fn decides_on_the_lines_of_a_spawn(#[case] fields: &str, #[case] valid: bool) {
        assert_eq!(is_valid(&spawn(fields)), valid);
        assert!(!is_valid(spawn(fields).strip_suffix("endcmd\n").unwrap()));
    }

    #[test]
    fn junk_after_a_normal_end_of_another_rank_counts() {
        let leaves = [asks(1, "cmd=finalize\n"), says(1, "cmd=finalize_ack\n")];
        let end =
            [What::ClosedByServer { proc: proc(1) }, asks(0, "frob"), What::ClosedByServer { proc: proc(0) }];
        let events = session(leaves.into_iter().chain(end).collect());
        assert!(!is_reached_by_valid_input(&events, Side::Server, None));
    }

    #[test]
    fn junk_after_a_missing_answer_counts() {
        let silence = What::NoAnswer { proc: proc(0), proof: SilenceProof::Idle };
        let events = session(vec![asks(0, "cmd=get_maxes\n"), silence, asks(1, "frob\n")]);
        assert!(!is_reached_by_valid_input(&events, Side::Server, None));
        assert!(is_reached_by_valid_input(&events, Side::Server, Some(10)));
    }

    #[test]
    fn what_is_sent_to_a_closed_connection_does_not_count() {
        let closed = What::ClosedByServer { proc: proc(0) };
        let events = session(vec![asks(0, "cmd=get_maxes\n"), closed, asks(0, "frob\n")]);
        assert!(is_reached_by_valid_input(&events, Side::Server, None));
    }

    #[rstest]
    #[case::null("PMI_Get_size", &[Argument::Null], false)]
    #[case::place("PMI_Get_size", &[Argument::Out("size".into(), None)], true)]
    #[case::left_out("PMI_Spawn_multiple", &[Argument::Number(1), Argument::Null], true)]
    fn null_is_invalid_input_for_a_library(
        #[case] function: &str,
        #[case] arguments: &[Argument],
        #[case] valid: bool,
    ) {
        let (function, arguments) = (function.to_owned(), arguments.to_vec());
        let called = What::Called { proc: proc(0), function, arguments, held: false };
        let crash = What::Exited { proc: proc(0), exit: Exit::Signal(11) };
        assert_eq!(is_reached_by_valid_input(&session(vec![called, crash]), Side::Library, None), valid);
    }

    #[test]
    fn a_bad_answer_is_invalid_input_for_a_client() {
        let answered = |text| {
            let exited = What::ClosedByClient { proc: proc(0) };
            let events = session(vec![asks(0, "cmd=get_appnum\n"), says(0, text), exited]);
            is_reached_by_valid_input(&events, Side::Client, None)
        };
        assert!(answered("cmd=appnum appnum=0\n"));
        assert!(!answered("cmd=appnum appnum=x\n") && !answered("cmd=appnum app"));
    }
}
