//! Visitors for trees. A visitor overrides the methods for the nodes that it processes; the default methods visit all other nodes.

use std::collections::VecDeque;

use pmi_wire::Proc;

use super::ast::*;

macro_rules! visitor {
    ($(#[$doc:meta])* $name:ident, $body:ident, $statement:ident, $action:ident, $template:ident,
     ($($mut:tt)?), $iter:ident) => {
        $(#[$doc])*
        pub trait $name<'a>: Sized {
            /// Visits a statement. By default, visits everything in the statement.
            fn statement(&mut self, statement: &'a $($mut)? Statement) {
                $statement(self, statement);
            }

            /// Visits a step. By default, visits its action.
            fn step(&mut self, step: &'a $($mut)? Step) {
                $action(self, &$($mut)? step.action);
            }

            /// Visits a template. By default, visits the expressions in it.
            fn template(&mut self, template: &'a $($mut)? Template) {
                $template(self, template);
            }

            /// Visits an expression. By default, does nothing.
            fn expr(&mut self, _expr: &'a $($mut)? Expr) {}
        }

        /// Visits the statements of a body.
        pub fn $body<'a>(visitor: &mut impl $name<'a>, body: &'a $($mut)? [Statement]) {
            for statement in body {
                visitor.statement(statement);
            }
        }

        /// Visits the steps, templates, expressions and nested statements of a statement.
        pub fn $statement<'a>(visitor: &mut impl $name<'a>, statement: &'a $($mut)? Statement) {
            match statement {
                Statement::Use { with, .. } => {
                    for (_, value) in with {
                        visitor.template(value);
                    }
                }
                Statement::Let { value, .. } => visitor.template(value),
                Statement::Repeat { count, body, .. } => {
                    visitor.expr(count);
                    $body(visitor, body);
                }
                Statement::Only { body, .. } => $body(visitor, body),
                Statement::Step(step) => visitor.step(step),
            }
        }

        /// Visits the templates and expressions of an action.
        pub fn $action<'a>(visitor: &mut impl $name<'a>, action: &'a $($mut)? StepAction) {
            match action {
                StepAction::Message { lines, .. } | StepAction::Upstream(UpstreamAction::Response { lines, .. }) => {
                    for line in lines {
                        visitor.template(line);
                    }
                }
                StepAction::OneOf(alternatives) => {
                    for alternative in alternatives {
                        $action(visitor, &$($mut)? alternative.action);
                    }
                }
                StepAction::Process(ProcessAction::Env(_, value) | ProcessAction::Args(value)) => visitor.template(value),
                StepAction::Call(call) => {
                    for arg in &$($mut)? call.args {
                        match arg {
                            Arg::Text(text) => visitor.template(text),
                            Arg::Number(number) | Arg::Out(_, Some(number)) => visitor.expr(number),
                            Arg::Null | Arg::Out(_, None) => {}
                        }
                    }
                    for (_, value) in &$($mut)? call.outs {
                        visitor.template(value);
                    }
                }
                _ => {}
            }
        }

        /// Visits the expressions of a template.
        pub fn $template<'a>(visitor: &mut impl $name<'a>, template: &'a $($mut)? Template) {
            for piece in &$($mut)? template.pieces {
                match piece {
                    Piece::Calc(n) | Piece::Char(n) | Piece::Fill(n) | Piece::Junk(n) => visitor.expr(n),
                    Piece::Typed(ValueType::Uint(low, high)) | Piece::Capture(_, ValueType::Uint(low, high)) => {
                        low.$iter().for_each(|n| visitor.expr(n));
                        high.$iter().for_each(|n| visitor.expr(n));
                    }
                    _ => {}
                }
            }
        }
    };
}

visitor! {
    /// A visitor that does not change the tree.
    Visitor, body, statement, action, template, (), iter
}
visitor! {
    /// A visitor that changes the tree.
    VisitorMut, body_mut, statement_mut, action_mut, template_mut, (mut), iter_mut
}

/// Returns the steps of a body, including those in nested blocks, in the order of the file.
pub fn steps(body: &[Statement]) -> impl Iterator<Item = &Step> {
    steps_with(body, |_| &[])
}

/// Returns the steps as [`steps`] does, but replaces each `use` with the steps of its fragment.
pub(super) fn steps_with<'a>(
    body: &'a [Statement],
    fragment: impl Fn(&str) -> &'a [Statement],
) -> impl Iterator<Item = &'a Step> {
    let mut open = vec![body.iter()];
    std::iter::from_fn(move || {
        loop {
            match open.last_mut()?.next() {
                None => drop(open.pop()),
                Some(Statement::Step(step)) => return Some(step),
                Some(Statement::Repeat { body, .. } | Statement::Only { body, .. }) => open.push(body.iter()),
                Some(Statement::Use { name, .. }) => open.push(fragment(&name.value).iter()),
                Some(Statement::Let { .. }) => {}
            }
        }
    })
}

/// Returns whether a body refers to this variable.
pub fn names(body: &[Statement], variable: &str) -> bool {
    struct Search<'v>(&'v str, bool);
    impl<'a> Visitor<'a> for Search<'_> {
        fn template(&mut self, text: &'a Template) {
            self.1 |= text.pieces.iter().any(|piece| matches!(piece, Piece::Var(name) if name == self.0));
            template(self, text);
        }

        fn expr(&mut self, expr: &'a Expr) {
            match expr {
                Expr::Var(name) => self.1 |= name.value == self.0,
                Expr::Binary(left, _, right) => {
                    self.expr(left);
                    self.expr(right);
                }
                Expr::Number(_) => {}
            }
        }
    }
    let mut search = Search(variable, false);
    self::body(&mut search, body);
    search.1
}

/// Returns the names of the fragments that a body uses directly, in order.
pub fn fragments(body: &[Statement]) -> VecDeque<String> {
    let mut names = VecDeque::new();
    for statement in body {
        match statement {
            Statement::Use { name, .. } => names.push_back(name.value.clone()),
            Statement::Repeat { body, .. } | Statement::Only { body, .. } => names.extend(fragments(body)),
            Statement::Let { .. } | Statement::Step(_) => {}
        }
    }
    names
}

impl Scenario {
    /// Returns the commands that the scenario expects proxies to forward, for example `get`. The scenario answers these requests itself.
    pub fn answers(&self) -> Vec<String> {
        let of_proxies =
            |step: &&Step| matches!(step.target, StepTarget::Ranks { group: Proc::PROXY_GROUP, .. });
        let command = |line: &Template| {
            let fields = line.message_fields();
            let first = fields.first().filter(|f| matches!(f.key.as_str(), "cmd" | "mcmd"))?;
            first.value.literal()
        };
        let mut names: Vec<String> = steps(&self.body)
            .filter(of_proxies)
            .flat_map(|step| step.action.outcomes())
            .flat_map(StepAction::lines)
            .filter_map(command)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
