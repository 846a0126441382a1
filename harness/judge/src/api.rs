//! The judge of the C API: what RFC 13 asks of every call, whatever the scenario expects of it.

use serde::{Deserialize, Serialize};

use crate::Severity;
use crate::event::Bytes;
use pmi_scenario::signature::{self, ERR_INIT, FAIL, Function, LAST_CODE};

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// The return code.
    pub result: i32,
    /// What the out arguments hold, in order.
    pub outs: Vec<(String, Held)>,
    /// Out arguments behind whose end, or before whose beginning, something was written.
    pub overrun: Vec<String>,
}

/// What an out argument holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// An integer; `None` if it was not set.
    Int(Option<i32>),
    /// Integers; `None` where one was not set.
    Ints(Vec<Option<i32>>),
    /// A string; `None` without a terminating NUL in the room that there was.
    Text(Option<Bytes>),
    /// Something that is not looked at.
    Opaque,
}

/// Requirements that the caller of a library keeps, which here is the scenario.
pub const CALLERS: &[&str] = &[
    "rfc13.put.once",
    "rfc13.put.unique",
    "rfc13.put.length",
    "rfc13.get.key-length",
    "rfc13.kvs.name-used",
];

/// What is wrong with a call.
#[derive(Debug)]
pub struct Breach {
    /// Id of the requirement.
    pub requirement: &'static str,
    /// It counts as no more than this.
    pub at_most: Option<Severity>,
    /// What should have been.
    pub expected: String,
    /// What was.
    pub seen: String,
}

fn breach(requirement: &'static str, expected: impl Into<String>, seen: impl Into<String>) -> Breach {
    Breach { requirement, at_most: None, expected: expected.into(), seen: seen.into() }
}

/// Judges what a call returned.
pub fn returned(function: &Function, returned: &Returned) -> Vec<Breach> {
    let mut all = Vec::new();
    let code = signature::code_name(returned.result);
    if function.name == "PMI_Abort" {
        all.push(breach(function.does, "PMI_Abort does not return", format!("it returned {code}")));
        return all;
    }
    for name in &returned.overrun {
        let expected = format!("nothing is written outside of {name}");
        all.push(breach(function.does, expected, "memory around it was changed"));
    }
    let result = returned.result;
    if result == LAST_CODE + 1 {
        // What most headers say for PMI_ERR_INVALID_KVS.
        let mut found = breach("rfc13.api.invalid-kvs", "a return code with a value in RFC 13", code);
        found.at_most = Some(Severity::Note);
        all.push(found);
    } else if !(FAIL..=LAST_CODE).contains(&result) {
        all.push(breach("rfc13.api.return-codes", "a return code of RFC 13", code));
    } else if result != 0 && result != ERR_INIT && !function.errors.is_empty() {
        if !function.codes.contains(&result) {
            let listed: Vec<String> = function.codes.iter().map(|code| signature::code_name(*code)).collect();
            let expected = format!("{} reports failure by {}", function.name, listed.join(" or "));
            let mut found = breach(function.errors, expected, code);
            found.at_most = Some(Severity::Note);
            all.push(found);
        }
    } else if result == 0 && !function.errors.is_empty() {
        for (name, held) in &returned.outs {
            let seen = match held {
                Held::Int(None) => "it was not set",
                Held::Text(None) => "no terminating NUL within the room given",
                _ => continue,
            };
            all.push(breach(function.does, format!("{name} is set upon success"), seen));
        }
    }
    all
}
