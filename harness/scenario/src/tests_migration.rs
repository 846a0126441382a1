
use std::sync::Arc;
use crate::ast::*;
use crate::suite::Suite;
use crate::Behaviours;

fn load(root: &str) -> Suite {
    let mut files = Vec::new();
    fn walk(dir: &std::path::Path, root: &std::path::Path, out: &mut Vec<(String, Arc<Source>)>) {
        for e in std::fs::read_dir(dir).unwrap() {
            let p = e.unwrap().path();
            if p.is_dir() { walk(&p, root, out) } else if p.extension().is_some_and(|e| e == "pmi") {
                let name = p.strip_prefix(root).unwrap().with_extension("").display().to_string();
                if name.starts_with("pmi2") || name.starts_with("fragments") { continue; }
                out.push((name, Arc::new(Source { path: p.display().to_string(), text: std::fs::read_to_string(&p).unwrap() })));
            }
        }
    }
    let root = std::path::Path::new(root);
    walk(root, root, &mut files);
    let mut suite = Suite::without_scenarios(Behaviours::default()).unwrap();
    let wrong = suite.add_for_test(files);
    for w in &wrong { eprintln!("{w}"); }
    assert!(wrong.is_empty());
    suite
}

#[test]
fn migrated() {
    let old = load(&std::env::var("OLD").unwrap());
    let new = load("scenarios");
    let mut n = 0;
    for o in &old.scenarios {
        let Some(x) = new.scenarios.iter().find(|x| x.name == o.name) else { eprintln!("LOST {}", o.name); n+=1; continue };
        if o.body != x.body || o.requires != x.requires || o.ranks != x.ranks || o.needs != x.needs {
            n += 1;
            eprintln!("DIFF {}", o.name);
            if o.requires != x.requires { eprintln!("  {:?}\n  {:?}", o.requires.iter().map(|r| &r.value).collect::<Vec<_>>(), x.requires.iter().map(|r| &r.value).collect::<Vec<_>>()); }
            let (a, b) = (crate::print(o), crate::print(x));
            for (a, b) in a.lines().zip(b.lines()).filter(|(a,b)| a != b).take(4) { eprintln!("  - {a}\n  + {b}"); }
        }
    }
    eprintln!("{} old, {} new, {n} differ", old.scenarios.len(), new.scenarios.len());
}
