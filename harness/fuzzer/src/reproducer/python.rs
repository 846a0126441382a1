//! The script of a reproducer.

use pmi_wire::{Framing, Proc};

use super::steps::{Look, Session, Step};
use super::{About, LINES};

/// What every script has before its steps.
const START: &str = include_str!("server.py");

/// Lets Hydra start its proxy through a script that notes how the proxy ended: its launcher does not tell.
const PROXY: &str = "\
real = os.path.realpath(shutil.which(command[0]))  # Hydra looks for its proxy beside itself, here one that notes how it ended
os.symlink(real, here + \"/mpiexec.hydra\"), command.__setitem__(0, here + \"/mpiexec.hydra\")
script(\"hydra_pmi_proxy\", f'\"{os.path.dirname(real)}/hydra_pmi_proxy\" \"$@\"\\ns=$?\\necho $s >> {here}/ended\\nexit $s\\n')";

/// What every script ends with.
const END: &str = "\
for _, control, *_ in ranks.values(): control.close()
try: job.wait(3)
except subprocess.TimeoutExpired: os.killpg(job.pid, 9)
shutil.rmtree(here)
print(\"expected:\", @EXPECTED@), print(\"saw:\", said), print(\"the symptom\", \"shows\" if shown else \"does not show\")
sys.exit(int(shown))
";

/// The letters of long keys and values.
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const LETTERS_DEFINED: &str = "\
def letters(n): return (b\"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\" * (n // 62 + 1))[:n]";

/// Runs that are at least so long are written as a product.
const RUN: usize = 40;
/// Columns that a line of steps has at least, if there are that many.
const COLUMNS: usize = 120;

/// See [`super::reproducer`].
pub(super) struct Script<'a> {
    pub(super) about: About<'a>,
    pub(super) session: &'a Session,
}

/// A step of several processes.
struct Call<'a> {
    who: Vec<Proc>,
    step: &'a Step,
}

impl Script<'_> {
    pub(super) fn text(&self) -> String {
        let Session { command, groups, look, .. } = self.session;
        let words: Vec<String> = command.iter().map(|word| string(word)).collect();
        let dies_elsewhere = matches!(look, Look::Death { launcher: false, .. });
        let start = START
            .replace("@COMMAND@", &format!("[{}]", words.join(", ")))
            .replace("@GROUPS@", &groups.to_string())
            .replace("@PROXY@\n", &if dies_elsewhere { format!("{PROXY}\n") } else { String::new() });
        let calls = self.calls();
        let calls: Vec<String> = match (look, calls.split_last()) {
            (Look::LastStep, Some((last, before))) => {
                let last = format!("said, shown = {}", last.text());
                before.iter().map(Call::text).chain([last]).collect()
            }
            _ => calls.iter().map(Call::text).collect(),
        };
        let head = format!(
            "#!/usr/bin/env python3\n# {}\n# seen: {}\n",
            comment(self.about.title),
            comment(self.about.seen)
        );
        let defined = if calls.iter().any(|call| call.contains("letters(")) {
            format!("{LETTERS_DEFINED}\n")
        } else {
            String::new()
        };
        let end = self.look() + &END.replace("@EXPECTED@", &string(&comment(self.about.expected)));
        let others = [&head, &start, &defined, &end].map(|part| part.lines().count()).iter().sum::<usize>();
        let steps = packed(&calls, LINES.saturating_sub(others).max(1));
        format!("{head}{start}{defined}{steps}{end}")
    }

    /// The steps, those that several processes do one after the other as one.
    fn calls(&self) -> Vec<Call<'_>> {
        let mut calls: Vec<Call<'_>> = Vec::new();
        for (proc, step) in &self.session.steps {
            match calls.last_mut() {
                Some(last) if last.step == step && !last.who.contains(proc) => last.who.push(*proc),
                _ => calls.push(Call { who: vec![*proc], step }),
            }
        }
        calls
    }

    /// Looks for the symptom, if the last step did not.
    fn look(&self) -> String {
        match &self.session.look {
            Look::LastStep => String::new(),
            Look::Arguments(proc, args) => {
                let args: Vec<String> =
                    args.iter().map(|arg| format!("os.fsdecode({})", bytes(&arg.0))).collect();
                let args = args.join(", ");
                format!("said = next(each({}))[5]\nshown = said == [{args}]\n", ranks(&[*proc]))
            }
            Look::Environment(proc, env) => {
                let same = |(name, _): &(&String, &String)| !matches!(name.as_str(), "PMI_FD" | "PMI_PORT");
                let env: Vec<String> = env
                    .iter()
                    .filter(same)
                    .map(|(name, value)| format!("{}: {}", string(name), string(value)))
                    .collect();
                format!(
                    "said = {{k: v for k, v in next(each({}))[4].items() if k not in (\"PMI_FD\", \"PMI_PORT\")}}\n\
                     shown = said == {{{}}}\n",
                    ranks(&[*proc]),
                    env.join(", ")
                )
            }
            Look::Death { launcher: true, signal } => format!(
                "try: said = job.wait(5)\nexcept subprocess.TimeoutExpired: said = \"it goes on\"\n\
                 shown = said == {}  # it died of this signal\n",
                -signal
            ),
            Look::Death { launcher: false, signal } => format!(
                "said = time.sleep(2) or [ended.read_text().split() for ended in pathlib.Path(here).glob(\"ended\")]\n\
                 shown = \"{}\" in sum(said, [])  # a proxy died of signal {signal}\n",
                128 + signal
            ),
            Look::JobExits(exit) => {
                let status = match exit {
                    pmi_judge::event::Exit::Code(code) => *code,
                    pmi_judge::event::Exit::Signal(signal) => -signal,
                };
                format!(
                    "for _, control, *_ in ranks.values(): control.close()\n\
                     try: said = job.wait(10)\nexcept subprocess.TimeoutExpired: said = \"it goes on\"\n\
                     shown = said == {status}\n"
                )
            }
            Look::JobStays => "for _, control, *_ in ranks.values(): control.close()\n\
                 try: said = job.wait(10)\nexcept subprocess.TimeoutExpired: said = \"it goes on\"\n\
                 shown = said == \"it goes on\"\n"
                .to_owned(),
        }
    }
}

impl Call<'_> {
    fn text(&self) -> String {
        let who = ranks(&self.who);
        let framed = |framing: &Framing| if *framing == Framing::Frames { ", True" } else { "" };
        match self.step {
            Step::Send(text, framing) => format!("send({who}, {}{})", bytes(text), framed(framing)),
            Step::Receive(text, framing) => {
                let text = text.as_deref().map_or("None".to_owned(), bytes);
                format!("recv({who}, {text}{})", framed(framing))
            }
            Step::Close => format!("[(pmi.shutdown(2), pmi.close()) for _, pmi, *_ in each({who})]"),
            Step::Exit(status) => {
                format!("[(control.send(b\"{status}\"), pmi.close()) for _, pmi, control, *_ in each({who})]")
            }
            Step::Kill(signal) => {
                format!("[(os.kill(pid, {signal}), pmi.close()) for _, pmi, _, pid, *_ in each({who})]")
            }
        }
    }
}

/// `"0.0-3 1.0"`.
fn ranks(who: &[Proc]) -> String {
    let mut ranges: Vec<(Proc, u32)> = Vec::new();
    for proc in who {
        match ranges.last_mut() {
            Some((first, last)) if first.group == proc.group && *last + 1 == proc.rank => *last = proc.rank,
            _ => ranges.push((*proc, proc.rank)),
        }
    }
    let range = |(first, last): &(Proc, u32)| match first.rank == *last {
        true => format!("{}.{}", first.group, first.rank),
        false => format!("{}.{}-{last}", first.group, first.rank),
    };
    format!("\"{}\"", ranges.iter().map(range).collect::<Vec<_>>().join(" "))
}

/// Statements, several on a line if there are more than so many.
fn packed(statements: &[String], most: usize) -> String {
    let mut columns = COLUMNS;
    loop {
        let mut lines: Vec<String> = Vec::new();
        for statement in statements {
            match lines.last_mut() {
                Some(line) if line.len() + 2 + statement.len() <= columns => {
                    line.push_str("; ");
                    line.push_str(statement);
                }
                _ => lines.push(statement.clone()),
            }
        }
        if lines.len() <= most {
            return lines.iter().map(|line| format!("{line}\n")).collect();
        }
        columns += COLUMNS / 4;
    }
}

/// One line of text, for a comment.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A string of Python.
fn string(text: &str) -> String {
    // JSON's escapes are those of Python.
    serde_json::Value::from(text).to_string()
}

/// Bytes of Python, long runs of letters as a product.
fn bytes(text: &[u8]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut plain: Vec<u8> = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let same = rest.iter().take_while(|b| *b == first).count();
        let letters = rest.iter().zip(LETTERS.iter().cycle()).take_while(|(a, b)| a == b).count();
        let (length, part) = if letters >= RUN {
            (letters, format!("letters({letters})"))
        } else if same >= RUN {
            (same, format!("{} * {same}", literal(&[*first])))
        } else {
            plain.push(*first);
            rest = after;
            continue;
        };
        if !plain.is_empty() {
            parts.push(literal(&std::mem::take(&mut plain)));
        }
        parts.push(part);
        rest = &rest[length..];
    }
    if !plain.is_empty() || parts.is_empty() {
        parts.push(literal(&plain));
    }
    parts.join(" + ")
}

fn literal(text: &[u8]) -> String {
    // Rust escapes a single quote as well, which Python takes.
    format!("b\"{}\"", text.escape_ascii())
}
