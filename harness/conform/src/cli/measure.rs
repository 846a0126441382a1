//! `measure`: how long process managers take, by the number of ranks.

use std::io::Write;

use anyhow::Context;
use pmi_runner::measure::{Measured, Rounds, Unmeasured};
use pmi_runner::party::server::{Environment, Implementation};
use serde_json::json;

use super::args::Measure;
use super::exit::{INTERRUPTED, UNJUDGED};
use super::judge::ends_on_signals;
use super::tell::say;
use crate::report::measure_text;

pub(super) fn measure(args: &Measure) -> anyhow::Result<u8> {
    let environment = Environment::new(ends_on_signals()?, 1)?;
    let mut servers = Vec::new();
    for server in &args.server {
        let implementation = Implementation::from_argument(server).context("--server")?;
        implementation.can_start().context("--server")?;
        anyhow::ensure!(
            !implementation.has_upstream(),
            "--server: a bare proxy is measured with its mpiexec, since its upstream would be ours"
        );
        servers.push(implementation);
    }
    if servers.is_empty() {
        servers.push(Implementation::reference(&environment.binary));
    }
    let mut counts = args.ranks.clone();
    counts.sort_unstable();
    counts.dedup();
    for (server, ranks) in servers.iter().flat_map(|server| counts.iter().map(move |ranks| (server, *ranks)))
    {
        if let Some(why) = server.lacks_room(ranks, args.nodes) {
            anyhow::bail!("{}: {why}", server.label);
        }
    }
    let mut measured: Vec<Vec<Measured>> = servers.iter().map(|_| Vec::new()).collect();
    for ranks in counts {
        let mut rounds: Vec<Rounds> = servers.iter().map(|_| Rounds::default()).collect();
        // In turn, so that a busy machine slows all of them.
        for _ in 0..args.rounds {
            for (server, rounds) in servers.iter().zip(&mut rounds) {
                match rounds.play(server, ranks, args.nodes, args.timeout, &environment) {
                    Ok(()) => {}
                    Err(Unmeasured::Interrupted) => return Ok(INTERRUPTED),
                    Err(error) => {
                        writeln!(anstream::stderr(), "error: {}: {error}", server.label)?;
                        return Ok(UNJUDGED);
                    }
                }
            }
        }
        for (of, rounds) in measured.iter_mut().zip(rounds) {
            of.push(rounds.finish(ranks));
        }
    }
    let labels = servers.iter().map(|server| server.label.as_str());
    if args.json {
        let all = labels.clone().zip(&measured).map(|(of, numbers)| json!({ "of": of, "measured": numbers }));
        say(&format!("{:#}\n", serde_json::Value::Array(all.collect())))?;
    } else {
        let tables = labels
            .clone()
            .zip(&measured)
            .enumerate()
            .map(|(at, (label, of))| measure_text(label, of, (at > 0).then_some(measured[0].as_slice())));
        say(&tables.collect::<Vec<_>>().join("\n"))?;
    }
    let mut exceeded = false;
    for (label, of) in labels.zip(&measured) {
        for (phase, most) in &args.budget {
            for here in of.iter().filter(|here| here.seconds.get(phase).is_some_and(|took| took > most)) {
                exceeded = true;
                writeln!(
                    anstream::stderr(),
                    "over the budget: {label}: {} of {} ranks takes longer than {most} s",
                    phase.name(),
                    here.ranks
                )?;
            }
        }
    }
    Ok(u8::from(exceeded))
}
