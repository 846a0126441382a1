//! Generators of cases for servers, for proxies whose upstream is the harness, for programs and for libraries. Decision bytes determine
//! each case.

pub mod library;
pub mod program;
pub mod server;
pub mod stream;
pub(crate) mod systematic;
pub mod trace;
mod upstream;

use arbitrary::{Result, Unstructured};

use crate::observe::edges::Edges;
use crate::session::WriteError;
use crate::session::case::Case;
use crate::session::decisions;

/// A source of cases for a campaign.
pub trait Generator: Sync {
    /// Generates a case. The decisions in `valid` determine its valid input, and those in `mutations` determine its mutations.
    ///
    /// # Errors
    ///
    /// Returns an error only if decisions run out, which never happens: after the last decision byte, generators take the first choice.
    fn generate(&self, valid: &mut Unstructured<'_>, mutations: &mut Unstructured<'_>) -> Result<Case>;

    /// Returns the systematic case with this number, or `None` if the case with this number is random.
    fn fixed(&self, _number: u64) -> Option<Case> {
        None
    }

    /// Receives a case that increased the coverage and had no fatal failure.
    ///
    /// # Errors
    ///
    /// Returns an error if the case cannot be written.
    fn keep(&self, _number: u64, _case: &Case) -> std::result::Result<(), WriteError> {
        Ok(())
    }

    /// Receives the edges of a case that had no fatal failure.
    fn record_edges(&self, _case: &Case, _edges: &Edges) {}

    /// Returns the number of cases from which other cases are derived.
    fn kept(&self) -> usize {
        0
    }
}

/// Generates a case from decision bytes, which may be arbitrary.
pub fn case_from_bytes(generator: &dyn Generator, bytes: &[u8]) -> Case {
    let (mut valid, mut mutations) = decisions::split(bytes);
    generator.generate(&mut valid, &mut mutations).unwrap_or_else(|e| panic!("decisions never run out: {e}"))
}

/// Generates case `number` of a campaign with this seed.
pub fn case_from_number(generator: &dyn Generator, seed: u64, number: u64) -> Case {
    generator
        .fixed(number)
        .unwrap_or_else(|| case_from_bytes(generator, &decisions::draw_bytes(seed, number)))
}
