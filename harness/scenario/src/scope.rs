//! The names that are bound while a scenario is played, and the expansion of its templates.

use std::collections::{HashMap, HashSet};

use pmi_wire::frame_header;

use crate::ast::{BinOp, Dialect, Encoding, Expr, Piece, Scenario, Template, ValueType, WriteMode};

/// The name whose value is the number of the first argument in a spawn request: 0, as in RFC 13, unless the server accepts only 1.
pub const FIRST_ARGUMENT: &str = "first_argument";

/// The name whose value is the PMI_JOBID of the step's process, or `job` if the process manager did not set PMI_JOBID.
pub(crate) const JOB_ID: &str = "pmijobid";

/// Maximum length of an expanded template, in bytes.
const MAX_TEXT: i64 = 64 << 20;

/// An error in the expansion of a template or the evaluation of an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// A mistake that can be detected only while the scenario is played.
    #[error("{0}")]
    Mistake(String),
    /// An unusable value from the implementation, such as a limit that leaves no room for a key.
    #[error("{0}")]
    Unusable(String),
}

#[derive(Debug, Clone)]
enum BoundValue {
    Text(Vec<u8>),
    /// The value of `$agent` in the step that uses it.
    Agent,
}

/// Names with their values. A name without a value is unbound.
#[derive(Debug)]
pub struct Bindings(Vec<(String, Option<BoundValue>)>);

/// The names that are bound at a point in a scenario, with their values.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    names: HashMap<String, BoundValue>,
    /// Names that the current step has bound. If several ranks capture the same name, their values must be equal.
    bound_by_step: HashSet<String>,
    /// Names whose values come from the implementation.
    captured: HashSet<String>,
    dialect: Dialect,
    rank: u32,
    size: u32,
    job_id: Option<Vec<u8>>,
    agent: Option<Vec<u8>>,
}

impl Scope {
    /// Creates the scope of a scenario before its first step.
    pub fn of(scenario: &Scenario) -> Self {
        Self { dialect: scenario.dialect, ..Self::default() }
    }

    /// Begins a step: forgets which names the previous step bound.
    pub fn begin_step(&mut self) {
        self.bound_by_step.clear();
    }

    /// Sets the process to which the step applies.
    pub fn enter(&mut self, rank: u32, size: u32) {
        (self.rank, self.size) = (rank, size);
    }

    /// Sets `$pmijobid` for the process of the step.
    pub fn set_job_id(&mut self, id: Option<&[u8]>) {
        if self.job_id.as_deref() != id {
            self.job_id = id.map(<[u8]>::to_vec);
        }
    }

    /// Binds `$agent` to this path.
    pub fn set_agent(&mut self, path: Vec<u8>) {
        self.agent = Some(path);
    }

    /// Binds a name to a value.
    pub fn set(&mut self, name: &str, value: Vec<u8>) {
        self.names.insert(name.to_owned(), BoundValue::Text(value));
    }

    /// Returns whether a template contains `$agent`.
    pub fn names_agent(&self, template: &Template) -> bool {
        template.pieces.iter().any(|piece| match piece {
            Piece::Var(name) => name == "agent" || matches!(self.names.get(name), Some(BoundValue::Agent)),
            _ => false,
        })
    }

    /// Binds names temporarily, and returns their previous values for [`Scope::restore`]. `$agent` depends on the process of a step, so it
    /// is not expanded.
    ///
    /// # Errors
    ///
    /// Returns an error if one of the templates contains a name that has no value in the current step.
    pub fn bind_temporarily(&mut self, values: &[(&str, &Template)]) -> Result<Bindings, ScenarioError> {
        let value = |(name, template): &(&str, &Template)| {
            let value = match template.pieces.as_slice() {
                [Piece::Var(agent)] if agent == "agent" => BoundValue::Agent,
                _ => BoundValue::Text(self.text(template)?),
            };
            Ok(((*name).to_owned(), Some(value)))
        };
        let bindings = values.iter().map(value).collect::<Result<Vec<_>, _>>()?;
        Ok(self.restore(Bindings(bindings)))
    }

    /// Restores the bindings that [`Scope::bind_temporarily`] returned, and returns the bindings that they replace.
    pub fn restore(&mut self, bindings: Bindings) -> Bindings {
        let mut before = Vec::new();
        for (name, value) in bindings.0 {
            let old = match value {
                Some(value) => self.names.insert(name.clone(), value),
                None => self.names.remove(&name),
            };
            before.push((name, old));
        }
        Bindings(before)
    }

    /// Returns the value of a name that the current step has bound, or `None` for any other name.
    pub fn bound_by_step(&self, name: &str) -> Option<&[u8]> {
        match self.names.get(name).filter(|_| self.bound_by_step.contains(name))? {
            BoundValue::Text(text) => Some(text),
            BoundValue::Agent => None,
        }
    }

    /// Binds the captures of a step.
    pub fn bind(&mut self, captures: impl IntoIterator<Item = (String, Vec<u8>)>) {
        for (name, value) in captures {
            self.bound_by_step.insert(name.clone());
            self.captured.insert(name.clone());
            self.names.insert(name, BoundValue::Text(value));
        }
    }

    /// Returns the value of a name.
    ///
    /// # Errors
    ///
    /// Returns an error if the name has no value in the current step.
    pub fn var(&self, name: &str) -> Result<Vec<u8>, ScenarioError> {
        match name {
            "rank" => Ok(self.rank.to_string().into_bytes()),
            "size" => Ok(self.size.to_string().into_bytes()),
            "agent" => self.agent(),
            JOB_ID => Ok(self.job_id.clone().unwrap_or_else(|| b"job".to_vec())),
            _ => match self.names.get(name) {
                Some(BoundValue::Text(text)) => Ok(text.clone()),
                Some(BoundValue::Agent) => self.agent(),
                None if name == FIRST_ARGUMENT => Ok(b"0".to_vec()),
                None => Err(ScenarioError::Mistake(format!("${name} has no value here"))),
            },
        }
    }

    fn agent(&self) -> Result<Vec<u8>, ScenarioError> {
        self.agent
            .clone()
            .ok_or_else(|| ScenarioError::Mistake("$agent can only be used in spawn blocks".into()))
    }

    /// Evaluates an expression.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is unbound or not a number, or if a result is out of range.
    pub fn number(&self, expr: &Expr) -> Result<i64, ScenarioError> {
        match expr {
            Expr::Number(n) => Ok(*n),
            Expr::Var(name) => {
                let value = self.var(&name.value)?;
                std::str::from_utf8(&value).ok().and_then(|v| v.parse().ok()).ok_or_else(|| {
                    let what = format!("${} is \"{}\", not a number", name.value, value.escape_ascii());
                    self.calculation_error(expr, what)
                })
            }
            Expr::Binary(a, op, b) => {
                let (a, b) = (self.number(a)?, self.number(b)?);
                match op {
                    BinOp::Add => a.checked_add(b),
                    BinOp::Sub => a.checked_sub(b),
                    BinOp::Mul => a.checked_mul(b),
                    BinOp::Rem => a.checked_rem_euclid(b),
                }
                .ok_or_else(|| {
                    self.calculation_error(expr, "the result is too large, or the divisor is 0".into())
                })
            }
        }
    }

    fn length(&self, expr: &Expr) -> Result<usize, ScenarioError> {
        match self.number(expr)? {
            n @ 0..=MAX_TEXT => Ok(n as usize),
            n => Err(self.calculation_error(
                expr,
                format!("the length is {n} bytes; at most {MAX_TEXT} bytes are allowed"),
            )),
        }
    }

    fn visible_char(&self, expr: &Expr) -> Result<u8, ScenarioError> {
        let code = self.number(expr)?;
        u8::try_from(code).ok().filter(u8::is_ascii_graphic).ok_or_else(|| {
            self.calculation_error(
                expr,
                format!("{code} is not the code of a visible ASCII character (33 to 126)"),
            )
        })
    }

    /// Attributes a failed calculation to the implementation if the calculation involves a captured value, and otherwise to the scenario.
    fn calculation_error(&self, expr: &Expr, what: String) -> ScenarioError {
        fn names<'a>(expr: &'a Expr, found: &mut Vec<&'a str>) {
            match expr {
                Expr::Number(_) => {}
                Expr::Var(name) => found.push(&name.value),
                Expr::Binary(a, _, b) => {
                    names(a, found);
                    names(b, found);
                }
            }
        }
        let mut used = Vec::new();
        names(expr, &mut used);
        let captured = |name: &&str| {
            let value = self.var(name).ok().filter(|_| self.captured.contains(*name))?;
            Some(format!("{name}={}", value.escape_ascii()))
        };
        let captured: Vec<String> = used.iter().filter_map(captured).collect();
        if captured.is_empty() {
            ScenarioError::Mistake(what)
        } else {
            ScenarioError::Unusable(format!("{what} ({})", captured.join(", ")))
        }
    }

    /// Expands a template into writes, split at each `<|>`.
    pub fn writes(&self, template: &Template) -> Result<Vec<Vec<u8>>, ScenarioError> {
        let mut writes = vec![Vec::new()];
        for piece in &template.pieces {
            let Some(last) = writes.last_mut() else { break };
            match piece {
                Piece::Literal { bytes, .. } => last.extend_from_slice(bytes),
                Piece::Var(name) => last.extend(self.var(name)?),
                Piece::Calc(expr) => last.extend(self.number(expr)?.to_string().into_bytes()),
                Piece::Char(expr) => last.push(self.visible_char(expr)?),
                Piece::Fill(expr) => fill(self.length(expr)?, last),
                Piece::Junk(expr) => junk(self.length(expr)?, last),
                Piece::Cut => writes.push(Vec::new()),
                Piece::Typed(ValueType::Empty) => {}
                Piece::Typed(ValueType::RcOk) => last.push(b'0'),
                Piece::Typed(ValueType::RcFail) => last.extend_from_slice(b"-1"),
                Piece::Typed(_) | Piece::Capture(..) => {
                    return Err(ScenarioError::Mistake("a matcher cannot be sent".into()));
                }
            }
        }
        Ok(writes)
    }

    /// Expands the lines of a message into writes. Empty writes are dropped.
    pub fn message(&self, mode: WriteMode, lines: &[Template]) -> Result<Vec<Vec<u8>>, ScenarioError> {
        let mut writes = vec![Vec::new()];
        for (i, line) in lines.iter().enumerate() {
            let mut parts = match self.encoding(mode, line) {
                Encoding::Dialect => framed(self.tuples(line)?)?,
                Encoding::Body => framed(self.writes(line)?)?,
                Encoding::Bytes => self.writes(line)?,
                Encoding::Line => {
                    let mut parts = self.writes(line)?;
                    parts.iter_mut().last().into_iter().for_each(|last| last.push(b'\n'));
                    parts
                }
            };
            if mode.partial && i + 1 == lines.len() {
                parts.last_mut().and_then(Vec::pop);
            }
            let mut parts = parts.into_iter();
            if let (Some(last), Some(part)) = (writes.last_mut(), parts.next()) {
                last.extend(part);
            }
            writes.extend(parts);
        }
        if mode.bytewise {
            return Ok(writes.concat().chunks(1).map(<[u8]>::to_vec).collect());
        }
        writes.retain(|write| !write.is_empty());
        Ok(writes)
    }

    /// Returns the encoding of a message. Never returns [`Encoding::Dialect`] for a message that is a line in every dialect.
    fn encoding(&self, mode: WriteMode, line: &Template) -> Encoding {
        let is_line = || {
            let fields = line.message_fields();
            let cmd =
                fields.first().filter(|field| field.key == "cmd").and_then(|field| field.value.literal());
            cmd.is_some_and(|cmd| LINE_COMMANDS.contains(&cmd.as_str()))
        };
        match mode.encoding {
            Encoding::Dialect if !self.dialect.switches_framing() || is_line() => Encoding::Line,
            encoding => encoding,
        }
    }

    /// Expands the tuples of a PMI-2 message into writes, split at each `<|>`. Unquoted spaces end a tuple, and semicolons within a tuple
    /// are doubled.
    fn tuples(&self, line: &Template) -> Result<Vec<Vec<u8>>, ScenarioError> {
        let (mut writes, mut between) = (vec![Vec::new()], false);
        for piece in &line.pieces {
            if *piece == Piece::Cut {
                writes.push(Vec::new());
                continue;
            }
            let unquoted = matches!(piece, Piece::Literal { quoted: false, .. });
            let text = self.writes(&Template { pieces: vec![piece.clone()], span: line.span })?.concat();
            for byte in text {
                let Some(last) = writes.last_mut() else { break };
                if unquoted && byte == b' ' {
                    between = true;
                    continue;
                }
                if std::mem::take(&mut between) {
                    last.push(b';');
                }
                last.push(byte);
                if byte == b';' {
                    last.push(b';');
                }
            }
        }
        writes.iter_mut().last().into_iter().for_each(|last| last.push(b';'));
        Ok(writes)
    }

    /// Expands a template into bytes.
    pub fn text(&self, template: &Template) -> Result<Vec<u8>, ScenarioError> {
        self.writes(template).map(|writes| writes.concat())
    }
}

/// The commands of the init exchange, whose messages are lines in every dialect.
const LINE_COMMANDS: &[&str] = &["init", "response_to_init", "init_oob"];

/// Adds the header of a frame to its first write.
fn framed(mut writes: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ScenarioError> {
    let length = writes.iter().map(Vec::len).sum();
    let header = frame_header(length).ok_or_else(|| {
        ScenarioError::Mistake(format!(
            "a frame of {length} bytes is too long: its length has more than six digits"
        ))
    })?;
    if let Some(first) = writes.first_mut() {
        first.splice(0..0, header);
    }
    Ok(writes)
}

/// Appends the text of `<fill N>`.
pub fn fill(n: usize, out: &mut Vec<u8>) {
    const PATTERN: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    out.extend(PATTERN.iter().cycle().take(n));
}

/// Appends the text of `<junk N>`: a linear congruential sequence, which is reproducible and contains all byte values except LF.
fn junk(n: usize, out: &mut Vec<u8>) {
    let mut state: u32 = 0x1234_5678;
    for _ in 0..n {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let byte = (state >> 24) as u8;
        out.push(if byte == b'\n' { 0 } else { byte });
    }
}
