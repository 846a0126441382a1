//! Tests that the server gives the same responses in every dialect, in the spelling of the dialect.

use pmi_reference::{Config, GroupSpec, Server, ServerAction};
use pmi_wire::{Framing, Proc};
use rstest::rstest;

/// A server, and the framing that its processes have negotiated.
struct Job {
    server: Server,
    framing: Framing,
}

impl Job {
    /// Starts a job whose processes have initialized.
    fn joined(framing: Framing, ranks: u32, nodes: u32) -> Self {
        let pmi2 = framing == Framing::Frames;
        let mut server = Server::new(Config { pmi2, nodes, ..Config::default() });
        server.add_group(GroupSpec { programs: vec![ranks], ..GroupSpec::default() });
        let mut job = Self { server, framing };
        for rank in 0..ranks {
            let version = if pmi2 { 2 } else { 1 };
            let offer = format!("cmd=init pmi_version={version} pmi_subversion=1\n");
            job.server.receive(Proc { group: 0, rank }, offer.as_bytes());
            assert_eq!(job.actions().len(), 1);
            if pmi2 {
                let all = job.ask(rank, "cmd=fullinit;pmijobid=j;pmirank=0;threaded=FALSE;");
                assert!(all[0].contains(&format!("rank={rank};size={ranks};")), "{all:?}");
            }
        }
        job
    }

    fn pmi1() -> Self {
        Self::joined(Framing::Lines, 2, 1)
    }

    fn pmi2() -> Self {
        Self::joined(Framing::Frames, 2, 1)
    }

    /// Sends a request. Returns all actions of the server, each as a rank and a message without its length or newline.
    fn ask(&mut self, rank: u32, request: &str) -> Vec<String> {
        let message = match self.framing {
            Framing::Lines => format!("{request}\n"),
            Framing::Frames => format!("{:>6}{request}", request.len()),
        };
        self.server.receive(Proc { group: 0, rank }, message.as_bytes());
        self.actions()
    }

    fn actions(&mut self) -> Vec<String> {
        let shown = |action| match action {
            ServerAction::Send { to, bytes } => {
                let text = String::from_utf8(bytes).unwrap();
                let text = text.strip_suffix('\n').unwrap_or_else(|| &text[6..]);
                format!("{} {text}", to.rank)
            }
            ServerAction::Abort { reason, .. } => format!("abort: {reason}"),
            other => format!("{other:?}"),
        };
        std::iter::from_fn(|| self.server.next_action()).map(shown).collect()
    }
}

#[rstest]
#[case(
    Job::pmi1(),
    "cmd=put kvsname=kvs-0 key=k value=v",
    "0 cmd=put_result rc=0",
    "0 cmd=put_result rc=-1 msg=key_already_exists"
)]
#[case(
    Job::pmi2(),
    "cmd=kvs-put;key=k;value=v;",
    "0 cmd=kvs-put-response;rc=0;",
    "0 cmd=kvs-put-response;rc=1;errmsg=key already exists;"
)]
fn refuses_a_second_put_of_a_key(
    #[case] mut job: Job,
    #[case] put: &str,
    #[case] done: &str,
    #[case] refused: &str,
) {
    assert_eq!(job.ask(0, put), [done]);
    assert_eq!(job.ask(0, put), [refused]);
}

#[rstest]
#[case(
    Job::pmi1(),
    ["cmd=get kvsname=kvs-0 key=k", "cmd=put kvsname=kvs-0 key=k value=a b", "cmd=get kvsname=kvs-0 key=k"],
    ["1 cmd=get_result rc=-1 msg=key_not_found", "1 cmd=put_result rc=0", "1 cmd=get_result rc=0 value=a b"]
)]
#[case(
    Job::pmi2(),
    ["cmd=kvs-get;key=k;", "cmd=kvs-put;key=k;value=a;;b;", "cmd=kvs-get;jobid=;key=k;"],
    ["1 cmd=kvs-get-response;found=FALSE;rc=0;", "1 cmd=kvs-put-response;rc=0;",
     "1 cmd=kvs-get-response;found=TRUE;value=a;;b;rc=0;"]
)]
fn rank_can_get_its_own_value_before_a_barrier(
    #[case] mut job: Job,
    #[case] requests: [&str; 3],
    #[case] answers: [&str; 3],
) {
    for (request, answer) in requests.into_iter().zip(answers) {
        assert_eq!(job.ask(1, request), [answer]);
    }
}

#[rstest]
#[case(Job::pmi1(), ["cmd=barrier_in", "cmd=barrier_in"], ["0 cmd=barrier_out rc=0", "1 cmd=barrier_out rc=0"])]
#[case(
    Job::pmi2(),
    ["cmd=kvs-fence;thrid=7;", "cmd=kvs-fence;"],
    ["0 cmd=kvs-fence-response;thrid=7;rc=0;", "1 cmd=kvs-fence-response;rc=0;"]
)]
fn last_barrier_entry_releases_all_ranks(
    #[case] mut job: Job,
    #[case] requests: [&str; 2],
    #[case] both: [&str; 2],
) {
    assert_eq!(job.ask(0, requests[0]), [""; 0]);
    assert_eq!(job.ask(1, requests[1]), both);
}

#[rstest]
#[case(
    Job::pmi1(),
    ["cmd=barrier_in", "cmd=finalize"],
    ["1 cmd=finalize_ack rc=0", "0 cmd=barrier_out rc=-1 msg=a_process_has_left_the_program"]
)]
#[case(
    Job::pmi2(),
    ["cmd=kvs-fence;", "cmd=finalize;"],
    ["1 cmd=finalize-response;rc=0;", "0 cmd=kvs-fence-response;rc=1;errmsg=a process has left the program;"]
)]
fn barrier_fails_after_another_rank_finalizes(
    #[case] mut job: Job,
    #[case] requests: [&str; 2],
    #[case] answers: [&str; 2],
) {
    let [barrier, finalize] = requests;
    // The responses are the same if the two requests arrive in the opposite order.
    assert_eq!(job.ask(0, barrier), [""; 0]);
    assert_eq!(job.ask(1, finalize), answers);
    let mut job = Job::joined(job.framing, 2, 1);
    assert_eq!(job.ask(1, finalize), answers[..1]);
    assert_eq!(job.ask(0, barrier), answers[1..]);
}

#[rstest]
#[case(Job::pmi1(), "cmd=barrier_in")]
#[case(Job::pmi2(), "cmd=kvs-fence;")]
fn aborts_if_a_process_ends_without_finalize(#[case] mut job: Job, #[case] barrier: &str) {
    assert_eq!(job.ask(0, barrier), [""; 0]);
    job.server.closed(Proc { group: 0, rank: 1 });
    assert_eq!(job.actions(), ["abort: protocol error: connection closed without finalize"]);
}

#[rstest]
#[case(Job::pmi1(), &"k".repeat(63), &"v".repeat(1023), "cmd=put kvsname=kvs-0 key={k} value={v}")]
#[case(Job::pmi2(), &"k".repeat(64), &"v".repeat(1024), "cmd=kvs-put;key={k};value={v};")]
fn accepts_longest_pair_and_refuses_longer_pairs(
    #[case] mut job: Job,
    #[case] key: &str,
    #[case] value: &str,
    #[case] put: &str,
) {
    let mut put = |key: &str, value: &str| {
        let answer = job.ask(0, &put.replace("{k}", key).replace("{v}", value)).remove(0);
        answer.replace(['_', '='], " ")
    };
    assert!(put(&format!("{key}k"), value).contains("key too long"));
    assert!(put(key, &format!("{value}v")).contains("value too long"));
    assert!(put(key, value).contains("rc 0"));
}

#[test]
fn putting_an_attribute_answers_waiting_gets() {
    let mut job = Job::joined(Framing::Frames, 4, 2);
    assert_eq!(job.ask(2, "cmd=info-getnodeattr;key=k;wait=TRUE;"), [""; 0]);
    assert_eq!(job.ask(0, "cmd=info-putnodeattr;key=k;value=v;"), ["0 cmd=info-putnodeattr-response;rc=0;"]);
    let answers =
        ["3 cmd=info-putnodeattr-response;rc=0;", "2 cmd=info-getnodeattr-response;found=TRUE;value=w;rc=0;"];
    assert_eq!(job.ask(3, "cmd=info-putnodeattr;key=k;value=w;"), answers);
}

/// While one thread of a process is waiting in a fence, another thread may already enter the next fence (draft, "Thread Safety").
#[test]
fn thread_may_enter_the_next_fence_early() {
    let mut job = Job::pmi2();
    let fences = [1, 2].map(|thread| format!("cmd=kvs-fence;thrid={thread};"));
    let released =
        [1, 2].map(|thread| [0, 1].map(|rank| format!("{rank} cmd=kvs-fence-response;thrid={thread};rc=0;")));
    fences.iter().for_each(|fence| assert_eq!(job.ask(0, fence), [""; 0]));
    for (fence, released) in fences.iter().zip(released) {
        assert_eq!(job.ask(1, fence), released);
    }
}

#[test]
fn fences_fail_after_another_rank_finalizes() {
    let mut job = Job::pmi2();
    for thread in [1, 2] {
        assert_eq!(job.ask(0, &format!("cmd=kvs-fence;thrid={thread};")), [""; 0]);
    }
    let failed = |thread| {
        format!("0 cmd=kvs-fence-response;thrid={thread};rc=1;errmsg=a process has left the program;")
    };
    let answers = ["1 cmd=finalize-response;rc=0;".to_owned(), failed(1), failed(2)];
    assert_eq!(job.ask(1, "cmd=finalize;"), answers);
}

#[test]
fn spawn_response_contains_the_id_of_an_ended_group() {
    let mut job = Job::pmi2();
    let spawn = "cmd=spawn;ncmds=1;preputcount=0;subcmd=x;maxprocs=1;argc=0;infokeycount=0;";
    assert_eq!(job.ask(0, spawn).len(), 1);
    let child = Proc { group: 1, rank: 0 };
    job.server.receive(child, b"cmd=init pmi_version=2 pmi_subversion=0\n    10cmd=abort;");
    assert!(job.actions()[1].starts_with("abort"));
    job.server.spawned(child.group, &[0]);
    assert_eq!(job.actions(), ["0 cmd=spawn-response;jobid=kvs-1;nerrs=1;err0=0;rc=0;"]);
}

#[rstest]
#[case("cmd=kvs-get;", "abort: protocol error: the key \"key\" is missing: \"cmd=kvs-get;\"")]
#[case("cmd=fullinit;", "abort: protocol error: fullinit twice: \"cmd=fullinit;\"")]
#[case("x", "abort: protocol error: the body does not end in a semicolon: \"x\"")]
#[case("cmd=abort;isworld=TRUE;", "abort: abort requested")]
#[case("cmd=nonsense;", "0 cmd=nonsense-response;rc=2;errmsg=unknown command;")]
#[case("cmd=ring;left=a;right=b;count=1;", "0 cmd=ring-response;rc=2;errmsg=unknown command;")]
fn aborts_on_errors_but_refuses_unknown_commands(#[case] body: &str, #[case] done: &str) {
    assert_eq!(Job::pmi2().ask(0, body), [done]);
}

#[test]
fn too_many_pending_requests_abort_the_job() {
    let mut job = Job::pmi2();
    for thread in 0..10_000 {
        let request = format!("cmd=info-getnodeattr;thrid={thread};key=k;wait=TRUE;");
        assert_eq!(job.ask(0, &request), [""; 0]);
    }
    let actions = job.ask(0, "cmd=job-getid;thrid=last;");
    assert!(actions[0].starts_with("abort: protocol error: too many pending requests"), "{actions:?}");
}

#[rstest]
#[case(
    "cmd=job-connect;thrid=7;jobid=j;",
    Some("0 cmd=job-connect-response;thrid=7;rc=1;errmsg=not supported;")
)]
#[case("cmd=kvs-getall;jobid=kvs-0;", Some("0 cmd=kvs-getall-response;rc=1;errmsg=not supported;"))]
#[case("cmd=spawn;ncmds=1;preputcount=0;", Some("0 cmd=spawn-response;rc=1;errmsg=not supported;"))]
#[case("cmd=spawn-cmd;maxprocs=1;argc=1;argv0=a;", None)]
#[case("cmd=kvs-put;key=a;concat=9;", None)]
#[case("cmd=kvs-get;jobid=other;key=a;", Some("0 cmd=kvs-get-response;rc=1;errmsg=unknown keyval space;"))]
fn refuses_or_ignores_draft_only_requests(#[case] body: &str, #[case] reply: Option<&str>) {
    assert_eq!(Job::pmi2().ask(0, body), Vec::from_iter(reply));
}

#[test]
fn server_accepts_pmi2_only_if_configured() {
    let mut server = Server::new(Config::default());
    server.add_group(GroupSpec { programs: vec![1], ..GroupSpec::default() });
    server.receive(Proc { group: 0, rank: 0 }, b"cmd=init pmi_version=2 pmi_subversion=0\n");
    let Some(ServerAction::Send { bytes, .. }) = server.next_action() else { panic!("no answer") };
    assert!(bytes.starts_with(b"cmd=response_to_init rc=0 pmi_version=1 "), "{}", bytes.escape_ascii());
}
