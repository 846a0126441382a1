//! Tests of pages in a real browser (Debian's chromium). To run them, enter `apt-get install chromium`, and then `cargo test -p pmi-conform
//! --test pages -- --ignored`. The variable BROWSER selects a similar browser.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::conform;
use tempfile::TempDir;

/// A scenario that has a finding, because it expects a value that no server returns. The key is a script.
const WRONG: &str = "\
# A key that is a script, <script>document.title = \"broken\"</script>, is shown as it is.
requires rfc13.get.value
ranks 2

use joined
0  send    cmd=put kvsname=$kvs key=<<script>document.title=\"broken\"<</script> value=<<img/src=x>
0  expect  cmd=put_result rc=ok
use barrier
1  send    cmd=get kvsname=$kvs key=<<script>document.title=\"broken\"<</script>
1  expect  cmd=get_result rc=ok value=2
use finalized
";

const RIGHT: &str = "\
# A process group has a universe size.
requires rfc13.universe.size

use joined
0  send    cmd=get_universe_size
0  expect  cmd=universe_size rc=ok size=<uint 1..>
use finalized
";

/// Opens a page at an address that ends with `hash`. Returns the content of the page after its script has run, and the requests that the
/// browser made.
fn opened(folder: &Path, page: &str, hash: &str) -> (String, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = mpsc::channel();
    let page = page.to_owned();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                continue;
            }
            let mut header = String::new();
            while reader.read_line(&mut header).is_ok_and(|n| n > 2) {
                header.clear();
            }
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{page}",
                page.len()
            );
            if sender.send(line.trim_end().to_owned()).is_err() {
                return;
            }
        }
    });
    let browser = std::env::var("BROWSER").unwrap_or_else(|_| "chromium".to_owned());
    let run = Command::new(&browser)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        // Without this option, the browser contacts its vendor. The page's own policy forbids all other requests; the unit tests check this
        // policy.
        .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
        .arg("--disable-component-update")
        .arg(format!("--user-data-dir={}", folder.join("browser").display()))
        .arg("--dump-dom")
        .arg(format!("http://{address}/{hash}"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let run = run.unwrap_or_else(|e| panic!("{browser}: {e}; these tests need `apt-get install chromium`"));
    assert!(run.status.success(), "{browser}: {}", run.status);
    // The browser has exited, so all of its requests have arrived.
    let mut all = Vec::new();
    while let Ok(line) = requests.recv_timeout(Duration::ZERO) {
        all.push(line);
    }
    (String::from_utf8(run.stdout).unwrap(), all)
}

fn page() -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("wrong.pmi"), WRONG).unwrap();
    fs::write(folder.path().join("right.pmi"), RIGHT).unwrap();
    let ran = conform(folder.path(), &["--memory", ".", "-q", "--report", "html=page.html"]);
    assert_eq!(ran.status, 1, "{}", ran.whole());
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    (folder, page)
}

/// Returns the kind of each element that can be filtered, and whether the element is shown.
fn items(dom: &str) -> Vec<(String, bool)> {
    let tags = dom.split('<').filter(|tag| tag.contains(" data-kind=\""));
    let one = |tag: &str| {
        let tag = tag.split('>').next().unwrap();
        let kind = tag.split("data-kind=\"").nth(1).unwrap().split('"').next().unwrap();
        (kind.to_owned(), !tag.contains(" hidden"))
    };
    tags.map(one).collect()
}

#[test]
#[ignore = "needs a browser: apt-get install chromium"]
fn page_opens_without_fetching_anything() {
    let (folder, page) = page();
    let (dom, requests) = opened(folder.path(), &page, "");
    assert_eq!(requests, ["GET / HTTP/1.1"], "nothing but the page itself");
    assert!(!dom.contains("<title>broken"), "the script in the key was run");
    // The page's own script has run, because only the script shows the filter bar.
    assert!(dom.contains("<form class=\"filters\" role=\"search\" aria-label=\"Filter\">"), "{dom}");
    let items = items(&dom);
    assert!(items.len() >= 5 && items.iter().all(|(_, shown)| *shown), "{items:?}");
    for name in [
        "aria-label=\"Sequence chart: ",
        "<label for=\"show\">",
        "aria-live=\"polite\"",
        "Skip to the findings",
    ] {
        assert!(dom.contains(name), "{name}");
    }
}

#[test]
#[ignore = "needs a browser: apt-get install chromium"]
fn url_fragment_sets_the_page_filter() {
    let (folder, page) = page();
    let (dom, _) = opened(folder.path(), &page, "#show=pass");
    let items_of_passes = items(&dom);
    assert!(items_of_passes.iter().all(|(kind, shown)| (kind == "pass") == *shown), "{items_of_passes:?}");
    assert!(items_of_passes.iter().any(|(_, shown)| *shown));
    let (dom, _) = opened(folder.path(), &page, "#text=no%20such%20words");
    assert!(items(&dom).iter().all(|(_, shown)| !shown), "{:?}", items(&dom));
    // A URL that names a finding shows the finding, regardless of the filter.
    let (dom, _) = opened(folder.path(), &page, "#finding:wrong-rfc13.get.value");
    assert!(dom.contains("id=\"finding:wrong-rfc13.get.value\""));
    assert!(items(&dom).iter().all(|(_, shown)| *shown));
}

#[test]
#[ignore = "needs a browser: apt-get install chromium"]
fn url_fragment_sets_the_matrix_filter() {
    let (folder, _) = page();
    let log = conform(folder.path(), &["--memory", ".", "-q", "--report", "ndjson=run.ndjson"]);
    assert_eq!(log.status, 1, "{}", log.whole());
    let ran = conform(folder.path(), &["report", "matrix", "One=run.ndjson", "run.ndjson", "-o", "pages"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    let index = fs::read_to_string(folder.path().join("pages/index.html")).unwrap();
    let (dom, requests) = opened(folder.path(), &index, "#show=passes");
    assert_eq!(requests, ["GET / HTTP/1.1"], "nothing but the page itself");
    let items = items(&dom);
    assert!(items.iter().all(|(kind, shown)| (kind == "passes") == *shown), "{items:?}");
    assert!(items.iter().any(|(_, shown)| *shown) && items.iter().any(|(_, shown)| !shown), "{items:?}");
    // The red word is a link to the finding.
    let link = dom.split("href=\"runs/").nth(2).unwrap().split('"').next().unwrap();
    assert!(folder.path().join("pages/runs").join(link.split('#').next().unwrap()).is_file(), "{link}");
}
