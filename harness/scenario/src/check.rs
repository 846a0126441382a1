//! Checks parsed scenarios for mistakes, such as unbound names, unknown requirements, matchers in sent messages, and negative tests without
//! a positive control.

use std::{mem, sync::Arc};

use pmi_wire::{Proc, protocol};

use super::{
    ast::*,
    diag::{Diagnostic, DiagnosticSink, closest_word, suggest_name},
    expr, layout,
    scope::{FIRST_ARGUMENT, JOB_ID},
    signature,
    template::{self, Located},
    vocabulary::{self, Behaviours},
};

/// The definitions to which a scenario may refer.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// A function that returns the fragment with the given name.
    pub fragments: &'a dyn Fn(&str) -> Option<Arc<Scenario>>,
    /// A function that returns whether a requirement with the given id exists.
    pub requirement_ids: &'a dyn Fn(&str) -> bool,
    /// The names of all fragments, for suggestions.
    pub fragment_names: &'a [String],
    /// The ids of all requirements, for suggestions.
    pub requirement_names: &'a [String],
    /// The behaviours of the reference server that scenarios may select.
    pub behaviours: &'a Behaviours,
}

/// Forms that replace a message, without their angle brackets.
const FORMS: &[&str] = &["close", "closes", "empty", "silence", "nothing", "right", "one of"];

/// Maximum length of `<fill>` and `<junk>`, in bytes. Without this limit, a typo could exhaust memory.
const MAX_FILL: i64 = 64 << 20;
/// Maximum count of a `repeat`.
const MAX_REPEAT: i64 = 1_000_000;
/// Maximum depth to which fragments may use other fragments.
const MAX_USE_DEPTH: usize = 16;
/// Maximum number of statements after all fragments are expanded.
const MAX_STATEMENTS: u32 = 100_000;
/// The assumed number of repetitions or ranks if the number is known only when the scenario is played.
const UNKNOWN_COUNT: u32 = 1_000;

const PREDEFINED_NAMES: &[&str] = &["rank", "size", "agent", FIRST_ARGUMENT, JOB_ID];

/// Returns the names that are bound before the first step in addition to [`PREDEFINED_NAMES`]. If a client is under test, the only such
/// name is `kvs`, whose value is the name of the keyval space. Otherwise, returns no names.
fn predefined_names(scenario: &Scenario) -> Vec<String> {
    if scenario.tests == ImplementationKind::Client { vec!["kvs".to_owned()] } else { Vec::new() }
}

/// Checks a scenario, and returns the diagnostics in the order of the file.
///
/// A fragment is checked once on its own, and again in every file that uses it. The second check covers the aspects that depend on that
/// file: bound names and the number of ranks.
pub fn check(scenario: &Scenario, env: &Env<'_>) -> Vec<Diagnostic> {
    let mut checker = Checker {
        env,
        scenario,
        sink: DiagnosticSink::new(Arc::clone(&scenario.source)),
        source: Arc::clone(&scenario.source),
        bound_names: predefined_names(scenario),
        groups: 0,
        fragments: Vec::new(),
        depth: 0,
        in_fragment: Vec::new(),
        budget: MAX_STATEMENTS,
        positive: false,
        negative: None,
        uses: [None; 2],
        unused: Vec::new(),
        times: 1,
        pending_first_use: None,
        outs: Vec::new(),
    };
    checker.file();
    checker.sink.finish()
}

struct Checker<'a> {
    env: &'a Env<'a>,
    scenario: &'a Scenario,
    sink: DiagnosticSink,
    /// The file that contains the current statement: that of the scenario or of a fragment.
    source: Arc<SourceFile>,
    bound_names: Vec<String>,
    /// The number of process groups that may have been spawned before the current statement.
    groups: u32,
    /// The fragments that contain the current statement.
    fragments: Vec<String>,
    depth: usize,
    /// Mistakes in fragments that this file uses. They are reported at the outermost `use`.
    in_fragment: Vec<String>,
    budget: u32,
    positive: bool,
    negative: Option<Span>,
    /// The positions of the first uses of spawn and of the name service.
    uses: [Option<Span>; 2],
    /// Captures that no statement has used so far, with their positions. Only captures from a single process are stored, because captures
    /// from several processes are compared with each other.
    unused: Vec<(String, Span)>,
    /// The number of times that the current step is played, counting all ranks and repetitions.
    times: u32,
    /// The optional operation that the pending request uses for the first time, as an index into `uses`.
    pending_first_use: Option<usize>,
    /// The callers and the output arguments of calls that have not returned yet.
    outs: Vec<(StepTarget, String)>,
}

/// The context in which a name is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UseSite {
    Step,
    /// A context without a rank: `let`, `repeat`, `J:`.
    NoRank,
}

/// Returns whether the alternatives accept any message, silence and the end of the connection.
fn accepts_every_outcome(alternatives: &[Alternative]) -> bool {
    let any = |action: &StepAction| match action {
        StepAction::Message { lines, .. } => matches!(
            lines.as_slice(),
            [Template { pieces, .. }]
                if matches!(&pieces[..], [Piece::Literal { bytes, .. }, Piece::Typed(ValueType::Any)] if bytes == b"cmd=")
        ),
        _ => false,
    };
    let passes = |is: &dyn Fn(&StepAction) -> bool| {
        alternatives.iter().any(|a| a.grade == Grade::Pass && is(&a.action))
    };
    passes(&any)
        && passes(&|action| matches!(action, StepAction::Close))
        && passes(&|action| matches!(action, StepAction::Silence))
}

impl Checker<'_> {
    fn file(&mut self) {
        let scenario = self.scenario;
        let start =
            Span { start: 0, end: scenario.source.text.find('\n').unwrap_or(scenario.source.text.len()) };
        if scenario.summary().is_empty() {
            self.sink
                .error(start, "the file does not state what must hold")
                .help("begin the file with a comment of at least one sentence");
        }
        if scenario.is_fragment() {
            let name =
                scenario.name.rsplit_once("fragments/").map_or(scenario.name.as_str(), |(_, name)| name);
            self.fragments.push(name.to_owned());
        } else if scenario.requires.is_empty() {
            self.sink
                .error(start, "the scenario does not name the requirement that it tests")
                .help("add a line `requires ID ...` before the steps");
        }
        for (index, id) in scenario.requires.iter().enumerate() {
            self.requirement(id);
            if scenario.requires[..index].iter().any(|earlier| earlier.value == id.value) {
                self.sink.warning(id.span, format!("`{}` is named twice", id.value));
            }
        }
        if scenario.nodes > scenario.ranks {
            let message = format!("`nodes` ({}) exceeds `ranks` ({})", scenario.nodes, scenario.ranks);
            self.sink.error(start, message);
        }
        super::client::check(scenario, self.env.behaviours, &mut self.sink);
        let misplaced = match scenario.is_fragment() {
            true => scenario
                .rows
                .first()
                .filter(|_| scenario.body.iter().any(|statement| !matches!(statement, Statement::Let { .. })))
                .map(|row| (row.name.span, "a fragment with steps cannot have rows")),
            false => scenario.parameters.first().map(|first| (first.name.span, "`takes` outside a fragment")),
        };
        if let Some((span, message)) = misplaced {
            self.sink.error(span, message);
        }
        for default in scenario.parameters.iter().filter_map(|parameter| parameter.default.as_ref()) {
            self.text(default, UseSite::NoRank, "an argument cannot contain a matcher or `<|>`");
        }
        self.add_parameters(&scenario.parameters);
        self.rows();
        self.body(&scenario.body, 1);
        if let Some(span) = self.negative
            && !self.positive
            && !scenario.is_fragment()
        {
            self.sink
                .error(span, "no positive control")
                .label("an implementation that refuses everything would pass")
                .help("also expect `rc=ok` for a similar request, or `use` a fragment that does");
        }
        for (name, span) in mem::take(&mut self.unused) {
            self.sink.warning(span, format!("`${name}` is never compared or sent")).help(
                "use the name in a later step, or write a matcher such as `<any>` instead of the capture",
            );
        }
        let needs =
            [(Capability::Spawn, "spawn", "spawns"), (Capability::Names, "names", "uses the name service")];
        for ((need, word, what), span) in needs.into_iter().zip(self.uses) {
            if let Some(span) = span
                && !scenario.is_fragment()
                && scenario.tests != ImplementationKind::Client
                && !scenario.needs.iter().any(|n| n.value == need)
            {
                self.sink
                    .warning(span, format!("the scenario {what} without `needs {word}`"))
                    .help("add this line to the head; otherwise, implementations without this optional operation would fail");
            }
        }
    }

    fn is_in_own_file(&self) -> bool {
        self.depth == 0
    }

    fn requirement(&mut self, id: &Spanned<String>) {
        if self.is_in_own_file() && !(self.env.requirement_ids)(&id.value) {
            self.sink
                .error(id.span, format!("unknown requirement `{}`", id.value))
                .suggest(&id.value, self.env.requirement_names);
        }
    }

    // ---- statements

    fn body(&mut self, body: &[Statement], times: u32) {
        for statement in body {
            let Some(left) = self.budget.checked_sub(1) else { return };
            self.budget = left;
            if left == 0 {
                let span = Span { start: 0, end: 0 };
                self.sink.error(
                    span,
                    format!("more than {MAX_STATEMENTS} statements after all fragments are expanded"),
                );
            }
            match statement {
                Statement::Use { name, with } => self.use_(name, with, times),
                Statement::Let { name, value } => {
                    self.text(value, UseSite::NoRank, "a `let` value cannot contain a matcher or `<|>`");
                    self.bind(&name.value, name.span);
                }
                Statement::Repeat { count, var, body, span, .. } => {
                    self.repeat(count, var.as_ref(), body, *span, times)
                }
                Statement::Only { body, .. } => self.body(body, times),
                Statement::Step(step) => self.step(step, times),
            }
        }
    }

    fn use_(&mut self, name: &Spanned<String>, with: &[(Spanned<String>, Template)], times: u32) {
        for (_, value) in with {
            self.text(value, UseSite::NoRank, "an argument cannot contain a matcher or `<|>`");
        }
        if self.fragments.contains(&name.value) {
            self.report_at_use(name.span, format!("fragment `{}` uses itself", name.value));
            return;
        }
        let Some(fragment) = (self.env.fragments)(&name.value) else {
            if self.is_in_own_file() {
                self.sink
                    .error(name.span, format!("unknown fragment `{}`", name.value))
                    .suggest(&name.value, self.env.fragment_names);
            }
            return;
        };
        if fragment.dialect != self.scenario.dialect {
            let (its, ours) = (fragment.dialect, self.scenario.dialect);
            self.report_at_use(
                name.span,
                format!("fragment `{}` is for dialect {its}, not {ours}", name.value),
            );
        }
        if self.depth == MAX_USE_DEPTH {
            self.in_fragment.push(format!("fragments are nested more than {MAX_USE_DEPTH} levels deep"));
            return;
        }
        if self.is_in_own_file() {
            self.parameters(name, with, &fragment.parameters);
        }
        let before = self.bound_names.clone();
        self.add_parameters(&fragment.parameters);
        self.fragments.push(name.value.clone());
        self.depth += 1;
        let source = mem::replace(&mut self.source, Arc::clone(&fragment.source));
        self.body(&fragment.body, times);
        self.source = source;
        self.depth -= 1;
        self.fragments.pop();
        let is_parameter =
            |bound: &String| fragment.parameters.iter().any(|parameter| parameter.name.value == *bound);
        self.bound_names.retain(|bound| before.contains(bound) || !is_parameter(bound));
        if self.is_in_own_file() {
            for message in mem::take(&mut self.in_fragment) {
                let diagnostic = self.sink.error(name.span, format!("fragment `{}`: {message}", name.value));
                diagnostic.label("used here");
            }
        }
    }

    fn add_parameters(&mut self, takes: &[Parameter]) {
        for parameter in takes {
            self.bind(&parameter.name.value, parameter.name.span);
        }
    }

    /// Checks the arguments that a `use` passes to a fragment.
    fn parameters(
        &mut self,
        name: &Spanned<String>,
        with: &[(Spanned<String>, Template)],
        takes: &[Parameter],
    ) {
        let known: Vec<&str> = takes.iter().map(|parameter| parameter.name.value.as_str()).collect();
        for (index, (argument, _)) in with.iter().enumerate() {
            if !known.contains(&argument.value.as_str()) {
                let message = format!("fragment `{}` has no parameter `{}`", name.value, argument.value);
                self.sink.error(argument.span, message).suggest(&argument.value, &known);
            }
            if with[..index].iter().any(|(earlier, _)| earlier.value == argument.value) {
                self.sink.error(argument.span, format!("`{}` is given twice", argument.value));
            }
        }
        for parameter in takes.iter().filter(|parameter| parameter.default.is_none()) {
            if !with.iter().any(|(argument, _)| argument.value == parameter.name.value) {
                let message =
                    format!("fragment `{}` requires the parameter `{}`", name.value, parameter.name.value);
                self.sink.error(name.span, message);
            }
        }
    }

    /// Checks that the rows of a table have unique names and bind the same names.
    fn rows(&mut self) {
        let rows = &self.scenario.rows;
        let names =
            |row: &TableRow| row.values.iter().map(|(name, _)| name.value.clone()).collect::<Vec<_>>();
        for (index, row) in rows.iter().enumerate() {
            if rows[..index].iter().any(|earlier| earlier.name.value == row.name.value) {
                self.sink.error(row.name.span, format!("duplicate row `{}`", row.name.value));
            }
            if names(row) != names(&rows[0]) {
                self.sink
                    .error(
                        row.name.span,
                        format!("row `{}` and the first row bind different names", row.name.value),
                    )
                    .help("all rows must bind the same names in the same order");
            }
            let before = self.bound_names.len();
            for (name, value) in &row.values {
                self.text(value, UseSite::NoRank, "a value in a row cannot contain a matcher or `<|>`");
                self.bound_names.push(name.value.clone());
            }
            self.bound_names.truncate(before);
        }
        for (name, _) in rows.first().map(|row| row.values.as_slice()).unwrap_or_default() {
            self.bind(&name.value, name.span);
        }
    }

    /// Reports a mistake. A mistake in a fragment is reported at the `use` of the fragment.
    fn report_at_use(&mut self, span: Span, message: String) {
        if self.is_in_own_file() {
            self.sink.error(span, message);
        } else if !self.in_fragment.contains(&message) {
            self.in_fragment.push(message);
        }
    }

    fn repeat(
        &mut self,
        count: &Expr,
        var: Option<&Spanned<String>>,
        body: &[Statement],
        span: Span,
        times: u32,
    ) {
        self.expr(count, UseSite::NoRank);
        let constant = expr::constant(count);
        if self.is_in_own_file()
            && let Some(n) = constant
            && !(1..=MAX_REPEAT).contains(&n)
        {
            self.sink.error(span, format!("cannot repeat {n} times; the range is 1 to {MAX_REPEAT}"));
        }
        let shadowed = var.is_some_and(|var| self.bound_names.contains(&var.value));
        if let Some(var) = var {
            if shadowed && self.is_in_own_file() {
                self.sink
                    .error(var.span, format!("`${}` is already bound", var.value))
                    .help("choose a different name for the counter");
            }
            self.bind(&var.value, var.span);
        }
        let n = constant.and_then(|n| u32::try_from(n).ok()).unwrap_or(UNKNOWN_COUNT);
        self.body(body, times.saturating_mul(n));
        if let Some(var) = var
            && !shadowed
        {
            self.bound_names.retain(|name| *name != var.value);
        }
    }

    // ---- names

    fn bind(&mut self, name: &str, span: Span) {
        if PREDEFINED_NAMES.contains(&name) {
            if self.is_in_own_file() {
                self.sink
                    .error(span, format!("`${name}` is bound by the runner"))
                    .help("choose a different name");
            }
        } else if !self.bound_names.iter().any(|bound| bound == name) {
            self.bound_names.push(name.to_owned());
        }
    }

    fn check_use(&mut self, name: &str, span: Span, place: UseSite) {
        self.unused.retain(|(unused, _)| unused != name);
        if name == "rank" && place == UseSite::NoRank {
            if self.is_in_own_file() {
                self.sink
                    .error(span, "`$rank` is used in a step without a rank")
                    .help("`$rank` has a value only in a step with ranks");
            }
            return;
        }
        if PREDEFINED_NAMES.contains(&name) || self.bound_names.iter().any(|bound| bound == name) {
            return;
        }
        if !self.is_in_own_file() {
            self.report_at_use(span, format!("`${name}` is not bound"));
        } else if !self.scenario.is_fragment() {
            let known: Vec<&str> =
                PREDEFINED_NAMES.iter().copied().chain(self.bound_names.iter().map(String::as_str)).collect();
            let near = suggest_name(name, &known).map(|near| format!("did you mean `${near}`?"));
            let diagnostic = self.sink.error(span, format!("`${name}` is not bound"));
            match near {
                Some(near) => diagnostic.label(near),
                None => diagnostic
                    .help("`let`, `repeat ... as`, a capture such as `$x:word` or a fragment binds a name"),
            };
        }
    }

    fn expr(&mut self, expr: &Expr, place: UseSite) {
        match expr {
            Expr::Number(_) => {}
            Expr::Var(name) => self.check_use(&name.value, name.span, place),
            Expr::Binary(left, _, right) => {
                self.expr(left, place);
                self.expr(right, place);
            }
        }
    }

    /// Returns the pieces of a parsed template with their positions.
    fn located(&self, template: &Template, message: bool) -> Vec<Located> {
        let mut ignored = DiagnosticSink::new(Arc::clone(&self.source));
        let scan = if message { template::scan_message } else { template::scan };
        let located = scan(&self.source.text, template.span, &mut ignored);
        if located.iter().map(|l| &l.piece).eq(&template.pieces) {
            return located;
        }
        // Otherwise, the line names an operation, and the template is the message of that operation. Its pieces have no positions in the
        // file.
        template.pieces.iter().map(|piece| Located { piece: piece.clone(), span: template.span }).collect()
    }

    /// Checks a template that the harness expands. `otherwise` is the error message for a template that contains a matcher.
    fn text(&mut self, template: &Template, place: UseSite, otherwise: &str) {
        for Located { piece, span } in self.located(template, false) {
            self.names(&piece, span, place);
            if self.is_in_own_file() && matches!(piece, Piece::Capture(..) | Piece::Typed(_) | Piece::Cut) {
                self.sink.error(span, otherwise);
            }
        }
    }

    /// Checks a template that the harness compares with a message or a value.
    fn pattern(&mut self, pieces: &[Located], place: UseSite) {
        for Located { piece, span } in pieces {
            self.names(piece, *span, place);
            if !self.is_in_own_file() {
                continue;
            }
            match piece {
                Piece::Capture(name, _) if !self.scenario.is_fragment() && self.times == 1 => {
                    // The name of the keyval space may remain unused: only the requests of some dialects contain it.
                    let is_implied = matches!(name.as_str(), "kvs" | "child_kvs");
                    self.unused.extend((!is_implied).then(|| (name.clone(), *span)));
                }
                Piece::Junk(_) => {
                    self.sink
                        .error(*span, "`<junk>` can be sent, not expected")
                        .help("`<any>` matches anything");
                }
                Piece::Cut => {
                    self.sink.error(*span, "`<|>` ends a write, and this step reads");
                }
                _ => {}
            }
        }
    }

    fn names(&mut self, piece: &Piece, span: Span, place: UseSite) {
        match piece {
            Piece::Var(name) => self.check_use(name, span, place),
            Piece::Capture(name, _) => self.bind(name, span),
            Piece::Calc(n) | Piece::Char(n) => self.expr(n, place),
            Piece::Fill(n) | Piece::Junk(n) => {
                self.expr(n, place);
                if self.is_in_own_file()
                    && let Some(n) = expr::constant(n)
                    && !(0..=MAX_FILL).contains(&n)
                {
                    self.sink.error(span, format!("the length is {n} bytes; the range is 0 to {MAX_FILL}"));
                }
            }
            Piece::Typed(ValueType::Uint(low, high)) => {
                for bound in [low, high].into_iter().flatten() {
                    self.expr(bound, place);
                }
            }
            _ => {}
        }
    }

    // ---- steps

    fn step(&mut self, step: &Step, times: u32) {
        if let Some(id) = &step.cites {
            self.requirement(id);
        }
        let ranks = self.count_ranks(step);
        self.times = ranks.saturating_mul(times);
        let first_use = if step.role == Role::Server { self.pending_first_use.take() } else { None };
        match &step.action {
            StepAction::OneOf(alternatives) => {
                self.one_of(step, alternatives);
                // A scenario that accepts several responses also handles the refusal of an optional operation, so it requires no `needs`
                // line.
                if let Some(index) = first_use {
                    self.uses[index] = None;
                }
            }
            StepAction::Process(action) => self.process(action),
            StepAction::Upstream(UpstreamAction::Response { lines, .. }) => {
                for line in lines {
                    self.check_sent_line(line, step.span);
                }
            }
            StepAction::Upstream(_) => {}
            _ if self.is_proxy_step(step) => self.check_proxy_step(&step.action, step.span),
            StepAction::Call(call) => {
                self.call(&step.target, call);
                if call
                    .function
                    .as_ref()
                    .is_some_and(|f| matches!(f.value.as_str(), "PMI_Spawn_multiple" | "PMI2_Job_Spawn"))
                {
                    self.add_groups(step.span, self.times);
                }
            }
            StepAction::Message { lines, .. } => {
                self.action(step.role, &step.action, step.span);
                if step.role == Role::Client {
                    self.count_spawns(lines, step.span, self.times);
                }
            }
            StepAction::Close | StepAction::Empty | StepAction::CorrectResponse | StepAction::Silence => {
                self.action(step.role, &step.action, step.span)
            }
        }
    }

    fn is_proxy_step(&self, step: &Step) -> bool {
        matches!(step.target, StepTarget::Ranks { group: Proc::PROXY_GROUP, .. })
    }

    /// Checks a step that expects a proxy to send messages, close its connection or stay silent.
    fn check_proxy_step(&mut self, action: &StepAction, span: Span) {
        match action {
            StepAction::Message { lines, .. } => {
                for line in lines {
                    let pieces = self.located(line, true);
                    self.pattern(&pieces, UseSite::Step);
                }
            }
            StepAction::Close | StepAction::Silence => self.refused(span),
            _ => {}
        }
    }

    /// Checks that a step for a proxy or its upstream is allowed.
    fn proxies(&mut self, step: &Step, span: Span) {
        if !self.is_proxy_step(step) {
            return;
        }
        if self.scenario.tests != ImplementationKind::Server
            || !matches!(step.role, Role::Server | Role::Upstream)
        {
            let message = "a `proxy` step requires a server under test, and is `expect` (a request that the proxy forwards) or `send` (the upstream's answer)";
            if self.is_in_own_file() {
                self.sink.error(span, message).help("write `proxy:0 expect ...` or `proxy:0 send ...`");
            }
            return;
        }
        if !self.scenario.is_fragment()
            && !self.scenario.needs.iter().any(|n| n.value == Capability::Upstream)
        {
            self.report_at_use(span, "a `proxy` step requires `needs upstream`".into());
        }
        if let StepTarget::Ranks { set: RankSet::Ranges(ranges), .. } = &step.target
            && let Some((_, last)) = ranges.iter().find(|(_, last)| *last >= self.scenario.nodes)
            && !self.scenario.is_fragment()
        {
            self.report_at_use(
                span,
                format!("no proxy {last}: the last proxy is {}", self.scenario.nodes - 1),
            );
        }
    }

    /// Checks that a step for a stray connection is allowed.
    fn check_stray_step(&mut self, step: &Step, span: Span) {
        let all = matches!(&step.target, StepTarget::Ranks { set: RankSet::All, .. });
        if all
            || self.scenario.tests != ImplementationKind::Server
            || matches!(step.action, StepAction::Process(_))
        {
            let message = "a `stray` step requires a server under test and the number of a connection, and cannot be a `P:` step";
            if self.is_in_own_file() {
                self.sink.error(span, message).help("write `stray:0 send ...` or `stray:0 expect ...`");
            }
        } else if !self.scenario.is_fragment()
            && !self.scenario.needs.iter().any(|n| n.value == Capability::Port)
        {
            self.report_at_use(span, "a `stray` step requires `needs port`".into());
        }
    }

    /// Checks the ranks of a step, and returns their number.
    fn count_ranks(&mut self, step: &Step) -> u32 {
        let (group, set) = match &step.target {
            StepTarget::Job => return 1,
            StepTarget::Ranks { group, set } => (group, set),
            StepTarget::Spawned { number, .. } => {
                self.check_use(&number.value, number.span, UseSite::NoRank);
                return UNKNOWN_COUNT;
            }
        };
        let start = step.span.start;
        let length = self.source.text.get(start..).map_or(0, |rest| layout::word_end(rest, 0));
        let span = Span { start, end: (start + length).min(step.span.end) };
        // The ranks and spawned groups of a fragment are known only where the fragment is used.
        let lone_fragment = self.is_in_own_file() && self.scenario.is_fragment();
        self.proxies(step, span);
        if *group == Proc::PROXY_GROUP {
            return 1;
        }
        if *group == Proc::STRAY_GROUP {
            self.check_stray_step(step, span);
            return 1;
        }
        if *group > self.groups && !lone_fragment {
            let name = if *group == 1 { "child".to_owned() } else { format!("child{group}") };
            let message = match self.groups {
                0 => format!("`{name}` is used before any process is spawned"),
                1 => format!("no `{name}`: at most 1 process group is spawned before this step"),
                n => format!("no `{name}`: at most {n} process groups are spawned before this step"),
            };
            self.report_at_use(span, message);
        }
        let ranges = match set {
            RankSet::All if *group == 0 => return self.scenario.ranks,
            RankSet::All => return UNKNOWN_COUNT,
            RankSet::Ranges(ranges) => ranges,
        };
        let size = self.scenario.ranks;
        if *group == 0
            && !lone_fragment
            && let Some((_, last)) = ranges.iter().find(|(_, last)| *last >= size)
        {
            let are = if size == 1 { "is 1 rank".to_owned() } else { format!("are {size} ranks") };
            self.report_at_use(span, format!("no rank {last}: there {are}, counted from 0"));
        }
        let mut sorted = ranges.clone();
        sorted.sort_unstable();
        if self.is_in_own_file()
            && let Some(pair) = sorted.windows(2).find(|pair| pair[0].1 >= pair[1].0)
        {
            self.sink.error(span, format!("rank {} is named twice", pair[1].0));
        }
        ranges.iter().fold(0u32, |sum, (first, last)| sum.saturating_add(last - first + 1))
    }

    fn is_harness_role(&self, role: Role) -> bool {
        role.actor(self.scenario.tests) == Actor::Harness
    }

    /// Counts the process groups that the messages request. A request asks for a single group, regardless of how many commands it contains.
    fn count_spawns(&mut self, lines: &[Template], span: Span, times: u32) {
        let mut requests = 0u32;
        let row = protocol::by_operation(self.scenario.dialect.framing(), "spawn");
        let is_block = row.is_some_and(|row| row.is_block);
        for line in lines {
            let fields = line.message_fields();
            let Some(first) = fields.first() else { continue };
            let value = first.value.literal();
            // In the body of a frame, a semicolon ends the command.
            let is_body =
                |piece: &Piece| matches!(piece, Piece::Literal { bytes, .. } if bytes.starts_with(b"spawn;"));
            match (first.key.as_str(), value.as_deref()) {
                ("mcmd", Some("spawn")) => requests += 1,
                ("cmd", _) if first.value.pieces.first().is_some_and(is_body) => requests += 1,
                ("cmd", Some("spawn")) if !is_block => requests += 1,
                ("spawnssofar", Some(n)) if n.trim_start_matches('0') != "1" => {
                    requests = requests.saturating_sub(1)
                }
                _ => {}
            }
        }
        if requests > 0 {
            self.add_groups(span, requests.saturating_mul(times));
        }
    }

    fn add_groups(&mut self, span: Span, groups: u32) {
        self.groups = self.groups.saturating_add(groups);
        self.record_use(0, span);
    }

    fn record_use(&mut self, which: usize, span: Span) {
        if self.is_in_own_file() && self.uses[which].is_none() {
            let line =
                self.source.text.get(span.start..span.end).map_or(0, |t| t.find('\n').unwrap_or(t.len()));
            self.uses[which] = Some(Span { start: span.start, end: span.start + line });
            self.pending_first_use = Some(which);
        }
    }

    fn one_of(&mut self, step: &Step, alternatives: &[Alternative]) {
        if self.is_harness_role(step.role) && self.is_in_own_file() {
            self.sink
                .error(head_line(&self.source, step.span), "`<one of>` cannot be sent")
                .help("use `<one of>` in a step that expects a message");
        }
        let before = self.bound_names.clone();
        let mut after: Option<Vec<String>> = None;
        let positive = self.positive;
        let negative_before = self.negative;
        for alternative in alternatives {
            if let Some(id) = &alternative.cites {
                self.requirement(id);
            }
            if self.is_in_own_file() && alternative.cites.is_some() && alternative.cites == step.cites {
                let id = alternative.cites.as_ref().map_or(alternative.span, |id| id.span);
                self.sink.warning(id, "the step already cites this requirement").help("remove this id");
            }
            self.bound_names.clone_from(&before);
            let negative = self.negative;
            match self.is_proxy_step(step) {
                true => self.check_proxy_step(&alternative.action, alternative.span),
                false => self.action(step.role, &alternative.action, alternative.span),
            }
            if alternative.grade != Grade::Pass {
                self.negative = negative;
            }
            // Later steps are reached only after outcomes that do not end the conversation.
            if alternative.grade != Grade::Fail && !matches!(alternative.action, StepAction::Close) {
                let bound = mem::take(&mut self.bound_names);
                after = Some(match after {
                    None => bound,
                    Some(common) => common.into_iter().filter(|name| bound.contains(name)).collect(),
                });
            }
        }
        // A step with several possible outcomes is not a positive control. A step that accepts every outcome is not a negative case.
        self.positive = positive;
        if accepts_every_outcome(alternatives) {
            self.negative = negative_before;
        }
        self.bound_names = after.unwrap_or(before);
    }

    fn action(&mut self, role: Role, action: &StepAction, span: Span) {
        let ours = self.is_harness_role(role);
        match action {
            StepAction::Message { mode, lines } => {
                let how = WriteMode { every: false, ..*mode };
                if !ours && how != WriteMode::default() && self.is_in_own_file() {
                    self.sink
                        .error(
                            head_line(&self.source, span),
                            "a step that reads cannot contain `<bytewise>` or `<partial>`",
                        )
                        .help("use these forms only in a step that sends a message");
                }
                for line in lines {
                    if ours { self.check_sent_line(line, span) } else { self.expected(role, line, span) }
                }
            }
            // `send <nothing>` is an error only if a server is under test. If a client is under test, the harness may leave a request
            // unanswered.
            StepAction::Silence if ours && role == Role::Client && self.is_in_own_file() => {
                self.sink
                    .error(head_line(&self.source, span), "a step that sends cannot contain `<nothing>`")
                    .help("remove the step");
            }
            StepAction::Close | StepAction::Silence if role == Role::Server && !ours => self.refused(span),
            _ => {}
        }
    }

    fn refused(&mut self, span: Span) {
        if self.is_in_own_file() && self.negative.is_none() {
            self.negative = Some(head_line(&self.source, span));
        }
    }

    fn check_sent_line(&mut self, line: &Template, span: Span) {
        if line.pieces == [Piece::Typed(ValueType::Empty)] {
            return;
        }
        if self.is_in_own_file()
            && let Some(form) = FORMS.iter().find(|form| line.literal().as_deref() == Some(form))
        {
            self.sink
                .warning(line.span, format!("`{form}` is literal text here"))
                .help(format!("write `<{form}>` unless you mean the literal text"));
        }
        let pieces = self.located(line, true);
        for Located { piece, span } in &pieces {
            self.names(piece, *span, UseSite::Step);
            if !self.is_in_own_file() {
                continue;
            }
            match piece {
                Piece::Capture(name, _) => {
                    self.sink.error(*span, "a step that sends cannot contain a capture").help(format!(
                        "write `${name}` to send a bound value; only messages from the other side are captured"
                    ));
                }
                Piece::Typed(ValueType::RcOk | ValueType::RcFail) => {}
                Piece::Typed(ValueType::Absent | ValueType::Empty) => {
                    self.sink
                        .error(*span, "a step that sends cannot contain a matcher")
                        .help("remove the key or its value");
                }
                Piece::Typed(_) => {
                    self.sink
                        .error(*span, "a step that sends cannot contain a matcher")
                        .help("write the value; for a long value, write `<fill N>` or `<junk N>`");
                }
                _ => {}
            }
        }
        for field in line.message_fields() {
            let value = field.value.literal().unwrap_or_default();
            if field.key != "cmd" {
                continue;
            }
            if vocabulary::is_name_command(&value) {
                self.record_use(1, span);
            }
            let commands = vocabulary::commands(self.scenario.dialect);
            let known: Vec<&str> = commands.iter().map(|(request, _)| *request).collect();
            // Only commands that resemble a known command are reported. Other commands may be intentional: many tests send unknown
            // commands, and the harness sends responses as well.
            let word = value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
            if self.is_in_own_file()
                && word
                && !commands.iter().any(|(_, response)| *response == value)
                && self.scenario.tests == ImplementationKind::Server
                && !known.contains(&value.as_str())
                && let Some(near) = closest_word(&value, &known)
            {
                self.sink
                    .warning(
                        self.value_span(line, &pieces, "cmd"),
                        format!("unknown command `{value}` in {}", self.scenario.dialect.title()),
                    )
                    .label(format!("did you mean `{near}`?"));
            }
        }
    }

    /// Returns the position of the value of the first tuple with this key.
    fn value_span(&self, line: &Template, pieces: &[Located], key: &str) -> Span {
        let plain: Vec<Piece> = pieces.iter().map(|located| located.piece.clone()).collect();
        let tuple = template::split_message(&plain).into_iter().find(|tuple| tuple.key == key);
        tuple.map_or(line.span, |tuple| self.span(line, pieces, tuple.value, tuple.end))
    }

    fn span(&self, line: &Template, pieces: &[Located], from: (usize, usize), to: (usize, usize)) -> Span {
        let start = template::offset(pieces, from, line.span.end);
        Span { start, end: template::offset(pieces, to, line.span.end).max(start) }
    }

    /// Checks a line that the harness expects.
    fn expected(&mut self, role: Role, line: &Template, step: Span) {
        let pieces = self.located(line, true);
        self.pattern(&pieces, UseSite::Step);
        let plain: Vec<Piece> = pieces.iter().map(|located| located.piece.clone()).collect();
        let dialect = self.scenario.dialect;
        for tuple in template::split_message(&plain) {
            let value = template::slice(&plain, tuple.value, tuple.end);
            let whole = self.span(line, &pieces, tuple.start, tuple.end);
            let value_span = self.span(line, &pieces, tuple.value, tuple.end);
            let text = Template { pieces: value.clone(), span: line.span }.literal();
            if role == Role::Server && tuple.key == "rc" {
                match (value.as_slice(), text.as_deref()) {
                    ([Piece::Typed(ValueType::RcOk)], _) | (_, Some("0")) => self.positive = true,
                    ([Piece::Typed(ValueType::RcFail)], _) => self.refused(step),
                    (_, Some(number)) if number.parse::<i64>().is_ok() => self.refused(step),
                    _ => {}
                }
            }
            if !self.is_in_own_file() {
                continue;
            }
            if value.len() > 1
                && value.iter().any(|p| matches!(p, Piece::Typed(ValueType::Absent | ValueType::Empty)))
            {
                self.sink.error(value_span, "`<absent>` and `<empty>` must stand alone");
            }
            match (role, tuple.key.as_str()) {
                (Role::Server, "") => {
                    let word = text.unwrap_or_default();
                    let words = ["<closes>", "<empty>", "<silence>", "<one of>"];
                    let diagnostic = self.sink.error(whole, "not a `key=value` tuple");
                    match closest_word(&word, &words) {
                        Some(near) => diagnostic.label(format!("did you mean `{near}`?")),
                        None => diagnostic.help("write `<sp>` for a space within a value"),
                    };
                }
                (Role::Server, "cmd") => self.response(value_span, text.as_deref()),
                (Role::Server, key) if !protocol::is_response_key(dialect.framing(), key) => {
                    let span = Span { end: whole.start + key.len(), ..whole };
                    self.sink
                        .error(span, format!("no {} response has a key `{key}`", dialect.title()))
                        .suggest(key, &vocabulary::response_keys(dialect));
                }
                (Role::Client, "cmd") => {
                    let commands = vocabulary::commands(dialect);
                    let known: Vec<&str> = commands.iter().map(|(request, _)| *request).collect();
                    self.command(value_span, text.as_deref(), &known, "command");
                }
                _ => {}
            }
        }
    }

    fn response(&mut self, span: Span, text: Option<&str>) {
        let commands = vocabulary::commands(self.scenario.dialect);
        // `auth-response` is both a request and a response, so it is not reported.
        let request = text
            .filter(|text| commands.iter().all(|(_, response)| response != text))
            .and_then(|text| commands.iter().find(|(request, _)| *request == text));
        if let Some((request, response)) = request {
            let diagnostic = self.sink.error(span, format!("`{request}` is a request"));
            diagnostic.label(match *response {
                "" => {
                    let ways = [
                        "the response to this request is a bare newline, `<empty>`",
                        "this request has no response",
                    ];
                    self.scenario.dialect.pick(ways).to_owned()
                }
                response => format!("the response to this request is `{response}`"),
            });
            return;
        }
        let known: Vec<&str> =
            commands.iter().map(|(_, response)| *response).filter(|r| !r.is_empty()).collect();
        self.command(span, text, &known, "response");
    }

    fn command(&mut self, span: Span, text: Option<&str>, known: &[&str], what: &str) {
        if let Some(text) = text
            && !known.contains(&text)
            && let Some(near) = closest_word(text, known)
        {
            self.sink
                .error(span, format!("unknown {what} `{text}` in {}", self.scenario.dialect.title()))
                .label(format!("did you mean `{near}`?"));
        }
    }

    fn process(&mut self, action: &ProcessAction) {
        match action {
            ProcessAction::Env(_, template) | ProcessAction::Args(template) => match self.scenario.tests {
                ImplementationKind::Server => {
                    let pieces = self.located(template, false);
                    self.pattern(&pieces, UseSite::Step);
                }
                // `<absent>` makes the harness unset the variable.
                _ if template.pieces == [Piece::Typed(ValueType::Absent)] => {}
                _ => self.text(
                    template,
                    UseSite::Step,
                    "a step that starts a process cannot contain a matcher",
                ),
            },
            _ => {}
        }
    }

    fn call(&mut self, target: &StepTarget, call: &Call) {
        if let Some(function) = &call.function {
            let dialect = self.scenario.dialect;
            let known: Vec<&str> = signature::functions(dialect).iter().map(|f| f.name).collect();
            if self.is_in_own_file() && !known.contains(&function.value.as_str()) {
                self.sink
                    .error(function.span, format!("the {dialect} API has no function `{}`", function.value))
                    .suggest(&function.value, &known);
            }
            self.outs.retain(|(other, _)| other != target);
        }
        for arg in &call.args {
            match arg {
                Arg::Text(text) => {
                    self.text(text, UseSite::Step, "a step that calls a function cannot contain a matcher")
                }
                Arg::Number(number) => self.expr(number, UseSite::Step),
                Arg::Null => {}
                Arg::Out(name, size) => {
                    if let Some(size) = size {
                        self.expr(size, UseSite::Step);
                    }
                    self.outs.push((target.clone(), name.value.clone()));
                }
            }
        }
        if let Some(result) = &call.result {
            match result.value.as_str() {
                "PMI_SUCCESS" | "PMI2_SUCCESS" | "0" => self.positive = true,
                "any" => {}
                _ => self.refused(result.span),
            }
            let results = signature::results(self.scenario.dialect);
            if self.is_in_own_file()
                && !results.contains(&result.value)
                && result.value.parse::<i32>().is_err()
            {
                self.sink
                    .error(result.span, format!("no function returns `{}`", result.value))
                    .suggest(&result.value, &results)
                    .help("write the name of a return code, a number, `fail` for anything but success, or `any`");
            }
        }
        for (name, value) in &call.outs {
            let outs = self.outs.iter().filter(|(other, _)| other == target).map(|(_, name)| name.clone());
            let outs: Vec<String> = outs.collect();
            if self.is_in_own_file() && !outs.contains(&name.value) {
                let message = format!("the call has no output argument `{}`", name.value);
                self.sink.error(name.span, message).suggest(&name.value, &outs);
            }
            let pieces = self.located(value, false);
            self.pattern(&pieces, UseSite::Step);
        }
    }
}

/// Returns the first line of a span.
fn head_line(source: &SourceFile, span: Span) -> Span {
    let length = span.of(&source.text).find('\n').unwrap_or(span.end - span.start.min(span.end));
    Span { start: span.start, end: span.start + length }
}
