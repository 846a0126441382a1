//! `measure`: measures the phases of a job for different numbers of ranks.

use std::io::Write;

use anyhow::Context;
use pmi_runner::measure::{
    Load, MeasureError, MeasuredPhase, Measurement, Plan, RoundResults, growth, memory_per_rank, soak,
};
use pmi_runner::party::server::{Implementation, LaunchEnvironment};
use serde_json::{Value, json};

use super::args::Measure;
use super::exit::{INTERRUPTED, UNJUDGED};
use super::output::print_result;
use super::play::{claim, ends_on_signals};
use crate::report::{count, measure_page, measure_text, soak_page, soak_text};

pub(super) fn measure(args: &Measure) -> anyhow::Result<u8> {
    let environment = LaunchEnvironment::new(ends_on_signals()?, 1)?;
    let mut servers = Vec::new();
    for server in &args.server {
        let implementation = Implementation::from_argument(server).context("--server")?;
        implementation.check_commands().context("--server")?;
        anyhow::ensure!(
            !implementation.has_upstream(),
            "--server: a bare proxy cannot be measured, since pmi-conform would be its upstream; name its mpiexec"
        );
        servers.push(implementation);
    }
    if servers.is_empty() {
        servers.push(Implementation::reference(&environment.binary));
    }
    servers.iter_mut().try_for_each(|server| claim(server, &args.lacks, false))?;
    let mut counts = args.ranks.clone();
    counts.sort_unstable();
    counts.dedup();
    for (server, ranks) in servers.iter().flat_map(|server| counts.iter().map(move |ranks| (server, *ranks)))
    {
        if let Some(why) = server.capacity_problem(ranks, args.nodes) {
            anyhow::bail!("{}: {why}", server.label);
        }
    }
    let plan =
        Plan { dialect: args.dialect, nodes: args.nodes, response_timeout: args.timeout, is_judged: false };
    if let (Some(time), Some(ranks)) = (args.soak, counts.last()) {
        return soak_all(args, &servers, *ranks, plan, Load { time, requests: args.requests }, &environment);
    }
    let mut measured: Vec<Vec<Measurement>> = servers.iter().map(|_| Vec::new()).collect();
    let mut failed = vec![false; servers.len()];
    for ranks in counts {
        let mut rounds: Vec<RoundResults> = servers.iter().map(|_| RoundResults::default()).collect();
        // The servers take turns, so that other load on the machine affects all of them.
        for _ in 0..args.rounds {
            for ((server, rounds), failed) in servers.iter().zip(&mut rounds).zip(&mut failed) {
                if *failed {
                    continue;
                }
                match rounds.play(server, ranks, plan, &environment) {
                    Ok(()) => {}
                    Err(MeasureError::Interrupted) => return Ok(INTERRUPTED),
                    Err(error) => {
                        writeln!(anstream::stderr(), "error: {}: {error}", server.label)?;
                        *failed = true;
                    }
                }
            }
        }
        for (of, rounds) in measured.iter_mut().zip(rounds) {
            of.push(rounds.finish(ranks));
        }
    }
    let labels = servers.iter().map(|server| server.label.as_str());
    let all: Vec<(&str, &[Measurement])> = labels.zip(measured.iter().map(Vec::as_slice)).collect();
    let results: Vec<Value> = all.iter().map(|(label, of)| as_json(label, of)).collect();
    print_result(args.json, &results, |out| {
        let table = |(at, (label, of)): (usize, &(&str, &[Measurement]))| {
            measure_text(label, of, (at > 0).then_some(all[0].1))
        };
        out.write_all(all.iter().enumerate().map(table).collect::<Vec<_>>().join("\n").as_bytes())
    })?;
    if let Some(file) = &args.report {
        let page = measure_page(&all, args.dialect.title(), args.rounds, args.nodes)?;
        std::fs::write(file, page).with_context(|| file.display().to_string())?;
    }
    let mut exceeded = false;
    for (label, of) in all {
        for (phase, most) in &args.budget {
            for here in of.iter().filter(|here| here.seconds.get(phase).is_some_and(|took| took > most)) {
                exceeded = true;
                writeln!(
                    anstream::stderr(),
                    "over the budget: {label}: {} with {} takes longer than {most} s",
                    phase.name(),
                    count(here.ranks as usize, "rank")
                )?;
            }
        }
    }
    Ok(if failed.contains(&true) { UNJUDGED } else { u8::from(exceeded) })
}

/// Runs a soak test on each process manager.
fn soak_all(
    args: &Measure,
    servers: &[Implementation],
    ranks: u32,
    plan: Plan,
    load: Load,
    environment: &LaunchEnvironment,
) -> anyhow::Result<u8> {
    let mut all = Vec::new();
    for server in servers {
        match soak(server, ranks, plan, load, environment) {
            Ok(soak) => all.push((server.label.as_str(), soak)),
            Err(MeasureError::Interrupted) => return Ok(INTERRUPTED),
            Err(error) => {
                writeln!(anstream::stderr(), "error: {}: {error}", server.label)?;
                return Ok(UNJUDGED);
            }
        }
    }
    let results: Vec<Value> = all.iter().map(|(label, soak)| json!({ "of": label, "soak": soak })).collect();
    print_result(args.json, &results, |out| {
        let tables: Vec<String> = all.iter().map(|(label, soak)| soak_text(label, soak)).collect();
        out.write_all(tables.join("\n").as_bytes())
    })?;
    if let Some(file) = &args.report {
        let page = soak_page(&all, args.dialect.title(), args.nodes)?;
        std::fs::write(file, page).with_context(|| file.display().to_string())?;
    }
    Ok(u8::from(all.iter().any(|(_, soak)| !soak.findings.is_empty())))
}

/// Returns the measurements of a process manager as JSON, with the growth of each phase and the memory per rank.
fn as_json(label: &str, measured: &[Measurement]) -> Value {
    let grows = |phase: MeasuredPhase| {
        let points: Vec<_> =
            measured.iter().filter_map(|of| Some((of.ranks, *of.seconds.get(&phase)?))).collect();
        growth(&points)
    };
    let growth: serde_json::Map<String, Value> = MeasuredPhase::NAMES
        .into_iter()
        .filter_map(|(name, phase)| Some((name.to_owned(), json!(grows(phase)?))))
        .collect();
    json!({ "of": label, "measured": measured, "growth": growth, "memory_per_rank": memory_per_rank(measured) })
}
