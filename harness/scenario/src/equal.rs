//! Equality of trees. Positions in the file are ignored.

use super::ast::{Alternative, Scenario, Spanned, Statement, Step, Template};

impl<T: PartialEq> PartialEq for Spanned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.pieces == other.pieces
    }
}

impl PartialEq for Alternative {
    fn eq(&self, other: &Self) -> bool {
        let Self { grade, cites, action, span: _ } = self;
        (grade, cites, action) == (&other.grade, &other.cites, &other.action)
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        let Self { target, role, cites, action, span: _ } = self;
        (target, role, cites, action) == (&other.target, &other.role, &other.cites, &other.action)
    }
}

impl PartialEq for Statement {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Use { name: a, with: x }, Self::Use { name: b, with: y }) => a == b && x == y,
            (Self::Let { name: a, value: x }, Self::Let { name: b, value: y }) => a == b && x == y,
            (
                Self::Repeat { count: a, var: v, body: x, span: _, end: _ },
                Self::Repeat { count: b, var: w, body: y, span: _, end: _ },
            ) => a == b && v == w && x == y,
            (
                Self::Only { names: a, body: x, span: _, end: _ },
                Self::Only { names: b, body: y, span: _, end: _ },
            ) => a == b && x == y,
            (Self::Step(a), Self::Step(b)) => a == b,
            _ => false,
        }
    }
}

impl PartialEq for Scenario {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            name,
            heading: _,
            requires,
            needs,
            tests,
            dialect,
            other_dialects: also,
            ranks,
            nodes,
            is_free,
            server_setup: serving,
            parameters: takes,
            each,
            dialect_words,
            rows,
            body,
            comments: _,
            source: _,
        } = self;
        *name == other.name
            && self.summary() == other.summary()
            && (requires, needs, tests, dialect, also)
                == (&other.requires, &other.needs, &other.tests, &other.dialect, &other.other_dialects)
            && (ranks, nodes, is_free, serving)
                == (&other.ranks, &other.nodes, &other.is_free, &other.server_setup)
            && (takes, each, rows, body) == (&other.parameters, &other.each, &other.rows, &other.body)
            && *dialect_words == other.dialect_words
    }
}
