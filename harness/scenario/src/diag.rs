//! Diagnostics: mistakes in files, with their positions and suggestions.

use std::{fmt, sync::Arc};

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use super::ast::{SourceFile, Span};

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiagnosticKind {
    /// The file cannot be played.
    Error,
    /// The file can be played, but probably contains a mistake.
    Warning,
}

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The severity.
    pub kind: DiagnosticKind,
    /// A description of the mistake, on one line.
    pub message: String,
    /// The position in the file.
    pub span: Span,
    /// The text next to the caret; may be empty.
    pub label: String,
    /// A suggestion for the author.
    pub help: Option<String>,
    /// The file that contains the mistake.
    pub source: Arc<SourceFile>,
}

impl Diagnostic {
    /// Returns whether the file cannot be played.
    pub fn is_error(&self) -> bool {
        self.kind == DiagnosticKind::Error
    }

    /// Formats the diagnostic with the line, a caret and the help, in color if `color` is true.
    pub fn render(&self, color: bool) -> String {
        let (start, end) = self.clamped();
        let level = match self.kind {
            DiagnosticKind::Error => Level::ERROR,
            DiagnosticKind::Warning => Level::WARNING,
        };
        let mut mark = AnnotationKind::Primary.span(start..end);
        if !self.label.is_empty() {
            mark = mark.label(self.label.as_str());
        }
        let snippet =
            Snippet::source(self.source.text.as_str()).path(self.source.path.as_str()).annotation(mark);
        let mut group = level.primary_title(self.message.as_str()).element(snippet);
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&[group])
    }

    /// Returns the span, clamped to the text and to character boundaries. The renderer slices the text at both ends of this span.
    fn clamped(&self) -> (usize, usize) {
        let text = &self.source.text;
        let floor = |mut at: usize| {
            at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let start = floor(self.span.start);
        (start, floor(self.span.end).max(start))
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.span.start;
        write!(f, "{}:{}:{}: ", self.source.path, self.source.line_of(at), self.source.column_of(at))?;
        if self.kind == DiagnosticKind::Warning {
            f.write_str("warning: ")?;
        }
        f.write_str(&self.message)
    }
}

/// The diagnostics that have been found in a file so far.
pub(super) struct DiagnosticSink {
    source: Arc<SourceFile>,
    list: Vec<Diagnostic>,
}

impl DiagnosticSink {
    pub(super) fn new(source: Arc<SourceFile>) -> Self {
        Self { source, list: Vec::new() }
    }

    pub(super) fn error(&mut self, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.push(DiagnosticKind::Error, span, message.into())
    }

    pub(super) fn warning(&mut self, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.push(DiagnosticKind::Warning, span, message.into())
    }

    fn push(&mut self, kind: DiagnosticKind, span: Span, message: String) -> &mut Diagnostic {
        let source = Arc::clone(&self.source);
        // A span that splits a character is extended to include the whole character.
        let start = source.text.floor_char_boundary(span.start);
        let span = Span { start, end: source.text.ceil_char_boundary(span.end).max(start) };
        self.list.push(Diagnostic { kind, message, span, label: String::new(), help: None, source });
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the diagnostics in the order of the file, without duplicates.
    pub(super) fn finish(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|d| (d.span.start, d.span.end));
        self.list.dedup_by(|a, b| a.span == b.span && a.message == b.message);
        self.list
    }
}

impl Diagnostic {
    pub(super) fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.label = label.into();
        self
    }

    pub(super) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }

    /// Suggests the most similar known word. If no known word is similar, lists all of them, unless there are too many.
    pub(super) fn suggest<S: AsRef<str>>(&mut self, word: &str, known: &[S]) -> &mut Self {
        if let Some(near) = suggest_name(word, known) {
            return self.label(format!("did you mean `{near}`?"));
        }
        if !known.is_empty() && known.len() <= 16 {
            let names: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
            self.help(format!("choose from: {}", names.join(", ")));
        }
        self
    }
}

/// Returns the known word that is closest to `word`, or `None` if no known word is similar enough.
pub(super) fn closest_word<'a, S: AsRef<str>>(word: &str, known: &'a [S]) -> Option<&'a str> {
    // Long input is not a typo, and computing the distance takes quadratic time.
    if word.is_empty() || word.len() > 80 {
        return None;
    }
    let allowed = (word.chars().count() / 3).max(1);
    let distance = |k: &str| strsim::damerau_levenshtein(&word.to_lowercase(), &k.to_lowercase());
    known
        .iter()
        .map(AsRef::as_ref)
        .map(|k| (distance(k), k))
        .filter(|(d, _)| *d <= allowed)
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// Returns the result of [`closest_word`], or else the shortest known word with a common prefix. This function is
/// suitable for names, because users abbreviate names. It is not suitable for commands, because a correct command may
/// share a prefix with a known one.
pub(super) fn suggest_name<'a, S: AsRef<str>>(word: &str, known: &'a [S]) -> Option<&'a str> {
    closest_word(word, known).or_else(|| {
        let alike = |k: &&str| k.len().min(word.len()) >= 3 && (k.starts_with(word) || word.starts_with(k));
        known.iter().map(AsRef::as_ref).filter(alike).min_by_key(|k| k.len())
    })
}
