//! Does a message fit a line of a scenario?

use pmi_scenario::ast::Template;
use pmi_scenario::scope::{ScenarioError, Scope};

use crate::expectation::{self, Captures, Matcher, Pattern};

/// Why a message does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// What was expected of which key, or of the message.
    Message(String),
    /// The scenario itself is wrong.
    Scenario(String),
}

impl From<ScenarioError> for Misfit {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(error.0)
    }
}

impl From<expectation::Misfit> for Misfit {
    fn from(misfit: expectation::Misfit) -> Self {
        Self::Message(misfit.0)
    }
}

/// Checks a line against the expected one and binds what it captures.
///
/// # Errors
///
/// See [`Misfit`].
pub fn fits(scope: &mut Scope, expected: &Template, line: &[u8]) -> Result<(), Misfit> {
    let captures = Pattern::new(scope, expected, "")?.fits(line)?;
    scope.bind(captures);
    Ok(())
}

/// Checks one value, `None` where the key is absent.
///
/// # Errors
///
/// See [`Misfit`].
pub fn value_fits(
    scope: &mut Scope,
    key: &str,
    expected: &Template,
    seen: Option<&[u8]>,
) -> Result<(), Misfit> {
    let mut captures = Captures::new();
    Matcher::new(scope, expected)?.fits(key, seen, &mut captures)?;
    scope.bind(captures);
    Ok(())
}
