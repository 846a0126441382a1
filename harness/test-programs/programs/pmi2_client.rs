//! A small program that runs as a rank and speaks PMI-2, for the tests of `record`. It is based only on messages that were observed on the
//! wire.
//!
//! The first argument selects the mode:
//!
//! * `exchange` (also without arguments): put a key, enter the fence, get the key of the next rank, and wait for an attribute of the node
//! * `strict`: like `exchange`, but exit with status 3 if the response to fullinit has no `pmi-version` (real libraries fail too)
//! * `leave RANK STATUS`: after fullinit, that rank exits with a status, and all others wait in a fence
//! * `abort RANK`: that rank aborts, and all others wait in a fence
//! * `spawn N PROGRAM ARGS...`: rank 0 spawns N processes
//! * `draft`: send requests that only the draft describes, which the server may refuse
//! * `child`: get the values that were put for the spawned process

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Rank {
    rank: u32,
    stream: BufReader<UnixStream>,
}

impl Rank {
    /// Sends a request as a frame with a left-aligned length, and returns the response.
    fn ask(&mut self, request: &str) -> Result<String> {
        self.send(request)?;
        self.next()
    }

    /// Reads the next message.
    fn next(&mut self) -> Result<String> {
        let mut header = [0; 6];
        self.stream.read_exact(&mut header)?;
        let mut body = vec![0; std::str::from_utf8(&header)?.trim().parse()?];
        self.stream.read_exact(&mut body)?;
        Ok(String::from_utf8(body)?)
    }

    fn send(&mut self, request: &str) -> Result<()> {
        let frame = format!("{:<6}{request}", request.len());
        Ok(self.stream.get_mut().write_all(frame.as_bytes())?)
    }

    /// Makes a request, and requires a certain value in the response.
    fn value(&mut self, request: &str, expected: &str) -> Result<()> {
        let answer = self.ask(request)?;
        let value = tuple(&answer, "value").ok_or_else(|| format!("{request} has no value in {answer}"))?;
        println!("{value}");
        if value == expected { Ok(()) } else { Err(format!("{value} instead of {expected}").into()) }
    }
}

fn tuple<'a>(body: &'a str, key: &str) -> Option<&'a str> {
    body.split(';').filter_map(|tuple| tuple.split_once('=')).find(|(name, _)| *name == key).map(|t| t.1)
}

fn variable(name: &str) -> Result<i32> {
    Ok(env::var(name).map_err(|error| format!("{name}: {error}"))?.parse()?)
}

fn run() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let mode = args.first().map_or("exchange", String::as_str);
    let number = |i: usize| -> Result<u32> { Ok(args.get(i).ok_or("an argument is missing")?.parse()?) };
    // SAFETY: PMI_FD names a descriptor that was opened for this process, and nothing else in this process owns it.
    let stream: UnixStream = unsafe { std::os::fd::FromRawFd::from_raw_fd(variable("PMI_FD")?) };
    let mut this = Rank { rank: variable("PMI_RANK")? as u32, stream: BufReader::new(stream) };
    this.stream.get_mut().write_all(b"cmd=init pmi_version=2 pmi_subversion=0\n")?;
    let mut line = String::new();
    this.stream.read_line(&mut line)?;
    let response = this.ask(&format!("cmd=fullinit;pmijobid=job;pmirank={};threaded=FALSE;", this.rank))?;
    let size: u32 = tuple(&response, "size").ok_or("no size")?.parse()?;
    match mode {
        "strict" if tuple(&response, "pmi-version").is_none() => process::exit(3),
        "exchange" | "strict" => {
            let response = this.ask("cmd=job-getid;")?;
            let job = tuple(&response, "jobid").ok_or("no jobid")?.to_owned();
            this.ask(&format!("cmd=kvs-put;key=addr-{0};value=host-{0}:port a;", this.rank))?;
            this.ask("cmd=kvs-fence;")?;
            let next = (this.rank + 1) % size;
            let expected = format!("host-{next}:port a");
            this.value(&format!("cmd=kvs-get;jobid={job};srcid=-1;key=addr-{next};"), &expected)?;
            this.ask("cmd=kvs-get;key=nosuch;")?;
            this.ask("cmd=info-getjobattr;key=PMI_process_mapping;")?;
            if this.rank == 0 {
                this.ask("cmd=info-putnodeattr;key=there;value=yes;")?;
            }
            this.value("cmd=info-getnodeattr;key=there;wait=TRUE;", "yes")?;
        }
        "draft" => {
            for command in ["job-connect", "kvs-getall"] {
                let response = this.ask(&format!("cmd={command};jobid=job;"))?;
                println!("rc={}", tuple(&response, "rc").ok_or("no rc")?);
            }
        }
        "leave" if number(1)? == this.rank => process::exit(number(2)? as i32),
        "abort" if number(1)? == this.rank => {
            this.send("cmd=abort;isworld=TRUE;msg=enough;")?;
            // The process manager must kill this process before the sleep is over.
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
        "leave" | "abort" => _ = this.ask("cmd=kvs-fence;")?,
        "spawn" if this.rank == 0 => {
            let argv = args.iter().skip(3).enumerate().map(|(i, arg)| format!("argv{i}={arg};"));
            let argv: String = argv.collect();
            let argc = args.len().saturating_sub(3);
            let request = format!(
                "cmd=spawn;ncmds=1;preputcount=1;ppkey0=from-parent;ppval0=hello;subcmd={};maxprocs={};argc={argc};{argv}infokeycount=0;",
                args.get(2).ok_or("no program")?,
                number(1)?
            );
            println!("rc={}", tuple(&this.ask(&request)?, "rc").ok_or("no rc")?);
        }
        "spawn" => {}
        "child" => this.value("cmd=kvs-get;key=from-parent;", "hello")?,
        _ => return Err(format!("unknown mode {mode:?}").into()),
    }
    this.ask("cmd=finalize;").map(drop)
}

pub(crate) fn main() {
    if let Err(error) = run() {
        let rank = env::var("PMI_RANK").unwrap_or_default();
        _ = std::io::stderr().write_all(format!("pmi2-client: rank {rank}: {error}\n").as_bytes());
        process::exit(99);
    }
}
