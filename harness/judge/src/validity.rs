//! Determines whether the input of an implementation was valid: whether every message from the other side follows the grammar and fits the
//! state.

use pmi_scenario::ids;
use std::collections::HashSet;

use pmi_scenario::signature::{self, Param};
use pmi_wire::{Direction, Proc, grammar};

use crate::event::{Event, EventKind};
use crate::library::api::{CallArgument, OutputValue};
use crate::offer::has_connection;
use crate::{Monitor, PartyKind};

/// The requirement that every known library breaks by numbering the arguments of a spawn request from one. Servers encounter such requests
/// in practice, so the numbering does not make the input invalid.
const SPAWN_INDEX_REQUIREMENT: &str = ids::RFC13_SPAWN_ARG_INDICES;

/// Returns whether only valid input led to a failure of `under_test`.
///
/// Every message from the other side must follow the grammar and fit the state at that point. An incomplete message is invalid, because the
/// receiver may already have read it in a different way. `shown_at` is the event that shows the failure. If no event shows it, for
/// example after a crash, all messages to open connections count.
pub fn is_reached_by_valid_input(events: &[Event], under_test: PartyKind, shown_at: Option<u64>) -> bool {
    let ours = if under_test == PartyKind::Server { PartyKind::Client } else { PartyKind::Server };
    let end = match shown_at {
        Some(seq) => events.iter().take_while(|event| event.seq <= seq).count(),
        None => end_of_input(events, ours),
    };
    let mut monitor = Monitor::new();
    monitor.inspects_responses = ours == PartyKind::Server;
    let mut calls = LibraryCalls::default();
    for event in &events[..end] {
        let is_of_upstream = match event.kind {
            EventKind::ToProxy { scripted, .. } => scripted,
            EventKind::ClosedByUpstream { .. } => true,
            _ => false,
        };
        monitor.observe(event);
        let breaks = |f: &crate::Finding| f.party == ours && f.requirement != SPAWN_INDEX_REQUIREMENT;
        let is_of_caller = under_test == PartyKind::Library && calls.breaks_api(event);
        if is_of_upstream || is_of_caller || monitor.take_findings().iter().any(breaks) {
            return false;
        }
    }
    let direction = if ours == PartyKind::Client { Direction::ToServer } else { Direction::FromServer };
    !monitor.is_irregular_of(ours) && !monitor.is_mid_message(direction)
}

/// Functions with a key argument, and the position of the key among the arguments.
const KEY_ARGUMENTS: [(&str, usize); 7] = [
    ("PMI_KVS_Put", 1),
    ("PMI_KVS_Get", 1),
    ("PMI2_KVS_Put", 0),
    ("PMI2_KVS_Get", 2),
    ("PMI2_Info_GetJobAttr", 0),
    ("PMI2_Info_GetNodeAttr", 0),
    ("PMI2_Info_PutNodeAttr", 0),
];

#[derive(Default)]
struct LibraryCalls {
    /// The names of keyval spaces that the library has returned.
    spaces: HashSet<Vec<u8>>,
}

impl LibraryCalls {
    /// Returns whether an event shows that the caller of a library breaks the rules of the API. This is the case if the environment of the
    /// process offers no connection, or if a function is called with an invalid argument.
    fn breaks_api(&mut self, event: &Event) -> bool {
        match &event.kind {
            EventKind::Started { env, .. } => !has_connection(env),
            EventKind::Returned { function, returned, .. } => {
                let is_name = function == "PMI_KVS_Get_my_name" || function == "PMI_KVS_Create";
                for (_, held) in returned.outs.iter().filter(|_| is_name) {
                    if let OutputValue::Text(Some(name)) = held {
                        self.spaces.insert(name.0.clone());
                    }
                }
                false
            }
            EventKind::Called { function, arguments, .. } => self.is_invalid(function, arguments),
            _ => false,
        }
    }

    fn is_invalid(&self, function: &str, arguments: &[CallArgument]) -> bool {
        // In RFC 13, NULL is valid only in place of an omitted argument of a spawn, and as the argument of PMI_Free_keyvals. In PMI-2,
        // NULL always counts as valid.
        let takes_null = !function.starts_with("PMI_")
            || function.starts_with("PMI_Spawn")
            || function == "PMI_Free_keyvals";
        let is_key = |at: usize| KEY_ARGUMENTS.contains(&(function, at));
        let is_space = |at: usize| at == 0 && function.starts_with("PMI_KVS_") && !self.spaces.is_empty();
        let params = signature::function(function).map_or(&[][..], |function| function.params);
        let is_length = |at: usize| params.contains(&Param::OutText(Some(at)));
        arguments.iter().enumerate().any(|(at, argument)| match argument {
            CallArgument::Null => !takes_null,
            CallArgument::Text(text) if is_key(at) => !grammar::is_word(&text.0),
            CallArgument::Text(text) if is_space(at) => !self.spaces.contains(&text.0),
            CallArgument::Number(number) if is_length(at) => *number <= 0,
            _ => false,
        })
    }
}

/// Returns the number of events that may have led to a failure that no single event shows. These are the events up to the last message
/// to an open connection, or up to the first sign of trouble if that is later. The remaining events belong to the end of the session.
fn end_of_input(events: &[Event], ours: PartyKind) -> usize {
    let mut closed: HashSet<Proc> = HashSet::new();
    let (mut input, mut trouble) = (0, None);
    for (event, number) in events.iter().zip(1..) {
        let is_trouble = match &event.kind {
            EventKind::ToServer { proc, .. } if ours == PartyKind::Client && !closed.contains(proc) => {
                input = number;
                false
            }
            EventKind::FromServer { proc, .. } | EventKind::Called { proc, .. }
                if ours == PartyKind::Server && !closed.contains(proc) =>
            {
                input = number;
                false
            }
            EventKind::ClosedByServer { proc } | EventKind::Ended { proc, ours: false }
                if ours == PartyKind::Client =>
            {
                closed.insert(*proc)
            }
            EventKind::Exited { proc, .. } | EventKind::ClosedByClient { proc }
                if ours == PartyKind::Server =>
            {
                closed.insert(*proc)
            }
            EventKind::Crashed { .. }
            | EventKind::StillRunning { .. }
            | EventKind::JobKeepsRunning { .. } => true,
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
    use crate::event::Bytes;
    use crate::library::api::CallResult;
    use crate::testing::{P, event, events, joined, launched, numbered, started};

    fn text(text: &str) -> CallArgument {
        CallArgument::Text(Bytes(text.into()))
    }

    /// Returns the events of two ranks that have joined and received the name of the keyval space, followed by these lines.
    fn session(rest: &[&str]) -> Vec<Event> {
        numbered([launched(2, 1)].into_iter().chain(events(&joined(2, rest))))
    }

    fn is_valid_for_server(rest: &[&str], seq: Option<u64>) -> bool {
        is_reached_by_valid_input(&session(rest), PartyKind::Server, seq)
    }

    /// Returns whether `text` is valid input in a session in which rank 0 sends it and the server then closes all
    /// connections.
    fn is_valid(text: &str) -> bool {
        is_valid_for_server(&[&format!("0 >| {text}"), "0 closed", "1 closed"], None)
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
    #[case::equals_after_command("cmd=get_my_kvsname==\n", false)]
    #[case::half_a_request("cmd=get_maxes", false)]
    #[case::changed_key("cmd=get kvsna<<lme=k key=a\n", false)]
    #[case::unknown_key("cmd=get kvsname=k key=a x=y\n", false)]
    #[case::other_order("cmd=get key=a kvsname=k\n", false)]
    #[case::other_keyval_space("cmd=get kvsname=other key=a\n", false)]
    #[case::reserved_key("cmd=put kvsname=k key=PMI_process_mapping value=b\n", false)]
    #[case::two_requests_at_once("cmd=get_maxes\ncmd=get_appnum\n", false)]
    #[case::init_again("cmd=init pmi_version=1 pmi_subversion=1\n", false)]
    fn classifies_messages_as_valid_or_invalid(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(is_valid(text), valid);
    }

    #[rstest]
    #[case::from_zero("arg0=a\nargcnt=1\npreput_num=1\npreput_key_0=p\npreput_val_0=v\n", true)]
    #[case::from_one_as_libraries_do("arg1=a\nargcnt=1\npreput_num=0\n", true)]
    #[case::value_like_the_end("arg0=endcmd\nargcnt=1\npreput_num=0\n", true)]
    #[case::changed_key("argcnt=0\npreput_num=0\npreput_al_1=\n", false)]
    #[case::other_order("preput_num=0\nargcnt=0\n", false)]
    fn validates_the_lines_of_a_spawn_request(#[case] fields: &str, #[case] valid: bool) {
        assert_eq!(is_valid(&spawn(fields)), valid);
        assert!(!is_valid(spawn(fields).strip_suffix("endcmd\n").unwrap()));
    }

    #[test]
    fn junk_after_another_rank_ends_is_invalid_input() {
        let leaves = ["1 > cmd=finalize", "1 < cmd=finalize_ack", "1 closed"];
        assert!(!is_valid_for_server(&[&leaves[..], &["0 >| frob", "0 closed"]].concat(), None));
    }

    #[test]
    fn junk_after_a_missing_response_is_invalid_input() {
        let rest = ["0 > cmd=get_maxes", "0 silence", "1 > frob"];
        assert!(!is_valid_for_server(&rest, None));
        assert!(is_valid_for_server(&rest, Some(10)));
    }

    #[test]
    fn ignores_junk_sent_to_a_closed_connection() {
        assert!(is_valid_for_server(&["0 > cmd=get_maxes", "0 closed", "0 > frob"], None));
    }

    #[rstest]
    #[case::null("PMI_Get_size", &[CallArgument::Null], false)]
    #[case::place("PMI_Get_size", &[CallArgument::Out("size".into(), None)], true)]
    #[case::left_out("PMI_Spawn_multiple", &[CallArgument::Number(1), CallArgument::Null], true)]
    #[case::key("PMI_KVS_Put", &[text("k"), text("a"), text("v")], true)]
    #[case::key_with_blank("PMI_KVS_Put", &[text("k"), text("a b"), text("v")], false)]
    #[case::key_without_bytes("PMI_KVS_Get", &[text("k"), text("")], false)]
    #[case::other_space("PMI_KVS_Get", &[text("other"), text("a")], false)]
    #[case::no_room("PMI_KVS_Get_my_name", &[CallArgument::Out("name".into(), None), CallArgument::Number(0)], false)]
    fn bad_argument_is_invalid_library_input(
        #[case] function: &str,
        #[case] arguments: &[CallArgument],
        #[case] valid: bool,
    ) {
        let (function, arguments) = (function.to_owned(), arguments.to_vec());
        let outs = vec![("name".to_owned(), OutputValue::Text(Some(Bytes(b"k".to_vec()))))];
        let returned = CallResult { result: 0, outs, overrun: Vec::new() };
        let named = EventKind::Returned { proc: P, function: "PMI_KVS_Get_my_name".into(), returned };
        let called = EventKind::Called { proc: P, function, arguments, held: false };
        let all = [launched(2, 1)].into_iter().chain(events(&joined(2, &[])));
        let events = numbered(all.chain([named, called, event("0 dies 11")]));
        assert_eq!(is_reached_by_valid_input(&events, PartyKind::Library, None), valid);
    }

    #[rstest]
    #[case::whole(&[("PMI_FD", "5"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")], true)]
    #[case::missing(&[], false)]
    #[case::without_rank(&[("PMI_FD", "5"), ("PMI_SIZE", "1")], false)]
    fn bad_environment_is_invalid_library_input(#[case] env: &[(&str, &str)], #[case] valid: bool) {
        let function = "PMI_Init".to_owned();
        let called = EventKind::Called { proc: P, function, arguments: Vec::new(), held: false };
        let events = numbered([launched(1, 1), started(P, env), called, event("0 dies 11")]);
        assert_eq!(is_reached_by_valid_input(&events, PartyKind::Library, None), valid);
    }

    #[test]
    fn bad_response_is_invalid_client_input() {
        let answered = |answer| {
            let events = session(&["0 > cmd=get_appnum", answer, "0 leaves"]);
            is_reached_by_valid_input(&events, PartyKind::Client, None)
        };
        assert!(answered("0 < cmd=appnum appnum=0"));
        assert!(!answered("0 < cmd=appnum appnum=x") && !answered("0 <| cmd=appnum app"));
    }
}
