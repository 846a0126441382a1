//! scratch
use pmi_conform::{agent, launch::*, play::*, suite::*};
use std::sync::Arc;
fn main() {
    let argv: Vec<_> = std::env::args_os().collect();
    if agent::is_agent(&argv[0]) { std::process::exit(agent::main(argv) as i32); }
    let suite = match Suite::embedded() { Ok(s) => s, Err(SuiteError::Diagnostics(d)) => { for d in d { println!("{}", d.render(false)); } return; } Err(e) => { println!("{e:?}"); return } };
    let which = std::env::args().nth(1).unwrap_or_default();
    let filter = std::env::args().nth(2).unwrap_or_default();
    let env = Environment { binary: std::env::current_exe().unwrap(), interrupted: Arc::default() };
    let mut counts = [0; 3];
    for s in &suite.scenarios {
        if !s.name.contains(&filter) { continue }
        let frag = |n: &str| suite.fragment(n);
        let o = if which == "mem" {
            let mut peer = MemoryPeer::launch(pmi_reference::Config { nodes: s.nodes, ..Default::default() }, s.ranks);
            play(s, &frag, vec![], &mut peer, Limits::default(), &mut ())
        } else {
            let imp = Implementation::from_argument(&which).unwrap();
            if !imp.can_span(s.nodes) { continue }
            let (mut peer, cmd) = ProcessPeer::launch(&imp, s.ranks, s.nodes, &env).unwrap();
            play(s, &frag, cmd, &mut peer, Limits::default(), &mut ())
        };
        let bad = o.findings.iter().any(|f| f.at_most.is_none() && suite.catalogue.get(&f.requirement).is_none_or(|r| r.severity() == pmi_conform::judge::Severity::Fail));
        counts[if bad || o.unjudged.is_some() || o.scenario_error.is_some() { 1 } else { 0 }] += 1;
        println!("{} {} {} {:?} {:?} {:?}", if bad { "FAIL" } else { "ok  " }, s.name, o.hung, o.crashed, o.unjudged, o.scenario_error);
        for f in &o.findings { println!("    {} [{}] line {} expected {} seen {} {:?}", f.requirement, f.proc.map(|p| p.to_string()).unwrap_or_default(), f.line, f.expected, f.seen, f.at_most); }
        if std::env::var_os("V").is_some() { for e in &o.events { println!("      {:?}", e); } }
    }
    println!("{counts:?}");
}
