//! Parses templates, and splits message lines into tuples.

use super::{
    ast::{Piece, Span, Template, ValueType},
    diag::DiagnosticSink,
    expr,
    layout::{skip_blanks, word_end},
    vocabulary,
};

/// A `key=value` tuple of a message line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateField {
    /// The key. It is empty for text that is not a tuple with a literal key, such as `endcmd` or `$x=1`. `value` then contains the whole
    /// text.
    pub key: String,
    /// The value.
    pub value: Template,
}

impl Template {
    /// Returns whether the template is empty.
    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(|piece| matches!(piece, Piece::Literal { bytes, .. } if bytes.is_empty()))
    }

    /// Returns the text, ignoring `<|>`. Returns `None` if the text is not literal or not valid UTF-8.
    pub fn literal(&self) -> Option<String> {
        let mut all = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal { bytes, .. } => all.extend_from_slice(bytes),
                Piece::Cut => {}
                _ => return None,
            }
        }
        String::from_utf8(all).ok()
    }

    /// Splits a line at its unquoted spaces. The values of the keys in `run_on` extend to the end of the line.
    pub fn fields(&self, run_on: &[&str]) -> Vec<TemplateField> {
        split(&self.pieces, run_on).iter().map(|tuple| self.field(tuple)).collect()
    }

    /// Splits a message line into tuples according to RFC 13's grammar. `msg=` extends to the end of the line, as does `value=` of put and
    /// get_result. A line of a spawn block is one tuple.
    pub fn message_fields(&self) -> Vec<TemplateField> {
        split_message(&self.pieces).iter().map(|tuple| self.field(tuple)).collect()
    }

    fn field(&self, tuple: &TemplateTuple) -> TemplateField {
        TemplateField {
            key: tuple.key.clone(),
            value: Template { pieces: slice(&self.pieces, tuple.value, tuple.end), span: self.span },
        }
    }
}

/// A piece with its position in the file.
#[derive(Debug, Clone)]
pub(super) struct Located {
    pub(super) piece: Piece,
    pub(super) span: Span,
}

/// A position in a template: the index of the piece, and the byte offset within an unquoted literal.
type PieceOffset = (usize, usize);

#[derive(Debug, Clone)]
pub(super) struct TemplateTuple {
    pub(super) key: String,
    pub(super) start: PieceOffset,
    pub(super) value: PieceOffset,
    pub(super) end: PieceOffset,
}

/// Splits a message into tuples in the same way as [`Template::message_fields`], and returns the positions of the tuples.
pub(super) fn split_message(pieces: &[Piece]) -> Vec<TemplateTuple> {
    let run_on = vocabulary::run_on_keys(None);
    let tuples = split(pieces, run_on);
    if let Some(first) = tuples.first()
        && vocabulary::is_spawn_key(&first.key)
    {
        return vec![TemplateTuple { end: (pieces.len(), 0), ..first.clone() }];
    }
    let cmd = tuples.iter().find(|tuple| tuple.key == "cmd").and_then(|tuple| {
        Template { pieces: slice(pieces, tuple.value, tuple.end), span: Span::default() }.literal()
    });
    match vocabulary::run_on_keys(cmd.as_deref()) {
        keys if keys == run_on => tuples,
        keys => split(pieces, keys),
    }
}

fn split(pieces: &[Piece], run_on: &[&str]) -> Vec<TemplateTuple> {
    let mut tuples = Vec::new();
    let mut token: Option<Token> = None;
    for (index, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Literal { bytes, quoted: false } => {
                for (offset, byte) in bytes.iter().enumerate() {
                    let here = (index, offset);
                    match (byte, &mut token) {
                        (b' ', None) => {}
                        (b' ', Some(open)) if open.extends_to_line_end => {}
                        (b' ', Some(_)) => tuples.extend(token.take().map(|open| open.close(here))),
                        (b'=', open) => {
                            let open = open.get_or_insert_with(|| Token::new(here));
                            if open.value.is_none() && !open.has_matchers {
                                open.value = Some((index, offset + 1));
                                open.extends_to_line_end =
                                    run_on.iter().any(|key| key.as_bytes() == open.key);
                            }
                        }
                        (byte, open) => open.get_or_insert_with(|| Token::new(here)).name(&[*byte]),
                    }
                }
            }
            Piece::Literal { bytes, quoted: true } => {
                token.get_or_insert_with(|| Token::new((index, 0))).name(bytes);
            }
            Piece::Cut => {}
            _ => {
                let open = token.get_or_insert_with(|| Token::new((index, 0)));
                open.has_matchers |= open.value.is_none();
            }
        }
    }
    tuples.extend(token.map(|open| open.close((pieces.len(), 0))));
    tuples
}

struct Token {
    start: PieceOffset,
    key: Vec<u8>,
    value: Option<PieceOffset>,
    has_matchers: bool,
    extends_to_line_end: bool,
}

impl Token {
    fn new(start: PieceOffset) -> Self {
        Self { start, key: Vec::new(), value: None, has_matchers: false, extends_to_line_end: false }
    }

    fn name(&mut self, bytes: &[u8]) {
        if self.value.is_none() {
            self.key.extend_from_slice(bytes);
        }
    }

    fn close(self, end: PieceOffset) -> TemplateTuple {
        match self.value {
            Some(value) => TemplateTuple {
                key: String::from_utf8_lossy(&self.key).into_owned(),
                start: self.start,
                value,
                end,
            },
            None => TemplateTuple { key: String::new(), start: self.start, value: self.start, end },
        }
    }
}

/// Returns the pieces between two positions.
pub(super) fn slice(pieces: &[Piece], from: PieceOffset, to: PieceOffset) -> Vec<Piece> {
    let mut part = Vec::new();
    for (index, piece) in pieces.iter().enumerate().skip(from.0) {
        let start = if index == from.0 { from.1 } else { 0 };
        match piece {
            _ if index > to.0 || (index == to.0 && to.1 == 0) => break,
            Piece::Literal { bytes, quoted } => {
                let end = if index == to.0 { to.1.min(bytes.len()) } else { bytes.len() };
                if start < end {
                    part.push(Piece::Literal { bytes: bytes[start..end].to_vec(), quoted: *quoted });
                }
            }
            other => part.push(other.clone()),
        }
    }
    part
}

/// Converts a position into a file offset.
pub(super) fn offset(pieces: &[Located], place: PieceOffset, end: usize) -> usize {
    pieces.get(place.0).map_or(end, |located| located.span.start + place.1)
}

/// Parses the template at `span` of `text`.
pub(super) fn read(text: &str, span: Span, diagnostics: &mut DiagnosticSink) -> Template {
    Template { pieces: scan(text, span, diagnostics).into_iter().map(|l| l.piece).collect(), span }
}

/// Parses a message line, in which `rc=ok` and `rc=fail` are matchers.
pub(super) fn read_message(text: &str, span: Span, diagnostics: &mut DiagnosticSink) -> Template {
    Template { pieces: scan_message(text, span, diagnostics).into_iter().map(|l| l.piece).collect(), span }
}

/// Parses a message line like [`read_message`], and returns the position of every piece.
pub(super) fn scan_message(text: &str, span: Span, diagnostics: &mut DiagnosticSink) -> Vec<Located> {
    let mut located = scan(text, span, diagnostics);
    let pieces: Vec<Piece> = located.iter().map(|l| l.piece.clone()).collect();
    for tuple in split_message(&pieces).iter().rev().filter(|tuple| tuple.key == "rc") {
        let kind = match slice(&pieces, tuple.value, tuple.end).as_slice() {
            [Piece::Literal { bytes, quoted: false }] if bytes == b"ok" => ValueType::RcOk,
            [Piece::Literal { bytes, quoted: false }] if bytes == b"fail" => ValueType::RcFail,
            _ => continue,
        };
        let (index, from) = tuple.value;
        // The value is a single unquoted literal, so it ends in the piece in which it begins.
        let Some(Located { piece: Piece::Literal { bytes, .. }, span }) = located.get(index).cloned() else {
            continue;
        };
        let to = if tuple.end.0 == index { tuple.end.1 } else { bytes.len() };
        let at = |offset: usize| span.start + offset;
        let mut parts = vec![Located {
            piece: Piece::Literal { bytes: bytes[..from].to_vec(), quoted: false },
            span: Span { start: span.start, end: at(from) },
        }];
        parts.push(Located { piece: Piece::Typed(kind), span: Span { start: at(from), end: at(to) } });
        if to < bytes.len() {
            parts.push(Located {
                piece: Piece::Literal { bytes: bytes[to..].to_vec(), quoted: false },
                span: Span { start: at(to), end: span.end },
            });
        }
        located.splice(index..=index, parts);
    }
    located
}

/// The types that may occur in `<...>` and after `$name:`.
const KINDS: &[&str] = &["uint", "int", "intlist", "word", "string", "mapping", "any"];
const FORMS: &[&str] = &[
    "sp", "tab", "|", "calc", "char", "fill", "junk", "uint", "int", "intlist", "word", "string", "mapping",
    "empty", "any", "absent",
];

fn kind(name: &str) -> Option<ValueType> {
    Some(match name {
        "uint" => ValueType::Uint(None, None),
        "int" => ValueType::Int,
        "intlist" => ValueType::IntList,
        "word" => ValueType::Word,
        "string" => ValueType::String,
        "mapping" => ValueType::Mapping,
        "any" => ValueType::Any,
        _ => return None,
    })
}

/// Parses the pieces of the template at `span` of `text`. Mistakes are added to `diagnostics` and skipped.
pub(super) fn scan(text: &str, span: Span, diagnostics: &mut DiagnosticSink) -> Vec<Located> {
    let mut scanner =
        Scanner { text: span.of(text), base: span.start, at: 0, pieces: Vec::new(), sink: diagnostics };
    while scanner.at < scanner.text.len() {
        scanner.piece();
    }
    scanner.pieces
}

struct Scanner<'a> {
    text: &'a str,
    base: usize,
    at: usize,
    pieces: Vec<Located>,
    sink: &'a mut DiagnosticSink,
}

impl Scanner<'_> {
    fn span(&self, start: usize, end: usize) -> Span {
        Span { start: self.base + start, end: self.base + end }
    }

    fn literal(&mut self, start: usize, bytes: &[u8], quoted: bool) {
        let end = self.base + self.at;
        if !quoted
            && let Some(Located { piece: Piece::Literal { bytes: last, quoted: false }, span }) =
                self.pieces.last_mut()
            // Join only adjacent literals. A gap, where a mistake was skipped, would shift the positions after it.
            && span.end == self.base + start
        {
            last.extend_from_slice(bytes);
            span.end = end;
            return;
        }
        self.push(start, Piece::Literal { bytes: bytes.to_vec(), quoted });
    }

    fn push(&mut self, start: usize, piece: Piece) {
        let span = self.span(start, self.at);
        self.pieces.push(Located { piece, span });
    }

    fn piece(&mut self) {
        let start = self.at;
        let rest = &self.text[start..];
        let Some(first) = rest.chars().next() else { return };
        match first {
            '$' if rest.starts_with("$$") => {
                self.at += 2;
                self.literal(start, b"$", true);
            }
            '<' if rest.starts_with("<<") => {
                self.at += 2;
                self.literal(start, b"<", true);
            }
            '$' => self.variable(),
            '<' => self.form(),
            c if c.is_control() => {
                self.at += c.len_utf8();
                let span = self.span(start, self.at);
                let help = match c {
                    '\t' => "write `<tab>`".to_owned(),
                    c => format!("write `<0x{:02x}>`", u32::from(c)),
                };
                self.sink.error(span, "an invisible character").help(help);
            }
            _ => {
                let end = rest.find(|c: char| c == '$' || c == '<' || c.is_control()).unwrap_or(rest.len());
                self.at += end;
                let bytes = rest.as_bytes()[..end].to_vec();
                self.literal(start, &bytes, false);
            }
        }
    }

    fn variable(&mut self) {
        let start = self.at;
        let mut at = start + 1;
        let braced = self.text[at..].starts_with('{');
        at += usize::from(braced);
        let end = self.name_end(at);
        let name = self.text[at..end].to_owned();
        self.at = end;
        if braced {
            if !self.text[end..].starts_with('}') {
                let span = self.span(start, end);
                self.sink.error(span, "`${` without a name and `}`").help("write `$$` for a dollar sign");
                return;
            }
            self.at += 1;
        }
        if name.is_empty() {
            self.at = self.at.max(start + 1);
            let span = self.span(start, self.at);
            self.sink.error(span, "`$` without a name").help("write `$$` for a dollar sign");
            return;
        }
        // `$host:4242` is a variable followed by text, but `$size:uint` has a type. Braces end the name explicitly.
        let after = &self.text[self.at..];
        if braced || !after.starts_with(':') || !after[1..].starts_with(|c: char| c.is_ascii_alphabetic()) {
            self.push(start, Piece::Var(name));
            return;
        }
        let from = self.at + 1;
        let to = self.name_end(from);
        let word = &self.text[from..to];
        self.at = to;
        match kind(word) {
            Some(kind) => self.push(start, Piece::Capture(name, kind)),
            None => {
                let span = self.span(from, to);
                let message = format!("unknown type `{word}`");
                let help = format!(
                    "write `${{{name}}}:{word}` if `:{word}` is literal text; the types are {}",
                    KINDS.join(", ")
                );
                self.sink.error(span, message).suggest(word, KINDS).help(help);
            }
        }
    }

    fn name_end(&self, at: usize) -> usize {
        let rest = &self.text[at..];
        if !rest.starts_with(expr::is_name_start) {
            return at;
        }
        at + rest.find(|c| !expr::is_name_char(c)).unwrap_or(rest.len())
    }

    fn form(&mut self) {
        let start = self.at;
        let Some(length) = self.text[start..].find('>') else {
            self.at = self.text.len();
            let span = self.span(start, start + 1);
            self.sink.error(span, "`<` without `>`").help("write `<<` for a literal `<`");
            return;
        };
        self.at = start + length + 1;
        let inner = start + 1;
        let body = &self.text[inner..start + length];
        let word = &body[..word_end(body, 0)];
        let rest = skip_blanks(body, word.len());
        let argument = body[rest..].trim_end_matches(' ');
        if let Some(hex) = word.strip_prefix("0x") {
            match (hex.len(), u8::from_str_radix(hex, 16), argument) {
                (2, Ok(byte), "") if hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
                    self.literal(start, &[byte], true);
                }
                _ => {
                    let span = self.span(start, self.at);
                    self.sink.error(span, "write a byte with two hexadecimal digits, such as `<0x0d>`");
                }
            }
            return;
        }
        if word == "uint" {
            if let Some(piece) = self.uint(inner + rest, argument) {
                self.push(start, piece);
            }
            return;
        }
        if matches!(word, "calc" | "char" | "fill" | "junk") {
            let Some(number) = self.expr(inner + rest, argument) else { return };
            self.push(
                start,
                match word {
                    "calc" => Piece::Calc(number),
                    "char" => Piece::Char(number),
                    "fill" => Piece::Fill(number),
                    _ => Piece::Junk(number),
                },
            );
            return;
        }
        let piece = match word {
            "|" => Some(Piece::Cut),
            "sp" => Some(Piece::Literal { bytes: b" ".to_vec(), quoted: true }),
            "tab" => Some(Piece::Literal { bytes: b"\t".to_vec(), quoted: true }),
            "empty" => Some(Piece::Typed(ValueType::Empty)),
            "absent" => Some(Piece::Typed(ValueType::Absent)),
            other => kind(other).map(Piece::Typed),
        };
        match piece {
            Some(piece) if argument.is_empty() => self.push(start, piece),
            Some(_) => {
                let span = self.span(inner + rest, inner + rest + argument.len());
                self.sink.error(span, format!("`<{word}>` takes no argument"));
            }
            None => {
                let span = self.span(start, self.at);
                let help = format!("write `<<` for a literal `<`; the forms are <{}>", FORMS.join("> <"));
                self.sink.error(span, format!("unknown form `<{word}>`")).suggest(word, FORMS).help(help);
            }
        }
    }

    fn uint(&mut self, at: usize, argument: &str) -> Option<Piece> {
        if argument.is_empty() {
            return Some(Piece::Typed(ValueType::Uint(None, None)));
        }
        let Some(dots) = argument.find("..") else {
            let span = self.span(at, at + argument.len());
            self.sink.error(span, "bounds are written `1..4`, `1..` or `..4`");
            return None;
        };
        let (low, high) = (&argument[..dots], &argument[dots + 2..]);
        let low_bound = if low.trim().is_empty() { None } else { Some(self.expr(at, low)?) };
        let high_bound = if high.trim().is_empty() { None } else { Some(self.expr(at + dots + 2, high)?) };
        Some(Piece::Typed(ValueType::Uint(low_bound, high_bound)))
    }

    fn expr(&mut self, at: usize, text: &str) -> Option<super::ast::Expr> {
        match expr::expr(text, self.base + at) {
            Ok(expr) => Some(expr),
            Err(wrong) => {
                let start = at + wrong.at;
                let span = self.span(start, (start + 1).min(at + text.len()).max(start));
                self.sink.error(span, wrong.message);
                None
            }
        }
    }
}
