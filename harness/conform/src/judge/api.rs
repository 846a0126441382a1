//! The judge of the C API: what RFC 13 asks of every call, whatever the scenario expects of it.

use crate::judge::Severity;
use crate::library::signature::{self, ERR_INIT, FAIL, Function, LAST_CODE};
use crate::library::{Held, Returned};

/// Requirements that the caller of a library keeps, which here is the scenario.
pub(crate) const CALLERS: &[&str] = &[
    "rfc13.put.once",
    "rfc13.put.unique",
    "rfc13.put.length",
    "rfc13.get.key-length",
    "rfc13.kvs.name-used",
];

/// What is wrong with a call.
#[derive(Debug)]
pub(crate) struct Breach {
    pub(crate) requirement: &'static str,
    pub(crate) at_most: Option<Severity>,
    pub(crate) expected: String,
    pub(crate) seen: String,
}

fn breach(requirement: &'static str, expected: impl Into<String>, seen: impl Into<String>) -> Breach {
    Breach { requirement, at_most: None, expected: expected.into(), seen: seen.into() }
}

/// Judges what a call returned.
pub(crate) fn returned(function: &Function, returned: &Returned) -> Vec<Breach> {
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
