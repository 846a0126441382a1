//! Writes the Python script of a reproducer.

use std::collections::BTreeMap;
use std::ops::Range;

use pmi_judge::event::Exit;
use pmi_wire::{ConnectionMethod, Framing, Proc};

use super::steps::{FinalCheck, ReproducerSession, ReproducerStep};
use super::summary::{FindingSummary, LINES, comment};

/// The beginning of every script for a server under test, before its steps.
const SCRIPT_START: &str = include_str!("server.py");
/// The beginning of every script for a program under test, before its steps.
const START_OF_PROGRAM: &str = include_str!("client.py");

/// Python code that makes Hydra start its proxy through a script. The script records the proxy's exit status, which the launcher does not
/// report.
const PROXY: &str = "\
real = os.path.realpath(shutil.which(command[0]))  # Hydra looks for its proxy next to itself, and finds a script that records how the proxy ended
command[0] = here + \"/mpiexec.hydra\"; os.symlink(real, command[0])
script(\"hydra_pmi_proxy\", f'\"{os.path.dirname(real)}/hydra_pmi_proxy\" \"$@\"\\ns=$?\\necho $s >> {here}/ended\\nexit $s\\n')";

/// Python code that starts a rank of a program under test with an inherited connection.
const START_BY_FD: &str = "\
def start(who, env):  # starts the program as this rank, with its end of the connection at PMI_FD
    ours, theirs = socket.socketpair()
    env = {**{k: v for k, v in os.environ.items() if k[:3] != \"PMI\"}, \"PMI_FD\": str(theirs.fileno()), **env}
    ranks[who] = ours, subprocess.Popen(sys.argv[1:] or COMMAND, env=env, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()";

/// Python code that starts a rank of a program under test. The program opens its connection itself.
const START_BY_PORT: &str = "\
def start(who, env):  # starts the program as this rank, and accepts its connection to PMI_PORT
    listener, rank = socket.create_server((\"127.0.0.1\", 0)), env[\"PMI_ID\"]
    env = {**{k: v for k, v in os.environ.items() if k[:3] != \"PMI\"}, **env, \"PMI_PORT\": f\"127.0.0.1:{listener.getsockname()[1]}\"}
    process = subprocess.Popen(sys.argv[1:] or COMMAND, env=env, stdin=subprocess.DEVNULL)
    listener.settimeout(10), (ours := listener.accept()[0]).recv(4096)  # cmd=initack pmiid=RANK
    ours.sendall(f\"cmd=initack rc=0 rank={rank} size=@SIZE@ appnum=0 debug=0\\ncmd=set size=@SIZE@\\ncmd=set rank={rank}\\ncmd=set debug=0\\n\".encode())
    ranks[who] = ours, process";

/// Python code that makes a process pass on the connection that it has inherited.
const BY_FD: &str = "    \
told = repr((f\"{sys.argv[3]}.{env['PMI_RANK']}\", os.getpid(), env, sys.argv[4:])).encode()
    socket.send_fds(control, [told], [int(env[\"PMI_FD\"])]), os.close(int(env[\"PMI_FD\"]))";

/// Python code that makes a process open its connection before passing it on.
const BY_PORT: &str = "    \
pmi, greeting = socket.create_connection(env[\"PMI_PORT\"].rsplit(\":\", 1)), b\"\"
    pmi.setsockopt(6, 1, 1), pmi.sendall(f\"cmd=initack pmiid={env['PMI_ID']}\\n\".encode())  # TCP_NODELAY
    while greeting.count(b\"\\n\") < 4: greeting += pmi.recv(1) or sys.exit(\"no answer to initack\")
    told = repr((f\"{sys.argv[3]}.{env['PMI_ID']}\", os.getpid(), env, sys.argv[4:], greeting)).encode()
    socket.send_fds(control, [told], [pmi.fileno()]), pmi.close()";

const LAUNCH: &str = "job = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)";

/// Python code that starts a process, and launches a manager that connects to it. The script does not play the process itself, because the
/// manager may kill the process.
const LAUNCH_BY_SINGLETON: &str = "\
listener, (control, theirs) = socket.create_server((\"127.0.0.1\", 0)), socket.socketpair()
first = subprocess.Popen([sys.executable, \"-c\", \"import os; os._exit(int(os.read(0, 9) or 0))\"], stdin=theirs, start_new_session=True)
theirs.close()
command = [word.replace(\"{port}\", str(listener.getsockname()[1])).replace(\"{pid}\", str(first.pid)) for word in command]
job = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
listener.settimeout(10), (pmi := listener.accept()[0]).recv(4096)  # cmd=singinit authtype=none
pmi.sendall(b\"cmd=singinit pmi_version=1 pmi_subversion=1 stdio=yes authtype=none\\n\")
streams = [listener.accept() for _ in range(3 * (b\"stdio=yes\" in pmi.recv(4096)))]
ranks[\"0.0\"] = pmi, control, first.pid, {}, []";

/// Python code that pauses the launcher when it reads its standard input. Hydra's launcher reads this input to notify its proxy when the
/// input ends. Other launchers may never read their standard input.
const LAUNCH_HELD: &str = "\
import ctypes, signal; never = \"the launcher does not read its standard input: the symptom does not occur\"; \
signal.signal(14, lambda *_: (os.killpg(job.pid, 9), shutil.rmtree(here), print(never, flush=True), os._exit(0))), signal.alarm(30)
ptrace, regs = ctypes.CDLL(None).ptrace, (ctypes.c_ulong * 27)(); ptrace.argtypes = [ctypes.c_long] * 2 + [ctypes.c_void_p] * 2; \
job = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=lambda: ptrace(0, 0, None, None)); status = os.waitpid(job.pid, 0)[1]
step = lambda signal: (ptrace(24, job.pid, None, signal), os.waitpid(job.pid, 0)[1], ptrace(12, job.pid, None, ctypes.addressof(regs)))[1]
[status := step(os.WSTOPSIG(status) * (os.WSTOPSIG(status) != 5)) for _ in iter(lambda: os.WIFSTOPPED(status) and \
not (regs[15] == regs[14] == 0 < regs[12] and regs[10] == 2**64 - 38), False)]; signal.alarm(0)";

/// Python code that resumes the paused launcher after all processes that it started have ended.
const RESUME_LAUNCHER: &str = "\
[control.close() for _, control, *_ in ranks.values()]; children = f\"/proc/{job.pid}/task/{job.pid}/children\"
gone = lambda: all(\") Z\" in open(f\"/proc/{n}/stat\").read() for n in open(children).read().split())
[time.sleep(0.1) for _ in range(100 * os.WIFSTOPPED(status)) if not gone()]; ptrace(17, job.pid, None, None)
[time.sleep(0.1) for _ in range(60) if job.poll() is None]; said = job.poll()
";

/// The remark that explains why a script pauses the launcher.
const RACE_REMARK: &str = "a race: the launcher dies only if it is slow to read its standard input, so this script pauses it there (x86-64)";

/// Environment variables whose values differ between runs or machines.
const VARYING: [&str; 3] = ["PMI_FD", "PMI_PORT", "PMI_HOSTNAME"];

/// Python code that makes a connection that belongs to no rank.
const STRAY: &str = "\
def stray(name, all):
    ranks[name] = socket.create_connection(list(each(all))[0][4][\"PMI_PORT\"].rsplit(\":\", 1)), socket.socketpair()[0], 0, {}, []
";

/// Python code that defines `managers`, which returns the names of the ranks' parent processes.
const MANAGERS: &str = "\
def managers():  # a process whose parent has ended gets another parent
    parents = [open(f\"/proc/{rank[2]}/stat\").read().rpartition(\")\")[2].split()[1] for rank in ranks.values() if os.path.exists(f\"/proc/{rank[2]}\")]
    return [open(f\"/proc/{pid}/comm\").read().strip() for pid in parents if os.path.exists(f\"/proc/{pid}\")]
";

/// Python code that stores the names of the ranks' parents before the first step.
const MANAGERS_BEFORE: &str = "next(each(\"0.0\")); before = managers()";

/// Python code that stops the server while many requests are sent, and then lets it continue.
const SERVER: &str = "\
def server(signal):  # stopped while hundreds of ranks send their requests, as if it were busy
    for pid in (job.pid, *open(f\"/proc/{job.pid}/task/{job.pid}/children\").read().split()): os.kill(int(pid), signal)
";

/// The end of every script for a server under test.
const SCRIPT_END: &str = "\
[control.close() for _, control, *_ in ranks.values()]
try: job.wait(3)
except subprocess.TimeoutExpired: os.killpg(job.pid, 9)
print(\"expected:\", @EXPECTED@), print(\"saw:\", said), print(\"the symptom\", \"occurs\" if shown else \"does not occur@AGAIN@\")
sys.exit(shutil.rmtree(here) or int(shown))
";

/// The end of every script for a program under test.
const END_OF_PROGRAM: &str = "\
for _, process in ranks.values(): process.kill()
print(\"expected:\", @EXPECTED@), print(\"saw:\", said), print(\"the symptom\", \"occurs\" if shown else \"does not occur@AGAIN@\")
sys.exit(int(shown))
";

/// The letters of long keys and values.
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const LETTERS_DEFINED: &str = "\
def letters(n): return (b\"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\" * (n // 62 + 1))[:n]";

/// Minimum number of requests for which a script stops the server until all of them are sent.
const MIN_BURST: usize = 100;
/// Minimum length of a run that is written as `letters(n)` or `b"x" * n` instead of a literal.
const MIN_RUN_LENGTH: usize = 40;
/// The initial limit on the width of a line of steps. The limit is raised if the script would otherwise have too many lines.
const MIN_LINE_WIDTH: usize = 120;

/// The script of a session. See [`super::reproducer`].
pub(super) struct PythonScript<'a> {
    pub(super) about: FindingSummary<'a>,
    pub(super) session: &'a ReproducerSession,
}

/// The same step for one or more processes.
struct ScriptCall<'a> {
    processes: Vec<Proc>,
    step: &'a ReproducerStep,
}

impl PythonScript<'_> {
    pub(super) fn text(&self) -> String {
        let ReproducerSession { command, of_program, groups, final_check: look, .. } = self.session;
        let words: Vec<String> = command.iter().map(|word| string(word)).collect();
        let dies_elsewhere = matches!(look, FinalCheck::Death { launcher: false, .. });
        let (start, end) =
            if *of_program { (START_OF_PROGRAM, END_OF_PROGRAM) } else { (SCRIPT_START, SCRIPT_END) };
        let is_held = self.session.pauses_launcher();
        let launch = match self.session.connection_method {
            ConnectionMethod::Singleton => LAUNCH_BY_SINGLETON,
            _ if is_held => LAUNCH_HELD,
            _ => LAUNCH,
        };
        let by_port = self.session.connection_method == ConnectionMethod::Port;
        let is_start = |step: &&(Proc, ReproducerStep)| matches!(step.1, ReproducerStep::Start(_));
        let size = self.session.steps.iter().filter(is_start).count();
        let start = start
            .replace("@CONNECT@", if by_port { BY_PORT } else { BY_FD })
            .replace("@START@", if by_port { START_BY_PORT } else { START_BY_FD })
            .replace("@SIZE@", &size.to_string())
            .replace("@LAUNCH@", launch)
            .replace("@COMMAND@", &format!("[{}]", words.join(", ")))
            .replace("@GROUPS@", &groups.to_string())
            .replace("@PROXY@\n", &if dies_elsewhere { format!("{PROXY}\n") } else { String::new() });
        let calls = self.calls();
        let mut statements: Vec<String> = calls.iter().map(|call| call.text(*of_program)).collect();
        if let (FinalCheck::LastStep, Some(last)) = (look, statements.last_mut()) {
            last.insert_str(0, "said, shown = ");
        }
        let bursts = if *of_program { Vec::new() } else { bursts(&calls) };
        for Range { start, end } in bursts.iter().rev() {
            statements.insert(*end, "server(18)".to_owned());
            statements.insert(*start, "server(19)".to_owned());
        }
        if matches!(look, FinalCheck::ManagerDies { .. }) {
            statements.insert(0, MANAGERS_BEFORE.to_owned());
        }
        let chance = self.about.chance();
        let seen = chance.as_ref().map(|chance| format!(", {chance}")).unwrap_or_default();
        let race = if is_held { format!("; {RACE_REMARK}") } else { String::new() };
        let again = chance
            .map(|chance| format!("; it occurred {chance} before, so run this script again"))
            .unwrap_or_default();
        let head = format!(
            "#!/usr/bin/env python3\n# {}\n# seen: {}{seen}{race}\n",
            comment(self.about.title),
            comment(self.about.seen)
        );
        let mut defined = String::new();
        if statements.iter().any(|statement| statement.contains("letters(")) {
            defined += LETTERS_DEFINED;
            defined.push('\n');
        }
        if matches!(look, FinalCheck::ManagerDies { .. }) {
            defined += MANAGERS;
        }
        if statements.iter().any(|statement| statement.starts_with("stray(")) {
            defined += STRAY;
        }
        if !bursts.is_empty() {
            defined += SERVER;
        }
        let end = self.check_symptom()
            + &end.replace("@EXPECTED@", &string(&comment(self.about.expected))).replace("@AGAIN@", &again);
        let others = [&head, &start, &defined, &end].map(|part| part.lines().count()).iter().sum::<usize>();
        let steps = join_statements(&statements, LINES.saturating_sub(others).max(1));
        format!("{head}{start}{defined}{steps}{end}")
    }

    /// Returns the steps as calls. Consecutive equal steps of different processes become a single call.
    fn calls(&self) -> Vec<ScriptCall<'_>> {
        let mut calls: Vec<ScriptCall<'_>> = Vec::new();
        for (proc, step) in &self.session.steps {
            match calls.last_mut() {
                Some(last) if last.step == step && !last.processes.contains(proc) => {
                    last.processes.push(*proc)
                }
                _ => calls.push(ScriptCall { processes: vec![*proc], step }),
            }
        }
        calls
    }

    /// Returns the lines that check for the symptom, or nothing if the last step already checks for it.
    fn check_symptom(&self) -> String {
        match &self.session.final_check {
            FinalCheck::LastStep => String::new(),
            FinalCheck::Arguments(proc, args) => {
                let args: Vec<String> =
                    args.iter().map(|arg| format!("os.fsdecode({})", bytes(&arg.0))).collect();
                let args = args.join(", ");
                format!("said = next(each({}))[5]\nshown = said == [{args}]\n", ranks(&[*proc]))
            }
            FinalCheck::Greeting(proc, answer) => {
                let (rank, answer) = (ranks(&[*proc]), bytes(answer));
                format!(
                    "said = next(each({rank}))[6]\n\
                     shown, told = [re.sub(rb\"\\d{{4,}}\", b\"#\", text) for text in (said, {answer})]; shown = shown == told\n"
                )
            }
            FinalCheck::Environment(proc, env) => {
                let same = env
                    .iter()
                    .filter(|(name, _)| name.starts_with("PMI") && !VARYING.contains(&name.as_str()));
                let env = same.map(|(name, value)| (name.clone(), value.clone())).collect();
                format!(
                    "said = {{k: v for k, v in next(each({}))[4].items() if k not in {VARYING:?}}}\n\
                     shown = said == {}\n",
                    ranks(&[*proc]),
                    dictionary(&env)
                )
            }
            // When the ranks end, the launcher may die before its proxy or instead of it, so the check for the proxy also accepts the death
            // of the launcher.
            FinalCheck::Death { launcher, signal } => {
                let of_launcher = format!("job.poll() == {}", -signal);
                let ended = "os.path.exists(here + \"/ended\")";
                let (over, said, shown) = match launcher {
                    true => ("(job.poll() is not None)", "job.poll()".to_owned(), of_launcher),
                    false => (
                        ended,
                        format!(
                            "(open(here + \"/ended\").read().split() if {ended} else []) + [str(job.poll())]"
                        ),
                        format!("\"{}\" in said or \"{}\" in said", 128 + signal, -signal),
                    ),
                };
                let release = if *launcher { 0 } else { 20 };
                if self.session.pauses_launcher() {
                    return format!("{RESUME_LAUNCHER}shown = said == {}  # signal {signal}\n", -signal);
                }
                format!(
                    "for n in range(60):\n    \
                     if n == {release}: [control.close() for _, control, *_ in ranks.values()]  # it may die when the ranks end\n    \
                     if not {over}: time.sleep(0.1)\n\
                     said = {said}\nshown = {shown}  # signal {signal}\n"
                )
            }
            FinalCheck::ManagerDies { name, signal } => {
                // The kernel truncates the name of a process to 15 bytes.
                let name = string(&name.chars().take(15).collect::<String>());
                format!(
                    "[time.sleep(0.1) for _ in range(60) if {name} in managers()]; said = managers()\n\
                     shown = {name} in before and {name} not in said  # signal {signal}\n"
                )
            }
            FinalCheck::Ends(proc, exit) => {
                let status = exit.map_or("None".to_owned(), |exit| status(exit).to_string());
                format!("said = ended({})\nshown = said == {status}\n", ranks(&[*proc]))
            }
            FinalCheck::Dies(signal) => {
                format!(
                    "said = [ended(who) for who in ranks]\nshown = {} in said  # minus the signal\n",
                    -signal
                )
            }
            FinalCheck::JobExits(exit) => {
                let status = status(*exit);
                format!(
                    "for _, control, *_ in ranks.values(): control.close()\n\
                     try: said = job.wait(10)\nexcept subprocess.TimeoutExpired: said = \"still running\"\n\
                     shown = said == {status}\n"
                )
            }
            FinalCheck::JobKeepsRunning => "for _, control, *_ in ranks.values(): control.close()\n\
                 try: said = job.wait(10)\nexcept subprocess.TimeoutExpired: said = \"still running\"\n\
                 shown = said == \"still running\"\n"
                .to_owned(),
        }
    }
}

/// Returns the ranges of calls in which at least [`MIN_BURST`] requests are sent without a pause, by processes that have already taken part.
fn bursts(calls: &[ScriptCall<'_>]) -> Vec<Range<usize>> {
    let sends = |call: &ScriptCall<'_>| matches!(call.step, ReproducerStep::Send(..));
    let mut end = 0;
    let runs = calls.chunk_by(|a, b| sends(a) && sends(b)).map(|run| {
        end += run.len();
        end - run.len()..end
    });
    let is_burst = |run: &Range<usize>| {
        let mut senders = calls[run.clone()].iter().flat_map(|call| &call.processes);
        let has_taken_part = |proc| calls[..run.start].iter().any(|call| call.processes.contains(proc));
        sends(&calls[run.start]) && senders.clone().count() >= MIN_BURST && senders.all(has_taken_part)
    };
    runs.filter(is_burst).collect()
}

impl ScriptCall<'_> {
    fn text(&self, of_program: bool) -> String {
        let rank_list = ranks(&self.processes);
        let framed = |framing: &Framing| if *framing == Framing::Frames { ", True" } else { "" };
        match self.step {
            ReproducerStep::Send(text, framing) => {
                format!("send({rank_list}, {}{})", bytes(text), framed(framing))
            }
            ReproducerStep::Receive(text, framing) => {
                let text = text.as_deref().map_or("None".to_owned(), bytes);
                format!("recv({rank_list}, {text}{})", framed(framing))
            }
            ReproducerStep::Start(env) => format!("start({rank_list}, {})", dictionary(env)),
            ReproducerStep::Stray { ranks, .. } => {
                format!("stray({rank_list}, \"0.0-{}\")", ranks.saturating_sub(1))
            }
            ReproducerStep::Kill(_) if of_program => {
                format!("[process.kill() for _, _, process in each({rank_list})]")
            }
            ReproducerStep::Close => {
                format!("[(pmi.shutdown(2), pmi.close()) for _, pmi, *_ in each({rank_list})]")
            }
            ReproducerStep::Exit(status) => {
                format!(
                    "[(control.send(b\"{status}\"), pmi.close()) for _, pmi, control, *_ in each({rank_list})]"
                )
            }
            ReproducerStep::Kill(signal) => {
                format!("[(os.kill(pid, {signal}), pmi.close()) for _, pmi, _, pid, *_ in each({rank_list})]")
            }
        }
    }
}

/// Returns an exit status as Python represents it. A death by signal is represented by the negative signal number.
fn status(exit: Exit) -> i32 {
    match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => -signal,
    }
}

/// Returns ranks in the form `"0.0-3 1.0"`.
fn ranks(procs: &[Proc]) -> String {
    let mut ranges: Vec<(Proc, u32)> = Vec::new();
    for proc in procs {
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

/// Joins statements into at most `most` lines, with several statements on a line if necessary.
fn join_statements(statements: &[String], most: usize) -> String {
    let mut columns = MIN_LINE_WIDTH;
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
        columns += MIN_LINE_WIDTH / 4;
    }
}

fn dictionary(all: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> =
        all.iter().map(|(name, value)| format!("{}: {}", string(name), string(value))).collect();
    format!("{{{}}}", pairs.join(", "))
}

/// Returns a Python string literal.
fn string(text: &str) -> String {
    // JSON escapes are valid in Python string literals.
    serde_json::Value::from(text).to_string()
}

/// Returns a Python expression for bytes, in which long runs of letters are written as a product.
fn bytes(text: &[u8]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut plain: Vec<u8> = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let same = rest.iter().take_while(|b| *b == first).count();
        let letters = rest.iter().zip(LETTERS.iter().cycle()).take_while(|(a, b)| a == b).count();
        let (length, part) = if letters >= MIN_RUN_LENGTH {
            (letters, format!("letters({letters})"))
        } else if same >= MIN_RUN_LENGTH {
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
    // `escape_ascii` also escapes single quotes, but Python accepts this escape.
    format!("b\"{}\"", text.escape_ascii())
}
