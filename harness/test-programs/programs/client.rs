//! A small program that runs as a rank and connects through PMI_FD or PMI_PORT. The tests of `serve` and `record`, benchmarks, and
//! comparisons of process managers use it.
//!
//! The first argument selects the mode:
//!
//! * `exchange` (also without arguments): put a key, enter the barrier, and get the key of every rank
//! * `neighbours K`: like `exchange`, but get only the keys of the next K ranks
//! * `exit RANK STATUS`, `die RANK`, `abort RANK STATUS`, `junk RANK`: after init, that rank misbehaves, and all others wait in the barrier
//! * `quit RANK STATUS`: after finalize, that rank closes its connection and exits with a status
//! * `leave RANK`: after init, that rank closes its connection and continues to run
//! * `spawn N PROGRAM ARGS...`: rank 0 spawns N processes and prints the answer
//! * `child`: print the value that the parent has put for the spawned process
//! * `flood N`: send N requests, or fewer if the server stops reading, and then read all answers

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::process;
use std::time::Duration;

use pmi_reference::client::{Client, ClientMisuse, ServerResponse};
use pmi_wire::SpawnProgram;
use pmi_wire::port::{Greeting, LINES, address, initack};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Rank {
    rank: u32,
    size: u32,
    /// The connection, from PMI_FD or PMI_PORT.
    socket: UnixStream,
    client: Client,
    buffer: Vec<u8>,
}

impl Rank {
    fn ask(
        &mut self,
        request: impl FnOnce(&mut Client) -> std::result::Result<Vec<u8>, ClientMisuse>,
    ) -> Result<ServerResponse> {
        self.socket.write_all(&request(&mut self.client)?)?;
        self.answer()
    }

    fn answer(&mut self) -> Result<ServerResponse> {
        loop {
            let n = self.socket.read(&mut self.buffer)?;
            if n == 0 {
                self.client.closed()?;
                return Err("end of connection".into());
            }
            if let Some(answer) = self.client.receive(&self.buffer[..n]) {
                return Ok(answer?);
            }
        }
    }

    fn exchange(&mut self, neighbours: u32) -> Result<()> {
        // Hydra does not preserve spaces in values, so this value contains none.
        let value = |rank: u32| format!("the-address-of-rank-{rank}");
        let (key, own) = (format!("addr-{}", self.rank), value(self.rank));
        let put = self.ask(|c| c.put(key.as_bytes(), own.as_bytes()))?;
        expect(put, &ServerResponse::Done("put"))?;
        expect(self.ask(Client::barrier)?, &ServerResponse::Barrier)?;
        for i in 0..neighbours {
            let other = (self.rank + i) % self.size;
            let got = self.ask(|c| c.get(format!("addr-{other}").as_bytes()))?;
            expect(got, &ServerResponse::Value(value(other).into_bytes()))?;
        }
        Ok(())
    }
}

fn expect(found: ServerResponse, expected: &ServerResponse) -> Result<()> {
    if found == *expected { Ok(()) } else { Err(format!("{found:?} instead of {expected:?}").into()) }
}

fn variable(name: &str) -> Result<u32> {
    Ok(env::var(name).map_err(|error| format!("{name}: {error}"))?.parse()?)
}

/// Returns the connection, the rank of this process and the size of its group.
fn connect() -> Result<(UnixStream, u32, u32)> {
    if env::var_os("PMI_FD").is_none()
        && let Ok(port) = env::var("PMI_PORT")
    {
        let mut stream = TcpStream::connect(address(&port).ok_or("PMI_PORT is not an address")?)?;
        writeln!(stream, "{}", initack(&env::var("PMI_ID")?))?;
        let mut text = String::new();
        let mut lines = BufReader::with_capacity(1, stream.try_clone()?);
        for _ in 0..LINES {
            lines.read_line(&mut text)?;
        }
        let Greeting { rank, size } = Greeting::parse(text.as_bytes())?;
        return Ok((OwnedFd::from(stream).into(), rank, size));
    }
    let fd = i32::try_from(variable("PMI_FD")?)?;
    // SAFETY: RFC 13 requires PMI_FD to name a descriptor that was opened for this process, and nothing else in this process owns it.
    let socket = unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) };
    Ok((socket, variable("PMI_RANK")?, variable("PMI_SIZE")?))
}

fn run() -> Result<()> {
    let args: Vec<_> = env::args_os().skip(1).collect();
    let mode = args.first().and_then(|mode| mode.to_str()).unwrap_or("exchange").to_owned();
    let number = |i: usize| -> Result<u32> {
        let arg = args.get(i).and_then(|arg| arg.to_str()).ok_or("an argument is missing")?;
        Ok(arg.parse()?)
    };
    let (socket, rank, size) = connect()?;
    let mut this = Rank { rank, size, socket, client: Client::new(), buffer: vec![0; 8192] };
    this.ask(Client::init)?;
    this.ask(Client::maxes)?;
    this.ask(Client::kvsname)?;
    let chosen = matches!(&*mode, "exit" | "die" | "abort" | "junk" | "leave") && number(1)? == rank;
    match &*mode {
        "exchange" => this.exchange(size)?,
        "neighbours" => this.exchange(number(1)?.min(size))?,
        "quit" => {
            this.ask(Client::finalize)?;
            process::exit(if number(1)? == rank { number(2)? as i32 } else { 0 });
        }
        "exit" if chosen => process::exit(number(2)? as i32),
        "die" if chosen => process::abort(),
        "abort" if chosen => {
            let status = number(2)?;
            expect(this.ask(|c| c.abort(Some(status.into())))?, &ServerResponse::AbortAck)?;
        }
        "junk" if chosen => this.socket.write_all(b"cmd=ju\tnk \x1b[31m\n")?,
        "leave" if chosen => this.socket.shutdown(std::net::Shutdown::Both)?,
        "exit" | "die" | "abort" | "junk" | "leave" => _ = this.ask(Client::barrier)?,
        "spawn" if rank == 0 && env::var_os("PMI_SPAWNED").is_none() => {
            let text = |i: usize| args.get(i).cloned().unwrap_or_default().into_vec();
            let program = SpawnProgram {
                nprocs: number(1)?.into(),
                execname: text(2),
                args: (3..args.len()).map(|i| (0, text(i))).collect(),
                preput: vec![(b"from-parent".to_vec(), b"hello child".to_vec())],
                ..SpawnProgram::default()
            };
            println!("{:?}", this.ask(|c| c.spawn(&[program]))?);
        }
        "spawn" => {}
        "child" => println!("{:?}", this.ask(|c| c.get(b"from-parent"))?),
        "flood" => {
            let n = number(1)?;
            let mut writer = this.socket.try_clone()?;
            writer.set_write_timeout(Some(Duration::from_millis(500)))?;
            let line = b"cmd=get_my_kvsname\n";
            // Send requests until the server stops reading.
            let sent = (0..n).take_while(|_| matches!(writer.write(line), Ok(n) if n == line.len())).count();
            println!("{}", if sent < n as usize { "held back" } else { "all taken" });
            let mut lines = 0;
            while lines < sent {
                let n = this.socket.read(&mut this.buffer)?;
                if n == 0 {
                    return Err("end of connection".into());
                }
                lines += this.buffer[..n].iter().filter(|byte| **byte == b'\n').count();
            }
        }
        _ => return Err(format!("unknown mode {mode:?}").into()),
    }
    if chosen {
        // The process manager must kill this process before the sleep is over.
        std::thread::sleep(Duration::from_secs(60));
        return Err("the process manager did not kill this process".into());
    }
    expect(this.ask(Client::finalize)?, &ServerResponse::Finalized)
}

pub(crate) fn main() {
    if let Err(error) = run() {
        let rank = env::var("PMI_RANK").unwrap_or_default();
        _ = std::io::stderr().write_all(format!("pmi-client: rank {rank}: {error}\n").as_bytes());
        process::exit(99);
    }
}
