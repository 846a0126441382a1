//! What a library offers, and the calls that are drawn for it by its API.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::Dialect;

use super::library_call::Planned;
use super::swarm::CallSwarm;
use super::{library_pmi1, library_pmi2};

/// Cases for a library.
#[derive(Debug, Clone, Copy)]
pub struct Libraries {
    /// Whose API it has.
    pub dialect: Dialect,
    /// It has PMIX_Ring beside that of PMI-2.
    pub ring: bool,
    /// Most ranks.
    pub ranks: u32,
    /// Answers and arguments are changed.
    pub mutate: bool,
    /// The library asks us. What one asks that does so elsewhere is not ours to answer, nor do its ranks find each other.
    pub wire: bool,
}

impl Libraries {
    /// How many kinds of calls there are.
    pub(super) fn kinds(&self) -> u32 {
        match self.dialect {
            Dialect::Pmi1 => library_pmi1::KINDS,
            Dialect::Pmi2 => library_pmi2::KINDS,
        }
    }

    /// The call with which a program begins.
    pub(super) fn begin(&self, u: &mut Unstructured<'_>, ranks: u32) -> Result<Planned> {
        match self.dialect {
            Dialect::Pmi1 => library_pmi1::begin(u),
            Dialect::Pmi2 => library_pmi2::begin(u, ranks),
        }
    }

    /// The call with which it ends.
    pub(super) fn end(&self) -> Planned {
        match self.dialect {
            Dialect::Pmi1 => library_pmi1::end(),
            Dialect::Pmi2 => library_pmi2::end(),
        }
    }

    /// A call of a kind, the `n`-th of its program.
    pub(super) fn of_kind(
        &self,
        kind: u32,
        u: &mut Unstructured<'_>,
        swarm: &CallSwarm,
        n: usize,
        ranks: u32,
    ) -> Result<Planned> {
        match self.dialect {
            Dialect::Pmi1 => library_pmi1::of_kind(kind, u, swarm, n, ranks),
            Dialect::Pmi2 => library_pmi2::of_kind(kind, u, swarm, n, ranks, self.ring),
        }
    }
}
