//! What a message is, read off its bytes: its operation, the kind of each argument, and the order of its tuples.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use pmi_wire::grammar::Rule;
use pmi_wire::pmi2::{Body, BodyError, Semicolons, halved};
use pmi_wire::protocol::is_known_key;

use super::axes::{Argument, Inputs, Operation};
use crate::ast::Dialect;
use crate::vocabulary::commands;

/// Counts of PMI-2, and what they count.
const COUNTS: &[(&str, &str)] =
    &[("ncmds", "subcmd"), ("preputcount", "ppkeyN"), ("argc", "argvN"), ("infokeycount", "infokeyN")];

/// From this length on a text that has no limit is long, or far too long.
const LONG: usize = 500;
const FAR: usize = 10_000;

/// A request or a reply.
#[derive(Debug, Default)]
pub(super) struct Classified {
    pub(super) operation: String,
    /// Arguments with a kind that their values have.
    pub(super) kinds: BTreeSet<(String, &'static str)>,
    /// What is unusual in the order of its tuples.
    pub(super) framing: BTreeSet<&'static str>,
    /// Whether there are as many numbered tuples as it says.
    pub(super) counts: BTreeSet<&'static str>,
    /// Arguments with their values, as they came.
    pub(super) values: Vec<(String, Vec<u8>)>,
}

impl Classified {
    /// The value of an argument, by the name that it has in the table.
    pub(super) fn value(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// All values of an argument.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.values.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_slice())
    }

    /// All numbers that an argument has, added up.
    pub(super) fn sum(&self, name: &str) -> u64 {
        let number = |value: &[u8]| std::str::from_utf8(value).ok()?.parse::<u64>().ok();
        self.all(name).filter_map(number).fold(0, u64::saturating_add)
    }

    /// Notes what is unusual in the order in which the arguments of an operation came.
    fn order(&mut self, came: &[usize], operation: &Operation) {
        if came.windows(2).any(|w| w[0] > w[1]) {
            self.framing.insert("order");
        }
        let is_rc = |index: &usize| operation.arguments[*index].name == "rc";
        if came.last().is_some_and(is_rc) && !came.iter().all(is_rc) {
            self.framing.insert("rc-last");
        }
    }

    /// Notes whether there are as many tuples as a request of PMI-2 says.
    fn count(&mut self) {
        for (count, tuple) in COUNTS {
            if self.value(count).is_none() {
                continue;
            }
            let there = self.all(tuple).count() as u64;
            self.counts.insert(match there.cmp(&self.sum(count)) {
                Ordering::Less => "fewer",
                Ordering::Equal => "as-asked",
                Ordering::Greater => "more",
            });
        }
    }
}

/// Reads a request or a reply of one line.
pub(super) fn line(line: &[u8], inputs: &Inputs) -> Option<Classified> {
    let tokens = tokens(line);
    let cmd = tokens.iter().find(|t| t.key == b"cmd")?;
    let operation = inputs.operation(std::str::from_utf8(cmd.value).ok()?).filter(|o| o.name != "spawn")?;
    let argument = |key: &[u8]| operation.arguments.iter().position(|a| a.name.as_bytes() == key);
    let mut request = Classified { operation: operation.name.clone(), ..Classified::default() };
    let mut order = Vec::new();
    // Where the value begins that takes all that follows.
    let mut rest = None;
    let mut at = 0;
    while at < tokens.len() {
        let token = &tokens[at];
        at += 1;
        let Some(index) = argument(token.key) else {
            match token.key {
                b"cmd" => {}
                // Any reply may have a message.
                b"msg" => {
                    request.values.push(("msg".to_owned(), token.value.to_vec()));
                    if token.value != b"success" {
                        rest = Some(at);
                        break;
                    }
                }
                key => {
                    request.framing.insert("extra");
                    if std::str::from_utf8(key).is_ok_and(|key| is_known_key(inputs.dialect.framing(), key)) {
                        request.framing.insert("extra-known");
                    }
                }
            }
            continue;
        };
        let rule = &operation.arguments[index];
        // What is no tuple belongs to the value before it; the value of a put takes all that follows.
        let takes_all = rule.rule == Rule::String && !(rule.name == "msg" && token.value == b"success");
        if takes_all {
            rest = Some(at);
        }
        while at < tokens.len() && (takes_all || tokens[at].key.is_empty()) {
            at += 1;
        }
        let end = if takes_all { line.len() } else { tokens[at - 1].end };
        request.values.push((rule.name.clone(), line[token.value_at..end].to_vec()));
        order.push(index);
    }
    let between = &tokens[..rest.unwrap_or(tokens.len())];
    if line.starts_with(b" ")
        || (rest.is_none() && line.ends_with(b" "))
        || between.windows(2).any(|w| w[1].start > w[0].end + 1)
    {
        request.framing.insert("blanks");
    }
    if tokens.first().is_some_and(|t| t.key != b"cmd") {
        request.framing.insert("command-not-first");
    }
    request.order(&order, operation);
    kinds(&mut request, operation, inputs);
    Some(request)
}

/// Reads a request or a reply in the body of a frame; none if its command is not in the table. What is no message is told by the
/// word that the table has for it.
pub(super) fn body(body: &[u8], inputs: &Inputs) -> Result<Option<Classified>, &'static str> {
    let message = match Body::parse(body, Semicolons::Doubled) {
        Ok(message) => message,
        Err(_) if body.iter().all(|b| *b == b';') => return Err("lone-semicolon"),
        Err(BodyError::Malformed { .. }) => return Err("no-equals"),
        Err(BodyError::Empty | BodyError::Unterminated) => return Err("no-terminator"),
    };
    let cmd = message.raw("cmd").ok_or("no-command")?;
    let Some(operation) = std::str::from_utf8(cmd).ok().and_then(|cmd| inputs.operation(cmd)) else {
        let known = commands(inputs.dialect)
            .iter()
            .any(|(request, reply)| [request, reply].map(|n| n.as_bytes()).contains(&cmd));
        return if known { Ok(None) } else { Err("unknown-command") };
    };
    let mut read = Classified { operation: operation.name.clone(), ..Classified::default() };
    let mut order = Vec::new();
    for (at, tuple) in message.tuples().enumerate() {
        let key = String::from_utf8_lossy(tuple.key).into_owned();
        let name = numbered(&key);
        let index = operation.arguments.iter().position(|a| a.name == name || a.name == key);
        if let Some(index) = index {
            order.push(index);
            read.values.push((operation.arguments[index].name.clone(), halved(tuple.value).into_owned()));
        }
        match key.as_str() {
            "cmd" if at > 0 => drop(read.framing.insert("command-not-first")),
            "thrid" => drop(read.framing.insert(if at == 1 { "thrid" } else { "thrid-later" })),
            "errmsg" if index.is_none() => read.values.push((key, tuple.value.to_vec())),
            _ if key == "cmd" || index.is_some() => {}
            _ => {
                read.framing.insert("extra");
                read.framing.extend(is_known_key(inputs.dialect.framing(), &key).then_some("extra-known"));
            }
        }
    }
    // Pairs take turns, and so do the programs of a spawn.
    order.retain(|index| !operation.arguments[*index].name.ends_with('N'));
    if operation.name != "spawn" {
        read.order(&order, operation);
    }
    read.count();
    kinds(&mut read, operation, inputs);
    Ok(Some(read))
}

/// The name that a numbered key has in a table, or the key itself.
fn numbered(key: &str) -> String {
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.len() < key.len() { format!("{stem}N") } else { key.to_owned() }
}

/// The kinds of the values that are named, absent ones without a value.
pub(super) fn named(
    values: &[(String, Option<Vec<u8>>)],
    operation: &Operation,
    inputs: &Inputs,
) -> BTreeSet<(String, &'static str)> {
    let mut message = Classified::default();
    for (name, value) in values {
        message.values.extend(value.as_ref().map(|value| (name.clone(), value.clone())));
    }
    kinds(&mut message, operation, inputs);
    // Nothing is known of the others.
    message.kinds.retain(|(name, _)| values.iter().any(|(named, _)| named == name));
    message.kinds
}

/// Reads a request to spawn, of one program, from the lines between `mcmd=spawn` and `endcmd`.
pub(super) fn block(lines: &[Vec<u8>], inputs: &Inputs) -> Option<Classified> {
    let operation = inputs.operation("spawn")?;
    let mut request = Classified { operation: operation.name.clone(), ..Classified::default() };
    let mut order = Vec::new();
    for line in lines {
        let (key, value) = match line.iter().position(|b| *b == b'=') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (&line[..], &b""[..]),
        };
        let name = numbered(&String::from_utf8_lossy(key));
        match operation.arguments.iter().position(|a| a.name == name) {
            Some(index) => {
                order.push(index);
                request.values.push((name, value.to_vec()));
            }
            None => drop(request.framing.insert("extra")),
        }
    }
    // Keys and their values take turns.
    let place = |index: &usize| match operation.arguments[*index].name.as_str() {
        "preput_val_N" | "info_val_N" => index - 1,
        _ => *index,
    };
    if order.windows(2).any(|w| place(&w[0]) > place(&w[1])) {
        request.framing.insert("order");
    }
    kinds(&mut request, operation, inputs);
    Some(request)
}

fn kinds(request: &mut Classified, operation: &Operation, inputs: &Inputs) {
    for argument in &operation.arguments {
        let values: Vec<&[u8]> = request.all(&argument.name).collect();
        let numbered = argument.name.ends_with('N');
        let mut found: BTreeSet<&'static str> =
            values.iter().flat_map(|value| kinds_of(value, argument, inputs)).collect();
        if values.is_empty() && !(numbered && lacks_none(request, argument)) {
            found.insert("missing");
        }
        if values.len() > 1 && !numbered {
            found.insert("repeated");
        }
        let found: Vec<_> = found.into_iter().map(|kind| (argument.name.clone(), kind)).collect();
        request.kinds.extend(found);
    }
}

/// Whether no tuple of a numbered argument is missing: their count is 0 or not there either.
fn lacks_none(request: &Classified, argument: &Argument) -> bool {
    let count = match argument.name.as_str() {
        "argN" => "argcnt",
        "preput_key_N" | "preput_val_N" => "preput_num",
        "info_key_N" | "info_val_N" => "info_num",
        "argvN" => "argc",
        "ppkeyN" | "ppvalN" => "preputcount",
        "errN" => "nerrs",
        _ => "infokeycount",
    };
    request.value(count).is_none_or(|n| n.iter().all(|b| !(b'1'..=b'9').contains(b)))
}

/// The kinds that a value has; `plain` if it is like nothing else.
fn kinds_of(value: &[u8], argument: &Argument, inputs: &Inputs) -> BTreeSet<&'static str> {
    let mut kinds = BTreeSet::new();
    if value.is_empty() {
        kinds.insert("empty");
        return kinds;
    }
    let mut add = |kind, holds: bool| {
        if holds {
            kinds.insert(kind);
        }
    };
    if argument.rule == Rule::Bool {
        let small = matches!(value, b"true" | b"false");
        add("lower-case", small);
        add("not-a-boolean", !small && !matches!(value, b"TRUE" | b"FALSE"));
    } else if matches!(argument.rule, Rule::Uint | Rule::Int | Rule::IntList) {
        let list = argument.rule == Rule::IntList;
        for number in value.split(|b| list && *b == b',') {
            let signed =
                number.first().is_some_and(|b| *b == b'-' || (*b == b'+' && argument.rule != Rule::Uint));
            let (sign, number) = number.split_at(usize::from(signed));
            let digits = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
            let significant: &[u8] = &number[number.iter().take_while(|b| **b == b'0').count()..];
            let (length, positive) = (significant.len(), sign != b"-");
            add("zero", digits && length == 0 && argument.rule != Rule::IntList);
            add("tiny", digits && length == 1 && number.len() == 1 && positive);
            add("leading-zeros", digits && length > 0 && length < number.len());
            add("huge", digits && (length > 10 || (length == 10 && significant >= b"2147483648".as_slice())));
            add("negative", digits && !positive);
            add("not-a-number", !digits);
        }
        add("blank-inside", list && value.contains(&b' '));
    } else {
        add("tab", value.contains(&b'\t'));
        add("blank-in-front", value[0] == b' ');
        add("blank-behind", value[value.len() - 1] == b' ');
        add("blank-inside", value.trim_ascii().contains(&b' '));
        add("equals", value.contains(&b'='));
        add("semicolon", value.contains(&b';'));
        add("backslash", value.contains(&b'\\'));
        add("quote", value.contains(&b'"') || value.contains(&b'\''));
        add("not-ascii", !value.is_ascii());
        add("control", value.iter().any(|b| b.is_ascii_control() && *b != b'\t'));
        add("newline", value.contains(&b'\n'));
        add("nul", value.contains(&0));
        let text = String::from_utf8_lossy(value);
        add("reserved", is_reserved(&text, inputs.dialect));
        let is_tuple = |part: &str| {
            part.split_once('=').is_some_and(|(key, _)| is_known_key(inputs.dialect.framing(), key))
        };
        add("like-keyword", text.split([' ', ';']).any(is_tuple));
        match inputs.limits().of(argument) {
            Some(longest) => {
                add("longest", value.len() == longest);
                add("one-more", value.len() == longest + 1);
                add("far-too-long", value.len() >= 8 * longest);
            }
            None => {
                add("long", (LONG..FAR).contains(&value.len()));
                add("far-too-long", value.len() >= FAR);
            }
        }
    }
    if kinds.iter().all(|kind| *kind == "tiny") {
        kinds.insert("plain");
    }
    kinds
}

/// Whether a text is a word of the protocol, or begins as the keys of the process manager do.
fn is_reserved(text: &str, dialect: Dialect) -> bool {
    text.starts_with("PMI_")
        || is_known_key(dialect.framing(), text)
        || commands(dialect).iter().any(|(request, response)| text == *request || text == *response)
}

/// What stands between blanks.
struct Token<'a> {
    start: usize,
    end: usize,
    /// Empty if there is no equals sign.
    key: &'a [u8],
    value: &'a [u8],
    value_at: usize,
}

fn tokens(line: &[u8]) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut start = 0;
    for part in line.split(|b| matches!(b, b' ' | b'\t')) {
        let end = start + part.len();
        if !part.is_empty() {
            let equals = part.iter().position(|b| *b == b'=');
            let (key, value_at) = equals.map_or((&part[..0], start), |at| (&part[..at], start + at + 1));
            tokens.push(Token { start, end, key, value: &line[value_at..end], value_at });
        }
        start = end + 1;
    }
    tokens
}
