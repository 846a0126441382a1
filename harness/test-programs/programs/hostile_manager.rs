//! A process manager that misbehaves, for the tests of the runner: `hostile-manager MODE RANKS PROGRAM`.
//!
//! It starts the program once for each rank. In some modes, it passes on a wrong or incomplete environment. In all other modes, it
//! misbehaves when the first request arrives.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, exit};
use std::time::Duration;

/// Size of a flood. No runner should read all of it.
const FLOOD: usize = 1 << 30;

struct Rank {
    process: Child,
    connection: UnixStream,
}

fn start(mode: &str, rank: u32, size: u32, program: &str) -> std::io::Result<Rank> {
    let (connection, theirs) = UnixStream::pair()?;
    let mut command = Command::new(program);
    if mode == "renamed" {
        // Imitate launchers that do not pass on the environment or the program's name.
        command.env_clear().arg0("rank");
    }
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
    match mode {
        "no-fd" => command.env_remove("PMI_FD"),
        "wrong-fd" => command.env("PMI_FD", "777"),
        _ => command.env("PMI_FD", theirs.as_raw_fd().to_string()),
    };
    command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", size.to_string());
    Ok(Rank { process: command.spawn()?, connection })
}

fn flood(mut to: impl Write, chunk: &[u8]) {
    for _ in 0..FLOOD / chunk.len() {
        if to.write_all(chunk).is_err() {
            return;
        }
    }
}

fn wait_for_all(ranks: &mut [Rank]) -> ! {
    for rank in ranks {
        let _ = rank.process.wait();
    }
    exit(0)
}

pub(crate) fn main() {
    if let Err(error) = run() {
        eprintln!("hostile-manager: {error}");
        exit(1);
    }
}

fn run() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(mode), Some(size), Some(program)) = (args.next(), args.next(), args.next()) else {
        eprintln!("usage: hostile-manager MODE RANKS PROGRAM");
        exit(2);
    };
    let size: u32 = size.parse().map_err(std::io::Error::other)?;
    let mut ranks = Vec::new();
    for rank in 0..size {
        ranks.push(start(&mode, rank, size, &program)?);
    }
    let mut request = [0; 4096];
    if ranks[0].connection.read(&mut request)? == 0 {
        wait_for_all(&mut ranks);
    }
    let connection = &ranks[0].connection;
    match mode.as_str() {
        "crash" => std::process::abort(),
        "hang" => std::thread::sleep(Duration::from_secs(1000)),
        "silent" => while (&ranks[0].connection).read(&mut request)? > 0 {},
        "late" => {
            // The runner cannot see this time limit, because it is a property of the socket and not an argument of a system call.
            connection.set_read_timeout(Some(Duration::from_millis(700)))?;
            let mut stream = connection;
            while stream.read(&mut request).is_ok() {}
            stream.write_all(b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n")?;
            while !matches!(stream.read(&mut request), Ok(0)) {}
        }
        "polls" => {
            // This mode polls the connection periodically, and answers only init.
            let mut stream = connection;
            stream.write_all(b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n")?;
            stream.set_nonblocking(true)?;
            while !matches!(stream.read(&mut request), Ok(0)) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        "flood" => flood(connection, &[b'x'; 60_000]),
        "flood-lines" => flood(connection, &[b'\n'; 60_000]),
        "noise" => {
            flood(std::io::stderr(), &[b'\n'; 60_000]);
            std::thread::sleep(Duration::from_secs(1000));
        }
        "junk" => {
            let junk: Vec<u8> = (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            (&ranks[0].connection).write_all(&junk)?;
        }
        // In all other modes, this process exits, which closes its connections. In some of these modes, it has already misbehaved in
        // `start`.
        _ => exit(1),
    }
    wait_for_all(&mut ranks)
}
