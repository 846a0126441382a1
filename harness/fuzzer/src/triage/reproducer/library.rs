//! Writes the C program that calls functions of a library in child processes. The parent process sends the responses of the process
//! manager.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use pmi_judge::LINE_LIMIT;
use pmi_judge::event::{Event, EventKind};
use pmi_judge::library::api::{CallArgument, OutputValue};
use pmi_scenario::signature::{Param, function};
use pmi_wire::{Connection, Direction, Framing, HEADER};

use super::summary::{FindingSummary, comment, push_bytes};
use super::symptom::{NotReproducible, Symptom};

const START: &str = include_str!("library.c");

/// Returns whether the events contain a call to a library function.
pub(super) fn is_of_library(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event.kind, EventKind::Called { .. }))
}

/// Returns an argument of a call as a C expression.
fn argument(
    argument: &CallArgument,
    param: Option<&Param>,
    outs: &mut BTreeMap<String, usize>,
) -> Result<String, NotReproducible> {
    Ok(match (argument, param) {
        (CallArgument::Null, _) => "0".to_owned(),
        (CallArgument::Number(number), _) => number.to_string(),
        (CallArgument::Text(text), Some(Param::Str)) => format!("(long){}", literal(&text.0)),
        (
            CallArgument::Out(name, _),
            Some(Param::OutInt | Param::InOutInt | Param::OutText(_) | Param::OutInts(_) | Param::OutPointer),
        ) => {
            let next = outs.len();
            let place = *outs.entry(name.clone()).or_insert(next);
            format!("(long)out[{place}]")
        }
        (CallArgument::Text(text), Some(param)) => array(*param, &text.0).ok_or(NotReproducible::Calls)?,
        _ => return Err(NotReproducible::Calls),
    })
}

/// Returns a C compound literal for the text form of an array, or `None` if the parameter is not an array.
fn array(param: Param, text: &[u8]) -> Option<String> {
    let of = |kind: &str, parts: Vec<String>| format!("({kind}[]){{{}}}", parts.join(", "));
    let strings = |kind: &str, text: &[u8], separator, end: &[&str]| {
        let parts = parts(text, separator).map(literal).chain(end.iter().map(|&end| end.to_owned()));
        of(kind, parts.collect())
    };
    let list = |text: &[u8]| strings("char *", text, b',', &["0"]);
    let pairs = |text: &[u8]| -> Option<Vec<(String, String)>> {
        let pair = |part: &[u8]| {
            let at = part.iter().position(|b| *b == b'=')?;
            Some((literal(&part[..at]), literal(&part[at + 1..])))
        };
        parts(text, b',').map(pair).collect()
    };
    let vector = |text: &[u8]| {
        let pairs = pairs(text)?.into_iter().map(|(key, value)| format!("{{{key}, {value}}}"));
        Some(of("keyval", pairs.collect()))
    };
    // Lists of two or more structures are not supported, because each structure would need a name for the pointers between them.
    let infos = |text: &[u8]| match &pairs(text)?[..] {
        [] => Some("0".to_owned()),
        [(key, value)] => Some(format!("(info[]){{{{0, 0, 1, 0, {key}, {value}}}}}")),
        _ => None,
    };
    let each = |make: &dyn Fn(&[u8]) -> Option<String>, separator| {
        text.split(move |b| *b == separator).map(make).collect::<Option<Vec<_>>>()
    };
    let array = match param {
        Param::Strings => strings("char *", text, b'|', &[]),
        Param::List => list(text),
        Param::ListPointer => of("char **", vec![list(text)]),
        Param::Lists => of("char **", each(&|text| Some(list(text)), b'|')?),
        Param::Vector => vector(text)?,
        Param::Vectors => of("keyval *", each(&vector, b'|')?),
        Param::Ints => {
            let number = |part| std::str::from_utf8(part).ok()?.parse::<i32>().ok();
            let numbers = parts(text, b'|').map(number).collect::<Option<Vec<_>>>()?;
            of("int", numbers.iter().map(i32::to_string).collect())
        }
        Param::InfoPointers => of("info *", parts(text, b',').map(infos).collect::<Option<Vec<_>>>()?),
        Param::Info => infos(text)?,
        Param::InfoVectors => of("info *", each(&infos, b'|')?),
        _ => return None,
    };
    Some(format!("(long){array}"))
}

/// Returns the parts of an array's text form. An empty string has no parts.
fn parts(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let is_empty = text.is_empty();
    text.split(move |b| *b == separator).filter(move |_| !is_empty)
}

pub(super) fn program(
    about: FindingSummary<'_>,
    events: &[Event],
    symptom: &Symptom,
) -> Result<String, NotReproducible> {
    let command = events.iter().find_map(|event| match &event.kind {
        EventKind::Launched { command, .. } => command.first(),
        _ => None,
    });
    let library = command.ok_or(NotReproducible::NotLaunched)?;
    let mut calls: BTreeMap<u32, String> = BTreeMap::new();
    let mut server = String::new();
    let mut outs: BTreeMap<String, usize> = BTreeMap::new();
    let mut connections: BTreeMap<u32, Connection> = BTreeMap::new();
    let mut hangs: BTreeSet<u32> = BTreeSet::new();
    let (mut is_seen, mut is_returned) = (false, false);
    for event in events {
        let at = matches!(symptom, Symptom::Event { seq, .. } if *seq == event.seq);
        match &event.kind {
            EventKind::Started { proc, .. } | EventKind::Called { proc, .. } if proc.group != 0 => {
                return Err(NotReproducible::Spawned);
            }
            EventKind::Started { proc, env, .. } => {
                let set = env.iter().filter(|(name, _)| *name != "PMI_FD");
                let set =
                    set.map(|(name, value)| format!("setenv({}, {}, 1);\n", quoted(name), quoted(value)));
                calls.entry(proc.rank).or_default().extend(set);
            }
            EventKind::Called { proc, function: name, arguments, .. } => {
                let params = function(name).map_or(&[][..], |function| function.params);
                let words: Result<Vec<_>, _> = arguments
                    .iter()
                    .zip(params.iter().map(Some).chain(std::iter::repeat(None)))
                    .map(|(word, param)| argument(word, param, &mut outs))
                    .collect();
                let mut words = words?;
                words.insert(0, quoted(name));
                if words.len() == 1 {
                    words.push("0".to_owned());
                }
                let call = format!("code = CALL({});\n", words.join(", "));
                calls.entry(proc.rank).or_default().push_str(&call);
            }
            EventKind::Returned { proc, returned, .. } if at => {
                let held = |(name, held): &(String, OutputValue)| {
                    let place = outs.get(name)?;
                    match held {
                        OutputValue::Int(Some(number)) => {
                            Some(format!(" && *(int *)out[{place}] == {number}"))
                        }
                        OutputValue::Text(Some(text)) => {
                            Some(format!(" && !strcmp(out[{place}], {})", literal(&text.0)))
                        }
                        _ => None,
                    }
                };
                let held: String = returned.outs.iter().filter_map(held).collect();
                let shows = format!("shown = code == {}{held};\n", returned.result);
                calls.entry(proc.rank).or_default().push_str(&shows);
                (is_seen, is_returned) = (true, true);
            }
            EventKind::ToServer { proc, bytes } | EventKind::FromServer { proc, bytes }
                if proc.group == 0 =>
            {
                let is_request = matches!(event.kind, EventKind::ToServer { .. });
                let connection = connections.entry(proc.rank).or_insert_with(|| Connection::new(LINE_LIMIT));
                let direction = if is_request { Direction::ToServer } else { Direction::FromServer };
                let messages = push_bytes(connection, direction, &bytes.0);
                if !is_request {
                    let (text, length) = (literal(&bytes.0), bytes.0.len());
                    let _ = writeln!(server, "    answer({}, {text}, {length});", proc.rank);
                    continue;
                }
                // An incomplete message does not show the symptom.
                is_seen |= at && !messages.is_empty();
                for (text, framing) in messages {
                    let framed = framing == Framing::Frames;
                    let whole = match framing {
                        Framing::Lines => [&text[..], b"\n"].concat(),
                        Framing::Frames => [format!("{:>HEADER$}", text.len()).as_bytes(), &text].concat(),
                    };
                    let shows = if at { "shown = " } else { "" };
                    let (text, length) = (literal(&whole), whole.len());
                    let _ = writeln!(
                        server,
                        "    {shows}receive({}, {text}, {length}, {});",
                        proc.rank,
                        u8::from(framed)
                    );
                }
            }
            EventKind::NoResponse { proc, .. } if at => drop(hangs.insert(proc.rank)),
            EventKind::StillRunning { procs, .. } if at => hangs.extend(procs.iter().map(|proc| proc.rank)),
            _ => {}
        }
        if is_seen || !hangs.is_empty() {
            break;
        }
    }
    let ends = match symptom {
        Symptom::Death { signal, .. } => format!("WIFSIGNALED(status) && WTERMSIG(status) == {signal}"),
        _ if !hangs.is_empty() => "WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM".to_owned(),
        _ if is_returned => "WIFEXITED(status) && WEXITSTATUS(status) == 1".to_owned(),
        _ if is_seen => "0".to_owned(),
        _ => return Err(NotReproducible::Symptom),
    };
    // Close the connections, so that processes that wait for a response exit.
    if hangs.is_empty() {
        server += "    for (int rank = 0; rank < RANKS; rank++) close(ends[rank][0]);\n";
    }
    let ranks = calls.keys().next_back().map_or(1, |last| last + 1);
    let mut text = format!(
        "/* {}\n   seen: {}{}\n   cc -o reproducer THIS_FILE -ldl && ./reproducer [LIBRARY]: exits with 1 if the symptom occurs, else 0. */\n\
         #define RANKS {ranks}\n#define OUTS {}\n{START}\n",
        c_comment(about.title),
        c_comment(about.seen),
        about.chance().map(|chance| format!(", {chance}")).unwrap_or_default(),
        outs.len().max(1)
    );
    for rank in 0..ranks {
        let body = calls.remove(&rank).unwrap_or_default().replace('\n', "\n    ");
        let body = body.trim_end();
        let _ = writeln!(
            text,
            "static void rank_{rank}(void) {{\n    int code = 0;\n    {body}\n    (void)code;\n}}"
        );
    }
    let ranks_named: Vec<String> = (0..ranks).map(|rank| format!("rank_{rank}")).collect();
    let _ = write!(
        text,
        "static void (*const process[])(void) = {{{}}};\n\n\
         int main(int argc, char **argv) {{\n    char fd[16];\n    int status;\n    \
         library = dlopen(argc > 1 ? argv[1] : {}, RTLD_NOW);\n    \
         if (!library) return fprintf(stderr, \"%s\\n\", dlerror()), 2;\n    \
         for (int rank = 0; rank < RANKS; rank++) socketpair(AF_UNIX, SOCK_STREAM, 0, ends[rank]);\n    \
         for (int rank = 0; rank < RANKS; rank++) if (fork() == 0) {{\n        \
         for (int other = 0; other < RANKS; other++) close(ends[other][0]);\n        \
         snprintf(fd, sizeof fd, \"%d\", ends[rank][1]);\n        \
         setenv(\"PMI_FD\", fd, 1), alarm(20);\n        process[rank]();\n        _exit(shown);\n    }}\n    \
         for (int rank = 0; rank < RANKS; rank++) close(ends[rank][1]);\n{server}    \
         for (int rank = 0; rank < RANKS; rank++) wait(&status), shown |= {ends};\n    \
         printf(\"expected: %s\\nsaw: the symptom %s\\n\", {}, shown ? \"occurs\" : \"does not occur\");\n    \
         return shown;\n}}\n",
        ranks_named.join(", "),
        quoted(library),
        quoted(&c_comment(about.expected)),
    );
    Ok(text)
}

/// Returns `text` as a single line of a C comment.
fn c_comment(text: &str) -> String {
    comment(&text.replace("*/", "* /"))
}

fn quoted(text: &str) -> String {
    literal(text.as_bytes())
}

/// Returns a C string literal.
fn literal(text: &[u8]) -> String {
    let mut out = String::from("\"");
    for byte in text {
        match byte {
            b'\n' => out += "\\n",
            b'"' | b'\\' | b'?' => out.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => out.push(char::from(*byte)),
            _ => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_arrays_as_compound_literals() {
        let vectors = r#"(long)(keyval *[]){(keyval[]){{"k", "v"}, {"l", "w"}}, (keyval[]){}}"#;
        let infos = r#"(long)(info *[]){(info[]){{0, 0, 1, 0, "k", "v"}}, (info[]){{0, 0, 1, 0, "l", "w"}}}"#;
        for (param, text, literal) in [
            (Param::Strings, "a|b", r#"(long)(char *[]){"a", "b"}"#),
            (Param::Lists, "a,b|c", r#"(long)(char **[]){(char *[]){"a", "b", 0}, (char *[]){"c", 0}}"#),
            (Param::List, "", "(long)(char *[]){0}"),
            (Param::Ints, "1|2", "(long)(int[]){1, 2}"),
            (Param::Vectors, "k=v,l=w|", vectors),
            (Param::InfoPointers, "k=v,l=w", infos),
        ] {
            assert_eq!(array(param, text.as_bytes()).as_deref(), Some(literal));
        }
    }
}
