//! The walk over a scenario's statements: it inserts fragments, expands repetitions, and binds names.

use std::borrow::Cow;
use std::sync::Arc;

use pmi_scenario::MAX_GROUP;
use pmi_scenario::ast::{Expr, Parameter, Scenario, SourceFile, Statement, Step, StepTarget, Template};
use pmi_scenario::scope::{ScenarioError, Scope};

/// Maximum nesting depth of fragments and repetitions. The checker's limit is lower.
const MAX_DEPTH: usize = 32;

/// A function that finds a fragment by name.
pub type Fragments<'a> = &'a dyn Fn(&str) -> Option<Arc<Scenario>>;

#[derive(Clone, Copy)]
pub(crate) struct Position<'a> {
    /// The line in the scenario's own file, or the number of the statement if it was not read from a file. For a step of a fragment, this
    /// is the line of the `use` statement.
    pub(crate) line: usize,
    /// The statements that follow in the same body.
    pub(crate) rest: &'a [Statement],
    /// True for the steps of a fragment.
    pub(crate) is_in_fragment: bool,
}

/// A visitor that receives the steps of a scenario in order.
pub(crate) trait StepReceiver {
    /// The reason why the walk ends early.
    type Stop: From<ScenarioError>;

    fn scope(&mut self) -> &mut Scope;

    /// Called when the walk reaches a line with a step or another statement.
    fn set_line(&mut self, line: usize);

    /// Called for each line whose statement the walk does not reach.
    fn skip(&mut self, _line: usize) {}

    fn step(&mut self, step: &Step, place: Position<'_>) -> Result<(), Self::Stop>;
}

/// Walks over a whole scenario.
///
/// # Errors
///
/// Returns an error if a step fails, or if the scenario contains a mistake that cannot be detected before the scenario is played.
pub(crate) fn walk<S: StepReceiver>(
    steps: &mut S,
    scenario: &Scenario,
    fragments: Fragments<'_>,
) -> Result<(), S::Stop> {
    StepWalk::of(scenario, fragments).body(steps, &scenario.body, &scenario.source, None, MAX_DEPTH)
}

/// Skips all statements of a scenario.
pub(crate) fn skip_all(steps: &mut impl StepReceiver, scenario: &Scenario, fragments: Fragments<'_>) {
    StepWalk::of(scenario, fragments).skip(steps, &scenario.body, 0, &scenario.source, None);
}

struct StepWalk<'a> {
    fragments: Fragments<'a>,
    /// The positions of the line ends in the scenario's own file.
    newlines: Vec<usize>,
    ranks: u32,
}

impl<'a> StepWalk<'a> {
    fn of(scenario: &Scenario, fragments: Fragments<'a>) -> Self {
        // Recorded sessions have many lines, so the positions of the line ends are determined only once.
        let newlines = memchr::memchr_iter(b'\n', scenario.source.text.as_bytes()).collect();
        Self { fragments, newlines, ranks: scenario.ranks }
    }

    /// Returns the line of a statement in the scenario's own file. For a statement of a fragment, this is `line`, the line of the `use`
    /// statement.
    fn line_of(
        &self,
        index: usize,
        statement: &Statement,
        source: &SourceFile,
        line: Option<usize>,
    ) -> usize {
        let offset = statement.start();
        match line {
            Some(line) => line,
            None if source.text.is_empty() => index + 1,
            None => 1 + self.newlines.partition_point(|end| *end < offset),
        }
    }

    /// Skips the statements of a body, starting at index `from`.
    fn skip(
        &self,
        steps: &mut impl StepReceiver,
        body: &[Statement],
        from: usize,
        source: &SourceFile,
        line: Option<usize>,
    ) {
        for (index, statement) in body.iter().enumerate().skip(from) {
            steps.skip(self.line_of(index, statement, source, line));
        }
    }

    /// Walks over a body. For the body of a fragment, `line` is the line of the `use` statement that inserts the fragment.
    fn body<S: StepReceiver>(
        &self,
        steps: &mut S,
        body: &[Statement],
        source: &Arc<SourceFile>,
        line: Option<usize>,
        depth: usize,
    ) -> Result<(), S::Stop> {
        let deeper = || {
            depth.checked_sub(1).ok_or_else(|| {
                ScenarioError::Mistake(format!(
                    "fragments and repetitions are nested more than {MAX_DEPTH} levels deep"
                ))
            })
        };
        let statement = |steps: &mut S, index: usize, stmt: &Statement| -> Result<(), S::Stop> {
            let place = self.line_of(index, stmt, source, line);
            steps.set_line(place);
            match stmt {
                Statement::Use { name, with } => {
                    let fragment = (self.fragments)(&name.value).ok_or_else(|| {
                        ScenarioError::Mistake(format!("unknown fragment \"{}\"", name.value))
                    })?;
                    let argument = |parameter: &'_ Parameter| {
                        with.iter().find(|(name, _)| *name == parameter.name).map(|(_, value)| value)
                    };
                    let arguments: Vec<(&str, &Template)> = fragment
                        .parameters
                        .iter()
                        .filter_map(|p| Some((p.name.value.as_str(), argument(p).or(p.default.as_ref())?)))
                        .collect();
                    let before = steps.scope().bind_temporarily(&arguments)?;
                    self.body(steps, &fragment.body, &fragment.source, Some(place), deeper()?)?;
                    steps.scope().restore(before);
                }
                Statement::Let { name, value } => {
                    let text = steps.scope().text(value)?;
                    steps.scope().set(&name.value, text);
                }
                Statement::Repeat { count, var, body, .. } => {
                    steps.scope().enter(0, self.ranks);
                    for i in 0..steps.scope().number(count)? {
                        if let Some(var) = var {
                            steps.scope().set(&var.value, i.to_string().into_bytes());
                        }
                        self.body(steps, body, source, line, deeper()?)?;
                    }
                }
                // These blocks were already resolved when the suite was read.
                Statement::Only { .. } => {}
                Statement::Step(step) => {
                    let step = resolve_group(steps.scope(), step)?;
                    let (rest, is_in_fragment) = (&body[index + 1..], line.is_some());
                    steps.step(&step, Position { line: place, rest, is_in_fragment })?;
                }
            }
            Ok(())
        };
        for (index, stmt) in body.iter().enumerate() {
            if let Err(stop) = statement(steps, index, stmt) {
                self.skip(steps, body, index + 1, source, line);
                return Err(stop);
            }
        }
        Ok(())
    }
}

/// Replaces the name of a step's group with the group's number.
fn resolve_group<'a>(scope: &Scope, step: &'a Step) -> Result<Cow<'a, Step>, ScenarioError> {
    let StepTarget::Spawned { number, set } = &step.target else { return Ok(Cow::Borrowed(step)) };
    let group = scope.number(&Expr::Var(number.clone()))?;
    let group = u32::try_from(group).ok().filter(|n| (1..=MAX_GROUP).contains(n)).ok_or_else(|| {
        ScenarioError::Mistake(format!(
            "${} is {group}, but spawned groups are numbered from 1",
            number.value
        ))
    })?;
    Ok(Cow::Owned(Step { target: StepTarget::Ranks { group, set: set.clone() }, ..step.clone() }))
}
