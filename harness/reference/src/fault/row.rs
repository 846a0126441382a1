//! The rows of the catalogue.

use pmi_wire::Operation;

use crate::behaviour::{Behaviour, Effect, Replies, ReplyKind, When};

/// One named way in which the server breaks RFC 13.
#[derive(Debug)]
pub struct Fault {
    /// Stable name.
    pub name: &'static str,
    /// Ids of the requirements that it breaks; a finding has to cite one of them.
    pub breaks: &'static [&'static str],
    /// What the server does, in a line.
    pub about: &'static str,
    /// Where it does so.
    pub effect: Effect,
    /// On which occasions.
    pub when: When,
}

/// One named way in which the server is unusual and lawful.
#[derive(Debug)]
pub struct Variation {
    /// Stable name.
    pub name: &'static str,
    /// What the server does, in a line.
    pub about: &'static str,
    /// Where it does so.
    pub effect: Effect,
    /// On which occasions.
    pub when: When,
}

impl Fault {
    /// The behaviour of a server that has this fault.
    pub fn behaviour(&self) -> Behaviour {
        Behaviour::default().with(self.effect, self.when)
    }
}

impl Variation {
    /// The behaviour of a server that has this variation.
    pub fn behaviour(&self) -> Behaviour {
        Behaviour::default().with(self.effect, self.when)
    }
}

/// The behaviour of a server that has these variations, and this fault.
pub fn behaviour(fault: Option<&Fault>, variations: &[&Variation]) -> Behaviour {
    let varied = variations.iter().fold(Behaviour::default(), |all, v| all.with(v.effect, v.when));
    fault.iter().fold(varied, |all, f| all.with(f.effect, f.when))
}

/// A row of a table of faults.
pub(super) const fn fault(
    name: &'static str,
    breaks: &'static [&'static str],
    about: &'static str,
    effect: Effect,
    when: When,
) -> Fault {
    Fault { name, breaks, about, effect, when }
}

/// A row of a table of variations.
pub(super) const fn vary(name: &'static str, about: &'static str, effect: Effect) -> Variation {
    Variation { name, about, effect, when: When::Always }
}

/// Broken by a success that lacks what it has to tell.
pub(super) const COMPLETE: &str = "rfc13.response.complete-on-success";

/// The successes of an operation.
pub(super) const fn ok(op: Operation) -> Replies {
    Replies(Some(op), ReplyKind::Ok)
}

/// All replies to an operation.
pub(super) const fn any(op: Operation) -> Replies {
    Replies(Some(op), ReplyKind::Any)
}

/// Adds to a decimal number.
pub(super) fn bump(value: &mut Vec<u8>, by: i64) {
    let number: i64 = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok()).unwrap_or(0);
    *value = (number + by).to_string().into_bytes();
}
