//! Learns how Hydra's proxies end where the kernel does not tell: mpiexec reaps them, and what it says about one is the same for a
//! crash and for an end in good order.
//!
//! mpiexec looks for its proxy in the folder that it was started from. A link to it in a folder of ours therefore
//! starts what lies beside the link: some lines of shell that start the real proxy and tell how it ended.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tempfile::TempDir;

use pmi_runner::party::server::Implementation;

/// Begins the line that tells of a proxy's death.
const MARK: &str = "pmi-conform-proxy-status: ";

/// Names of a folder in which mpiexec and its proxy lie side by side.
const PROXY: &str = "hydra_pmi_proxy";

/// The folder; it goes with this.
pub(super) struct ProxyStatus {
    _folder: TempDir,
}

/// Puts the lines of shell in the way of an implementation that is Hydra's mpiexec; changes its command. Of others nothing is
/// changed.
pub(super) fn install(implementation: &mut Implementation) -> io::Result<Option<ProxyStatus>> {
    let program = Path::new(&implementation.template()[0]);
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Ok(real) = fs::canonicalize(program) else { return Ok(None) };
    let proxy = real.with_file_name(PROXY);
    if !name.starts_with("mpiexec") || !is_hydra(&real) || !proxy.is_file() {
        return Ok(None);
    }
    let folder = tempfile::Builder::new().prefix("pmi-conform-proxy-").tempdir()?;
    let link = folder.path().join(&name);
    symlink(&real, &link)?;
    let quoted = shell_words::quote(&proxy.to_string_lossy()).into_owned();
    let script = format!(
        "#!/bin/sh\n{quoted} \"$@\"\nstatus=$?\ncase $status in\n132|134|135|136|139) echo \"{MARK}{PROXY} \
         $((status - 128))\" >&2;;\nesac\nexit $status\n"
    );
    let file = folder.path().join(PROXY);
    fs::write(&file, script)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    implementation.set_program(link.to_string_lossy().into_owned());
    Ok(Some(ProxyStatus { _folder: folder }))
}

/// The program and the signal that it died of, if a line of output is one of ours.
pub(super) fn read(line: &str) -> Option<(String, i32)> {
    let (name, signal) = line.strip_prefix(MARK)?.split_once(' ')?;
    Some((name.to_owned(), signal.trim().parse().ok()?))
}

/// gforker and others are called mpiexec as well.
fn is_hydra(program: &Path) -> bool {
    fs::read(program).is_ok_and(|bytes| memchr::memmem::find(&bytes, PROXY.as_bytes()).is_some())
}
