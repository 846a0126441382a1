//! Faults and variations of the reference server, as data.
//!
//! A [`Fault`] is one named way of breaking RFC 13, a [`Variation`] one named way of keeping it unusually. Both are an
//! [`Effect`], which says where the server does something else, and a [`When`]. To add one, add a row to the table of its
//! chapter (`connection`, `replies`, `errors`, `kvs`, `barrier`, `spawn`, `names`, `variations`); only a new kind of
//! misbehaviour needs a new effect and a line in the server. A server with neither pays one test of an empty option at each place.

mod barrier;
mod connection;
mod draft;
mod effect;
mod errors;
mod kvs;
mod names;
mod replies;
mod spawn;
mod variations;

pub use draft::Draft;
pub use effect::{
    AbortFault, BarrierFault, Effect, ErrorFault, FinalizeFault, For, GetFault, NamesFault, On, PutFault,
    Scene, SpawnFault, VersionFault, When,
};
pub(crate) use effect::{Origin, Quirks};

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

/// What makes a server odd.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    /// At most one fault, so that what is found can be told apart.
    pub fault: Option<&'static Fault>,
    /// Any number of variations; they apply in this order.
    pub variations: Vec<&'static Variation>,
}

impl Behaviour {
    /// With this fault.
    pub fn faulty(fault: &'static Fault) -> Self {
        Self { fault: Some(fault), variations: Vec::new() }
    }

    /// With this variation.
    pub fn varied(variation: &'static Variation) -> Self {
        Self { fault: None, variations: vec![variation] }
    }

    pub(crate) fn effects(&self) -> impl Iterator<Item = (&'static Effect, When)> {
        let varied = self.variations.iter().map(|v| (&v.effect, v.when));
        varied.chain(self.fault.map(|f| (&f.effect, f.when)))
    }
}

/// All faults, chapter by chapter.
pub fn faults() -> impl Iterator<Item = &'static Fault> {
    [
        connection::FAULTS,
        replies::FAULTS,
        errors::FAULTS,
        kvs::FAULTS,
        barrier::FAULTS,
        spawn::FAULTS,
        names::FAULTS,
    ]
    .into_iter()
    .flatten()
}

/// All variations.
pub fn variations() -> impl Iterator<Item = &'static Variation> {
    variations::VARIATIONS.iter()
}

/// A row of a table of faults.
const fn fault(
    name: &'static str,
    breaks: &'static [&'static str],
    about: &'static str,
    effect: Effect,
    when: When,
) -> Fault {
    Fault { name, breaks, about, effect, when }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_can_be_typed() {
        let mut seen = HashSet::new();
        let names = faults().map(|f| (f.name, f.about)).chain(variations().map(|v| (v.name, v.about)));
        for (name, about) in names {
            assert!(seen.insert(name), "{name} is there twice");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{name}"
            );
            assert!(!about.is_empty(), "{name}");
        }
        assert!(faults().all(|f| !f.breaks.is_empty()));
    }
}
