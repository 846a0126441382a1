//! Converts the messages of PMI-2 scenarios, which are written as tuples, to the lines and frames that campaigns send.

use pmi_scenario::ast::{Encoding, ImplementationKind, Piece, Role, Statement, Step, StepAction, Template};

use crate::session::pieces::{bytes_of, literal, push};

/// Replaces the tuples of a PMI-2 message with the encoded body, so that mutations and shrinking can change each byte of the body.
pub(crate) fn encode_bodies(statement: &mut Statement, to: ImplementationKind) {
    let ours = if to == ImplementationKind::Server { Role::Client } else { Role::Server };
    let Statement::Step(Step { role, action: StepAction::Message { mode, lines }, .. }) = statement else {
        return;
    };
    if *role != ours {
        return;
    }
    if mode.encoding != Encoding::Dialect {
        return;
    }
    let words: [&[u8]; 2] = [b"cmd=init", b"cmd=response_to_init"];
    let is_init = |line: &Template| words.iter().any(|word| bytes_of(line).starts_with(word));
    if lines.iter().all(is_init) {
        mode.encoding = Encoding::Line;
    } else if !lines.iter().any(is_init) {
        mode.encoding = Encoding::Body;
        lines.iter_mut().for_each(|line| *line = tuples_as_body(line));
    }
}

fn tuples_as_body(line: &Template) -> Template {
    let (mut body, mut between) = (Template::default(), false);
    for piece in &line.pieces {
        let Piece::Literal { bytes, quoted } = piece else {
            if std::mem::take(&mut between) {
                push(&mut body, literal(*b";"));
            }
            push(&mut body, piece.clone());
            continue;
        };
        for byte in bytes {
            if !quoted && *byte == b' ' {
                between = true;
                continue;
            }
            if std::mem::take(&mut between) {
                push(&mut body, literal(*b";"));
            }
            push(&mut body, literal(if *byte == b';' { b";;".to_vec() } else { vec![*byte] }));
        }
    }
    push(&mut body, literal(*b";"));
    body
}
