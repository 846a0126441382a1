//! The walk over a scenario's statements: fragments in their place, repetitions as often as they say, names bound on the way.

use std::borrow::Cow;
use std::sync::Arc;

use pmi_scenario::MAX_GROUP;
use pmi_scenario::ast::{Expr, Parameter, Scenario, Source, Step, Stmt, Template, Who};
use pmi_scenario::scope::{ScenarioError, Scope};

/// How deep fragments and repetitions may lie in each other; the checker is stricter.
const DEPTH: usize = 32;

/// Finds a fragment by its name.
pub type Fragments<'a> = &'a dyn Fn(&str) -> Option<Arc<Scenario>>;

/// Where a step stands.
#[derive(Clone, Copy)]
pub(crate) struct Position<'a> {
    /// Line in the scenario's own file, or the number of the statement where it was not read from one. The steps of a fragment
    /// stand in the line that uses it.
    pub(crate) line: usize,
    /// The statements that follow in the same body.
    pub(crate) rest: &'a [Stmt],
}

/// Takes the steps in their order.
pub(crate) trait Steps {
    /// Why the walk ends early.
    type Stop: From<ScenarioError>;

    /// The names that are bound.
    fn scope(&mut self) -> &mut Scope;

    /// A line has been reached, be it of a step or of another statement.
    fn at(&mut self, line: usize);

    /// The walk ends early, and leaves out so many more statements.
    fn leave_out(&mut self, _statements: usize) {}

    /// A step has been reached.
    fn step(&mut self, step: &Step, place: Position<'_>) -> Result<(), Self::Stop>;
}

/// Walks over a whole scenario.
///
/// # Errors
///
/// What a step says, or a mistake of the scenario that shows only now.
pub(crate) fn walk<S: Steps>(
    steps: &mut S,
    scenario: &Scenario,
    fragments: Fragments<'_>,
) -> Result<(), S::Stop> {
    // Recorded sessions have many lines.
    let newlines = memchr::memchr_iter(b'\n', scenario.source.text.as_bytes()).collect();
    let walk = Walk { fragments, newlines, ranks: scenario.ranks };
    walk.body(steps, &scenario.body, &scenario.source, None, DEPTH)
}

struct Walk<'a> {
    fragments: Fragments<'a>,
    /// Where the lines of the scenario's own file end.
    newlines: Vec<usize>,
    ranks: u32,
}

impl Walk<'_> {
    /// `line` is that of the `use` in which the statements stand.
    fn body<S: Steps>(
        &self,
        steps: &mut S,
        body: &[Stmt],
        source: &Arc<Source>,
        line: Option<usize>,
        depth: usize,
    ) -> Result<(), S::Stop> {
        let deeper = || {
            depth.checked_sub(1).ok_or_else(|| {
                ScenarioError::Mistake(format!(
                    "fragments and repetitions lie more than {DEPTH} deep in each other"
                ))
            })
        };
        let statement = |steps: &mut S, index: usize, stmt: &Stmt| -> Result<(), S::Stop> {
            let line_of = |offset: usize| match line {
                Some(line) => line,
                None if source.text.is_empty() => index + 1,
                None => 1 + self.newlines.partition_point(|end| *end < offset),
            };
            match stmt {
                Stmt::Use { name, with } => {
                    let line = line_of(name.span.start);
                    steps.at(line);
                    let fragment = (self.fragments)(&name.value).ok_or_else(|| {
                        ScenarioError::Mistake(format!("there is no fragment \"{}\"", name.value))
                    })?;
                    let told = |parameter: &'_ Parameter| {
                        with.iter().find(|(name, _)| *name == parameter.name).map(|(_, value)| value)
                    };
                    let told: Vec<(&str, &Template)> = fragment
                        .takes
                        .iter()
                        .filter_map(|p| Some((p.name.value.as_str(), told(p).or(p.default.as_ref())?)))
                        .collect();
                    let before = steps.scope().tell(&told)?;
                    self.body(steps, &fragment.body, &fragment.source, Some(line), deeper()?)?;
                    steps.scope().restore(before);
                }
                Stmt::Let { name, value } => {
                    steps.at(line_of(name.span.start));
                    let text = steps.scope().text(value)?;
                    steps.scope().set(&name.value, text);
                }
                Stmt::Repeat { count, var, body, span, .. } => {
                    steps.at(line_of(span.start));
                    steps.scope().enter(0, self.ranks);
                    for i in 0..steps.scope().number(count)? {
                        if let Some(var) = var {
                            steps.scope().set(&var.value, i.to_string().into_bytes());
                        }
                        self.body(steps, body, source, line, deeper()?)?;
                    }
                }
                Stmt::Step(step) => {
                    let line = line_of(step.span.start);
                    steps.at(line);
                    let step = spawned(steps.scope(), step)?;
                    steps.step(&step, Position { line, rest: &body[index + 1..] })?;
                }
            }
            Ok(())
        };
        for (index, stmt) in body.iter().enumerate() {
            if let Err(stop) = statement(steps, index, stmt) {
                steps.leave_out(body.len() - index - 1);
                return Err(stop);
            }
        }
        Ok(())
    }
}

/// A step of the group whose number a name stands for.
fn spawned<'a>(scope: &Scope, step: &'a Step) -> Result<Cow<'a, Step>, ScenarioError> {
    let Who::Spawned { number, set } = &step.who else { return Ok(Cow::Borrowed(step)) };
    let group = scope.number(&Expr::Var(number.clone()))?;
    let group = u32::try_from(group).ok().filter(|n| (1..=MAX_GROUP).contains(n)).ok_or_else(|| {
        ScenarioError::Mistake(format!("${} is {group}, and spawned groups are counted from 1", number.value))
    })?;
    Ok(Cow::Owned(Step { who: Who::Ranks { group, set: set.clone() }, ..step.clone() }))
}
