//! Generators make cases from decisions: for servers and for proxies of which we are the upstream, for programs, for libraries.

mod course;
pub(crate) mod jobs;
pub mod library;
pub mod library_api;
mod library_call;
mod model;
mod pmi12;
pub mod program;
mod requests;
pub mod scope;
pub mod server;
mod swarm;
mod sweep;
pub(crate) mod systematic;
mod systematic_answers;
mod systematic_calls;
pub mod trace;
mod upstream;

use arbitrary::{Result, Unstructured};

use crate::case::Case;
use crate::decisions;
use crate::edges::Edges;
use crate::store::WriteError;

/// What makes the cases of a campaign.
pub trait Generator: Sync {
    /// Makes a case. What is lawful in it is decided by the first decisions, what is not by the second.
    ///
    /// # Errors
    ///
    /// The decisions decide on nothing, which does not happen: where they have come to their end, the first choice is taken.
    fn generate(&self, lawful: &mut Unstructured<'_>, mutations: &mut Unstructured<'_>) -> Result<Case>;

    /// The case of a number, where that is not drawn.
    fn fixed(&self, _number: u64) -> Option<Case> {
        None
    }

    /// Is told of a case that reached what none before it had, and did not end the implementation.
    ///
    /// # Errors
    ///
    /// It cannot be written down.
    fn keep(&self, _number: u64, _case: &Case) -> std::result::Result<(), WriteError> {
        Ok(())
    }

    /// Is told which edges a case went along that did not end the implementation.
    fn went(&self, _case: &Case, _edges: &Edges) {}

    /// Number of cases from which others are made.
    fn kept(&self) -> usize {
        0
    }
}

/// Makes the case that these bytes decide on, whatever they are.
pub fn decided(generator: &dyn Generator, bytes: &[u8]) -> Case {
    let (mut lawful, mut mutations) = decisions::split(bytes);
    generator.generate(&mut lawful, &mut mutations).unwrap_or_else(|e| panic!("decisions have no end: {e}"))
}

/// Makes the case of a number.
pub fn numbered(generator: &dyn Generator, seed: u64, number: u64) -> Case {
    generator.fixed(number).unwrap_or_else(|| decided(generator, &decisions::draw(seed, number)))
}
