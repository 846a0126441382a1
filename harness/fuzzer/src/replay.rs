//! What the script plays that needs nothing of ours: the steps of a case against a server, or the server's half of a transcript
//! to a program.

use pmi_judge::event::{Event, What};
use pmi_scenario::ast::{Dialect, Encoding, Piece, Template, UnderTest};
use pmi_wire::Proc;
use serde_json::{Value, json};

use super::case::Case;
use super::message_kind::Writes;
use super::pieces::length;
use super::statement::ServerStep;

/// Plays it.
pub(crate) const SCRIPT: &str = include_str!("replay.py");

/// What the script cannot do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NeedsUs {
    /// Speaking as the upstream of a proxy.
    Upstream,
    /// Calling functions of a library.
    Calls,
    /// Several nodes.
    Nodes,
    /// What spawned processes do.
    Children,
}

impl NeedsUs {
    /// In words.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Upstream => "we speak as the upstream of the proxy",
            Self::Calls => "functions of a library are called",
            Self::Nodes => "its processes are on several nodes",
            Self::Children => "processes that were spawned speak",
        }
    }
}

/// The session for the script: `command` starts what is under test, `events` is what happened. What the job before does stands in it as a
/// session of its own.
pub(crate) fn session(case: &Case, command: &[String], events: &[Event]) -> Result<Value, NeedsUs> {
    let mut session = of_job(case, command, events)?;
    if let Some(earlier) = &case.earlier {
        session["earlier"] = of_job(earlier, command, &[])?;
    }
    Ok(session)
}

fn of_job(case: &Case, command: &[String], events: &[Event]) -> Result<Value, NeedsUs> {
    let (tests, steps) = match case.tests() {
        UnderTest::Server if case.scenario.nodes > 1 => return Err(NeedsUs::Nodes),
        UnderTest::Server => ("server", to_server(case)?),
        UnderTest::Client => ("client", to_program(events, case.scenario.dialect)),
        UnderTest::Library => return Err(NeedsUs::Calls),
    };
    let dialect = case.scenario.dialect.word();
    let ranks = case.ranks();
    Ok(json!({"tests": tests, "dialect": dialect, "command": command, "ranks": ranks, "steps": steps}))
}

fn to_server(case: &Case) -> Result<Vec<Value>, NeedsUs> {
    let step = |stmt| {
        Ok(match ServerStep::of(stmt).ok_or(NeedsUs::Upstream)? {
            ServerStep::PassedOn | ServerStep::Upstream(_) => return Err(NeedsUs::Upstream),
            ServerStep::OfChildren { .. } => return Err(NeedsUs::Children),
            ServerStep::Join => json!({"step": "join"}),
            ServerStep::Leave => json!({"step": "leave"}),
            ServerStep::Write { rank, encoding, lines, partial } => {
                let lines: Vec<Value> = lines.iter().map(pieces).collect();
                let mut step = json!({"step": "write", "rank": rank, "lines": lines, "partial": partial});
                match encoding {
                    Encoding::Dialect | Encoding::Line => {}
                    Encoding::Body => step["form"] = json!("body"),
                    Encoding::Bytes => step["form"] = json!("bytes"),
                }
                step
            }
            ServerStep::Wait { rank, .. } => json!({"step": "wait", "rank": rank}),
            ServerStep::Close { rank } => json!({"step": "close", "rank": rank}),
            ServerStep::Exit { rank, status } => json!({"step": "exit", "rank": rank, "number": status}),
            ServerStep::Kill { rank, signal } => json!({"step": "kill", "rank": rank, "number": signal}),
        })
    };
    case.scenario.body.iter().map(step).collect()
}

fn pieces(line: &Template) -> Value {
    let piece = |piece: &Piece| match piece {
        Piece::Literal { bytes, .. } => bytes_of(bytes),
        Piece::Var(name) => json!({"name": name}),
        Piece::Fill(expr) => {
            let (limit, plus) = length(expr).unwrap_or_default();
            json!({"fill": [limit.map(|limit| limit.name()), plus]})
        }
        // How a message is cut into writes does not matter here.
        _ => json!({"text": ""}),
    };
    Value::Array(line.pieces.iter().map(piece).collect())
}

fn bytes_of(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => json!({"text": text}),
        _ => json!({"hex": bytes.iter().map(|b| format!("{b:02x}")).collect::<String>()}),
    }
}

/// The server's half, each time after as many messages of the process as then: lines, or what PMI-2 has. Processes that were
/// spawned are left out.
fn to_program(events: &[Event], dialect: Dialect) -> Vec<Value> {
    let mut writes = Writes::new(dialect);
    let mut messages = |proc: Proc, bytes: &[u8]| match dialect {
        Dialect::Pmi1 => bytes.iter().filter(|b| **b == b'\n').count(),
        Dialect::Pmi2 => writes.write(proc, bytes).1,
    };
    let step = |event: &Event| {
        let (proc, step) = match &event.what {
            What::Started { proc, env, .. } => (proc, json!({"step": "start", "env": env})),
            What::ToServer { proc, bytes } => {
                (proc, json!({"step": "wait", "messages": messages(*proc, &bytes.0)}))
            }
            What::FromServer { proc, bytes } => {
                (proc, json!({"step": "write", "lines": [[bytes_of(&bytes.0)]], "partial": true}))
            }
            What::ClosedByServer { proc } => (proc, json!({"step": "close"})),
            What::Ended { proc, ours: true } => (proc, json!({"step": "kill", "number": 9})),
            _ => return None,
        };
        let mut step = step;
        step["rank"] = json!(proc.rank);
        (proc.group == 0).then_some(step)
    };
    events.iter().filter_map(step).collect()
}
