//! Judges every call of the C API, regardless of the scenario.

use pmi_scenario::ids;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Severity;
use crate::bytes::{Bytes, MAX_SHOWN_BYTES, quoted};
use pmi_scenario::signature::{self, ERR_INIT, FAIL, Function, LAST_CODE, Param};

/// An argument of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[serde(rename = "Argument")]
pub enum CallArgument {
    /// A string, or an array in its text form.
    Text(Bytes),
    /// An integer.
    Number(i32),
    /// NULL.
    Null,
    /// An output argument with this name, and its size if the scenario specifies one.
    Out(String, Option<usize>),
}

/// Prints the argument as it is written in a scenario.
impl fmt::Display for CallArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => {
                let text = text.to_string();
                write!(f, "\"{}\"", &text[..text.floor_char_boundary(MAX_SHOWN_BYTES)])
            }
            Self::Number(number) => number.fmt(f),
            Self::Null => f.write_str("NULL"),
            Self::Out(name, None) => write!(f, "&{name}"),
            Self::Out(name, Some(size)) => write!(f, "&{name}[{size}]"),
        }
    }
}

/// A call that has begun.
#[derive(Debug)]
pub struct PendingCall {
    /// The called function.
    pub function: &'static Function,
    /// The arguments of the call.
    pub arguments: Vec<CallArgument>,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Returned")]
pub struct CallResult {
    /// The return code.
    pub result: i32,
    /// The values of the output arguments, in order.
    pub outs: Vec<(String, OutputValue)>,
    /// Output arguments whose bounds the library exceeded.
    pub overrun: Vec<String>,
}

/// The value of an output argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[serde(rename = "Held")]
pub enum OutputValue {
    /// An integer; `None` if it was not set.
    Int(Option<i32>),
    /// Integers; `None` for each integer that was not set.
    Ints(Vec<Option<i32>>),
    /// A string; `None` if there is no terminating NUL within the buffer.
    Text(Option<Bytes>),
    /// A value that is not examined.
    Opaque,
}

impl CallResult {
    /// Formats the return code and the output arguments of a call.
    pub fn shown(&self, function: &str) -> String {
        let mut shown = signature::function(function)
            .map_or_else(String::new, |function| function.result_name(self.result));
        for (name, held) in self.outs.iter().filter(|(_, held)| *held != OutputValue::Opaque) {
            let missing = if *held == OutputValue::Text(None) { "(no NUL)" } else { "(unset)" };
            let mut text = held.text(function).unwrap_or_else(|| missing.into());
            text.truncate(MAX_SHOWN_BYTES);
            shown += &format!(" {name}={}", text.escape_ascii());
        }
        shown
    }
}

impl OutputValue {
    fn number(&self) -> Option<i32> {
        match self {
            Self::Int(number) => *number,
            _ => None,
        }
    }

    /// Returns the value as text. Clique ranks are sorted, because their order is unspecified.
    pub fn text(&self, function: &str) -> Option<Vec<u8>> {
        match self {
            Self::Int(number) => number.map(|n| n.to_string().into_bytes()),
            Self::Text(text) => text.as_ref().map(|text| text.0.clone()),
            Self::Ints(all) => {
                let mut set: Vec<i32> = all.iter().copied().flatten().collect();
                if function == "PMI_Get_clique_ranks" {
                    set.sort_unstable();
                }
                Some(set.iter().map(i32::to_string).collect::<Vec<_>>().join(",").into_bytes())
            }
            Self::Opaque => None,
        }
    }
}

/// Requirements on the caller of a library. In a test of a library, the scenario is the caller.
pub(crate) const CALLER_REQUIREMENTS: &[&str] = &[
    ids::RFC13_PUT_ONCE,
    ids::RFC13_PUT_UNIQUE,
    ids::RFC13_PUT_LENGTH,
    ids::RFC13_GET_KEY_LENGTH,
    ids::RFC13_KVS_NAME_USED,
    ids::PMI2_DRAFT_KEY,
    ids::PMI2_DRAFT_LENGTHS,
];

/// A requirement that a call breaks.
#[derive(Debug)]
pub(crate) struct ApiViolation {
    pub(crate) requirement: &'static str,
    /// The highest severity that the finding may have, if the severity is limited.
    pub(crate) at_most: Option<Severity>,
    pub(crate) expected: String,
    pub(crate) seen: String,
}

fn violation(
    requirement: &'static str,
    expected: impl Into<String>,
    seen: impl Into<String>,
) -> ApiViolation {
    ApiViolation { requirement, at_most: None, expected: expected.into(), seen: seen.into() }
}

impl PendingCall {
    /// Returns whether the caller of a PMI-2 function passed a length of 0 or less for this buffer. In PMI-1, the library must report such
    /// a length as an error of the caller.
    fn has_empty_buffer(&self, out: &str) -> bool {
        let place =
            self.arguments.iter().position(|a| matches!(a, CallArgument::Out(name, _) if name == out));
        let length = match place.and_then(|place| self.function.params.get(place)) {
            Some(Param::OutText(Some(length))) => self.arguments.get(*length),
            _ => None,
        };
        !self.function.is_of_rfc13() && matches!(length, Some(CallArgument::Number(n)) if *n <= 0)
    }
}

/// Returns whether the function terminates the calling process.
pub(crate) fn is_abort(function: &Function) -> bool {
    matches!(function.name, "PMI_Abort" | "PMI2_Abort")
}

/// Judges the result of a call.
pub(crate) fn returned(call: &PendingCall, returned: &CallResult) -> Vec<ApiViolation> {
    let function = call.function;
    let mut all = Vec::new();
    let code = function.result_name(returned.result);
    if is_abort(function) {
        let expected = format!("{} does not return", function.name);
        all.push(violation(function.effect_requirement, expected, format!("it returned {code}")));
        return all;
    }
    for name in &returned.overrun {
        let expected = format!("nothing is written outside {name}");
        let id = function.dialect.pick([function.effect_requirement, ids::PMI2_COMMON_API_BUFFERS]);
        all.push(violation(id, expected, format!("memory around {name} was changed")));
    }
    let result = returned.result;
    if function.is_flag {
        return all;
    }
    if function.is_of_rfc13() && result == LAST_CODE + 1 {
        // Most headers define PMI_ERR_INVALID_KVS with this value.
        let mut found = violation(ids::RFC13_API_INVALID_KVS, "a return code with a value in RFC 13", code);
        found.at_most = Some(Severity::Note);
        all.push(found);
    } else if function.is_of_rfc13() && !(FAIL..=LAST_CODE).contains(&result) {
        all.push(violation(ids::RFC13_API_RETURN_CODES, "a return code that RFC 13 defines", code));
    } else if result != 0 && result != ERR_INIT && !function.error_requirement.is_empty() {
        if !function.error_codes.is_empty() && !function.error_codes.contains(&result) {
            let listed: Vec<String> =
                function.error_codes.iter().map(|code| function.result_name(*code)).collect();
            let expected = format!("{} reports failure with {}", function.name, listed.join(" or "));
            let mut found = violation(function.error_requirement, expected, code);
            found.at_most = Some(Severity::Note);
            all.push(found);
        }
    } else if result == 0 && !function.error_requirement.is_empty() {
        let last = returned.outs.last().and_then(|(_, held)| held.number());
        let misses = function.reports_found && last == Some(0);
        // If a value does not fit, a PMI-2 library returns a negative length.
        let cut = !function.is_of_rfc13() && last.is_some_and(|n| n < 0);
        for (name, held) in returned.outs.iter().filter(|_| !misses) {
            let seen = match held {
                OutputValue::Int(None) => "it was not set",
                // An empty buffer has no room for the NUL.
                OutputValue::Text(None) if !cut && !call.has_empty_buffer(name) => {
                    "no terminating NUL within the given size"
                }
                _ => continue,
            };
            all.push(violation(function.effect_requirement, format!("{name} is set upon success"), seen));
        }
    }
    all
}

/// Judges the result of a call that requested a single value from the server. `received` is the value in the server's response.
pub(crate) fn returned_of(
    call: &PendingCall,
    returned: &CallResult,
    received: &[u8],
) -> Option<ApiViolation> {
    if !matches!(call.function.name, "PMI_KVS_Get" | "PMI2_KVS_Get") || returned.result != 0 {
        return None;
    }
    let mut held = returned.outs.iter().map(|(_, held)| held);
    let (Some(OutputValue::Text(Some(text))), length) = (held.next(), held.next()) else { return None };
    // If a value does not fit, a PMI-2 library returns a negative length. C strings cannot contain NUL.
    let cut = length.and_then(OutputValue::number).is_some_and(|n| n < 0) || received.contains(&0);
    (text.0 != received && !cut).then(|| {
        let expected = format!("the value that the library received, {}", quoted(received));
        violation(call.function.effect_requirement, expected, format!("it returned {}", quoted(&text.0)))
    })
}
