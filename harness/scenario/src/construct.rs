//! Constructors for trees that are not parsed from a file. These trees have no positions, and the constructors accept bytes without
//! escapes.

use std::sync::Arc;

use super::{
    ast::*,
    expr, layout,
    template::{slice, split_message},
};

impl<T> From<T> for Spanned<T> {
    fn from(value: T) -> Self {
        Self { value, span: Span::default() }
    }
}

impl Scenario {
    /// Creates a scenario for a server and one rank, without steps. `summary` becomes the heading.
    pub fn new(name: impl Into<String>, summary: &str, requires: &[&str]) -> Self {
        Self {
            name: name.into(),
            heading: super::print::wrapped(summary.split_whitespace()),
            requires: requires.iter().map(|id| Spanned::from((*id).to_owned())).collect(),
            needs: Vec::new(),
            tests: ImplementationKind::Server,
            dialect: Dialect::default(),
            other_dialects: Vec::new(),
            ranks: 1,
            nodes: 1,
            is_free: false,
            server_setup: ServerSetup::default(),
            parameters: Vec::new(),
            each: None,
            dialect_words: Vec::new(),
            rows: Vec::new(),
            body: Vec::new(),
            comments: Vec::new(),
            source: Arc::default(),
        }
    }
}

impl Step {
    /// Returns the side that acts in the step if an implementation of the kind `tests` is under test.
    pub fn actor(&self, tests: ImplementationKind) -> Actor {
        match &self.action {
            StepAction::Process(
                ProcessAction::Exit(_)
                | ProcessAction::Kill(_)
                | ProcessAction::Wait(_)
                | ProcessAction::Pause
                | ProcessAction::PauseParent,
            ) => Actor::Harness,
            // A server provides the environment of its processes. For programs and libraries, the harness sets the environment.
            StepAction::Process(ProcessAction::Env(..)) if tests != ImplementationKind::Server => {
                Actor::Harness
            }
            _ => self.role.actor(tests),
        }
    }

    /// Returns the requirements that are cited by the outcomes of the step and by the step itself.
    pub fn citations(&self) -> impl Iterator<Item = &Spanned<String>> {
        let outcomes: &[Alternative] = match &self.action {
            StepAction::OneOf(outcomes) => outcomes,
            _ => &[],
        };
        outcomes.iter().map(|outcome| &outcome.cites).chain([&self.cites]).flatten()
    }

    pub(crate) fn citations_mut(&mut self) -> impl Iterator<Item = &mut Option<Spanned<String>>> {
        let outcomes: &mut [Alternative] = match &mut self.action {
            StepAction::OneOf(outcomes) => outcomes,
            _ => &mut [],
        };
        outcomes.iter_mut().map(|outcome| &mut outcome.cites).chain([&mut self.cites])
    }
}

impl StepAction {
    /// Returns the possible outcomes: the action itself, or each outcome of `<one of>`.
    pub fn outcomes(&self) -> impl Iterator<Item = &Self> {
        let (itself, alternatives): (_, &[Alternative]) = match self {
            Self::OneOf(all) => (None, all),
            other => (Some(other), &[]),
        };
        itself.into_iter().chain(alternatives.iter().map(|alternative| &alternative.action))
    }

    /// Returns the lines of a message.
    pub fn lines(&self) -> &[Template] {
        match self {
            Self::Message { lines, .. } | Self::Upstream(UpstreamAction::Response { lines, .. }) => lines,
            _ => &[],
        }
    }
}

impl Template {
    /// Creates a line of a message from its bytes.
    pub fn line(bytes: &[u8]) -> Self {
        let mut line = Self::default();
        // The line as it will be printed, with `?` in place of each escaped byte. An escaped byte never begins a comment or a step.
        let plain = |at: usize, byte: u8| {
            byte.is_ascii_graphic() && byte != b'<' || byte == b' ' && at > 0 && at + 1 < bytes.len()
        };
        let text: String = bytes
            .iter()
            .enumerate()
            .map(|(at, &byte)| if plain(at, byte) { char::from(byte) } else { '?' })
            .collect();
        // Quote a byte if the text would otherwise be parsed as a comment or as a separate step.
        let quote = match layout::split_step(&text) {
            _ if text.starts_with('#') => Some(0),
            Some(head)
                if head.role.of(&text) == "J" || expr::step_target(head.ranks.of(&text), 0).is_ok() =>
            {
                Some(head.role.start)
            }
            _ => None,
        };
        line.add(bytes, |at, _| Some(at) == quote);
        line.without_matchers()
    }

    /// Creates a value from its bytes, which may include spaces.
    pub fn value(bytes: &[u8]) -> Self {
        Self::default().bytes(bytes)
    }

    /// Appends bytes. Spaces among the bytes do not separate tuples.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.add(bytes, |_, byte| matches!(byte, b' ' | b'"' | b'#'));
        self.without_matchers()
    }

    /// Appends a piece.
    #[must_use]
    pub fn with(mut self, piece: Piece) -> Self {
        self.pieces.push(piece);
        self
    }

    /// Appends tuples to a message. In `text`, as in a file, spaces separate the tuples.
    #[must_use]
    pub fn tuples(mut self, text: &str) -> Self {
        self.add(text.as_bytes(), |_, _| false);
        self
    }

    /// Appends bytes. A byte is quoted if a file cannot contain it literally, or if `also` returns true for it.
    pub(super) fn add(&mut self, bytes: &[u8], also: impl Fn(usize, u8) -> bool) {
        for (at, &byte) in bytes.iter().enumerate() {
            // The parser ignores spaces at both ends of a line, so they are quoted.
            let edge = at + 1 == bytes.len() || (at == 0 && self.pieces.is_empty());
            let plain = byte.is_ascii_graphic() || (byte == b' ' && !edge);
            // A byte after a capture is quoted, because a letter would become part of the capture's type.
            let captured = at == 0 && matches!(self.pieces.last(), Some(Piece::Capture(..)));
            let quoted = !plain || matches!(byte, b'$' | b'<') || captured || also(at, byte);
            match self.pieces.last_mut() {
                Some(Piece::Literal { bytes: last, quoted: false }) if !quoted => last.push(byte),
                _ => self.pieces.push(Piece::Literal { bytes: vec![byte], quoted }),
            }
        }
    }

    /// Quotes the values in `rc=ok` and `rc=fail`, because unquoted `ok` and `fail` would be matchers.
    fn without_matchers(mut self) -> Self {
        let words: Vec<_> = split_message(&self.pieces)
            .into_iter()
            .filter(|tuple| tuple.key == "rc")
            .filter_map(|tuple| match slice(&self.pieces, tuple.value, tuple.end).as_slice() {
                [Piece::Literal { bytes, quoted: false }] if bytes == b"ok" || bytes == b"fail" => {
                    Some(tuple.value)
                }
                _ => None,
            })
            .collect();
        for (index, offset) in words.into_iter().rev() {
            let Some(Piece::Literal { bytes, .. }) = self.pieces.get(index).cloned() else { continue };
            let literal = |bytes: &[u8], quoted| Piece::Literal { bytes: bytes.to_vec(), quoted };
            let parts = [
                literal(&bytes[..offset], false),
                literal(&bytes[offset..=offset], true),
                literal(&bytes[offset + 1..], false),
            ];
            self.pieces.splice(index..=index, parts.into_iter().filter(|part| *part != literal(b"", false)));
        }
        self
    }
}
