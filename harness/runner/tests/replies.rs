//! What `scenarios/replies.toml` and `scenarios/pmi2/replies.toml` say that the reference server says, by itself or with a variation
//! or a fault, it does say.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use pmi_faults::{Behaviour, Config};
use pmi_judge::event::What;
use pmi_runner::behaviours::behaviour;
use pmi_runner::party::{Incoming, MemoryParty, Party, Silence};
use pmi_scenario::ast::Dialect;
use pmi_scenario::inputs::{Cell, Inputs, Status};
use pmi_scenario::suite::Suite;
use pmi_scenario::{Behaviours, UnderTest, ast};
use pmi_wire::Proc;

const REQUESTS: &[&str] = &[
    "cmd=init pmi_version=1 pmi_subversion=1",
    "cmd=get_maxes",
    "cmd=get_universe_size",
    "cmd=get_appnum",
    "cmd=get_my_kvsname",
    "cmd=put kvsname={kvs} key=key value=v1",
    "cmd=barrier_in",
    "cmd=get kvsname={kvs} key=key",
    "cmd=publish_name service=service port=here",
    "cmd=lookup_name service=service",
    "cmd=unpublish_name service=service",
    "mcmd=spawn\nnprocs=2\nexecname=/memory/agent-1\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd",
    "cmd=finalize",
];

/// What is in frames, behind the first line.
const REQUESTS_OF_PMI2: &[&str] = &[
    "cmd=init pmi_version=2 pmi_subversion=0",
    "cmd=fullinit;pmijobid=job;pmirank=0;threaded=FALSE;",
    "cmd=job-getid;",
    "cmd=kvs-put;key=k;value=v1;",
    "cmd=kvs-fence;",
    "cmd=kvs-get;key=k;",
    "cmd=info-putnodeattr;key=k;value=v2;",
    "cmd=info-getnodeattr;key=k;",
    "cmd=info-getjobattr;key=universeSize;",
    "cmd=name-publish;name=n;port=p;infokeycount=0;",
    "cmd=name-lookup;name=n;infokeycount=0;",
    "cmd=name-unpublish;name=n;infokeycount=0;",
    "cmd=spawn;ncmds=1;preputcount=0;subcmd=/memory/agent-1;maxprocs=2;argc=0;infokeycount=0;",
    "cmd=job-connect;jobid=kvs-0;",
    "cmd=job-disconnect;jobid=kvs-0;",
    "cmd=finalize;",
];

/// The bytes of a request.
fn written(dialect: Dialect, request: &str) -> Vec<u8> {
    match dialect {
        Dialect::Pmi2 if request.ends_with(';') => format!("{:>6}{request}", request.len()).into_bytes(),
        _ => format!("{request}\n").into_bytes(),
    }
}

/// A scenario in which a server says to each request, word for word and write for write, what this one has said.
fn transcript(dialect: Dialect, name: &str) -> String {
    let wrapper = match name {
        "reference" => Ok(Behaviour::default()),
        _ => behaviour(Some(name), []).or_else(|_| behaviour(None, [name])),
    };
    let pmi2 = dialect == Dialect::Pmi2;
    let config = Config { pmi2, wrapper: wrapper.unwrap(), ..Config::default() };
    let mut server = MemoryParty::launch(config, 1);
    let proc = Proc { group: 0, rank: 0 };
    let mut kvs = String::new();
    let mut text =
        format!("# A test.\nrequires rfc13.get.value\ntests client\ndialect {dialect}\n\n0  P: exits 0\n");
    while let Incoming::Event(_) = server.next(Instant::now(), Silence::Expected) {}
    for request in if pmi2 { REQUESTS_OF_PMI2 } else { REQUESTS } {
        server.send(proc, &written(dialect, &request.replace("{kvs}", &kvs)));
        let mut writes = Vec::new();
        while let Incoming::Event(what) = server.next(Instant::now(), Silence::Expected) {
            if let What::FromServer { bytes, proc: to } = what
                && to == proc
            {
                writes.push(bytes.0);
            }
        }
        let said = String::from_utf8_lossy(&writes.concat()).into_owned();
        if let Some((_, name)) = said.split_once("kvsname=").filter(|_| said.contains("my_kvsname")) {
            kvs = name.split([' ', '\n', '\r']).next().unwrap_or_default().to_owned();
        }
        let first = request.lines().next().unwrap_or_default();
        let key = first.split([' ', ';']).next().unwrap_or_default();
        let frame = pmi2 && request.ends_with(';');
        let bytewise = if writes.len() > 3 { "<bytewise> " } else { "" };
        let escaped = |write: &Vec<u8>| {
            write.iter().fold(String::new(), |mut text, byte| {
                _ = write!(text, "<0x{byte:02x}>");
                text
            })
        };
        let pieces: Vec<String> = writes.iter().map(escaped).collect();
        let message = pieces.join(if bytewise.is_empty() { "<|>" } else { "" });
        // The end of a line is the newline.
        let message = if frame {
            format!("<bytes> {message}")
        } else {
            format!("<line> {}", message.strip_suffix("<0x0a>").unwrap_or(&message))
        };
        let message = if pmi2 { message } else { message.replacen("<line> ", "", 1) };
        _ = writeln!(text, "0  C: {key}\n0  S: {bytewise}{message}");
    }
    text
}

#[test]
fn the_reference_says_what_the_tables_say_of_it() {
    let mut wrong = Vec::new();
    for dialect in [Dialect::Pmi1, Dialect::Pmi2] {
        let inputs = Inputs::of(UnderTest::Client, dialect).unwrap();
        let bare = inputs.clone().unexcluded();
        for (name, patterns) in inputs.servers() {
            let text = transcript(dialect, name);
            let source = |path: &str| {
                (path.to_owned(), Arc::new(ast::Source { path: format!("{path}.pmi"), text: text.clone() }))
            };
            let suite = Suite::of_files(vec![source("one")], Behaviours::default())
                .unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
            let cells = bare.cells(&suite).unwrap();
            for pattern in patterns {
                // The reference refuses to connect jobs.
                let refused =
                    |name: &str| name.starts_with("job-connect") || name.starts_with("job-disconnect");
                let fits = |cell: &&Cell| pattern.fits(&cell.name) && !refused(&cell.name);
                let meant: Vec<_> = cells.iter().filter(fits).collect();
                assert!(!meant.is_empty(), "{name}: {} is no cell", pattern.text());
                let missed = meant.iter().filter(|cell| cell.status == Status::Open);
                wrong.extend(missed.map(|cell| format!("{dialect} {name}: {}", cell.name)));
            }
        }
    }
    assert!(wrong.is_empty(), "not said:\n{}", wrong.join("\n"));
}
