//! Reports the exit status of Hydra's proxies if the harness cannot get the status from the kernel. mpiexec reaps its proxies, and prints
//! the same message for a crash as for a normal exit. mpiexec looks for its proxy in the folder that it was started from. If mpiexec is
//! started through a link in our own folder, it therefore starts the script next to the link. The script starts the real proxy and prints
//! its exit status.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tempfile::TempDir;

use pmi_runner::party::server::Implementation;

/// The beginning of the line that reports a proxy's death.
const MARK: &str = "pmi-conform-proxy-status: ";

/// The name of Hydra's proxy, which is in the same folder as mpiexec.
const PROXY: &str = "hydra_pmi_proxy";

/// The folder with the link and the script, which is removed on drop.
pub(crate) struct ProxyStatus {
    _folder: TempDir,
}

/// Creates the link and the script for Hydra's mpiexec, and replaces mpiexec with the link in the command. For any other implementation,
/// changes nothing and returns `None`.
pub(crate) fn install(implementation: &mut Implementation) -> io::Result<Option<ProxyStatus>> {
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

/// Returns the program and the signal that killed it, or `None` if this line does not come from the script.
pub(crate) fn read(line: &str) -> Option<(String, i32)> {
    let (name, signal) = line.strip_prefix(MARK)?.split_once(' ')?;
    Some((name.to_owned(), signal.trim().parse().ok()?))
}

/// Returns whether an mpiexec is Hydra's. The mpiexec of gforker, for example, has the same name.
fn is_hydra(program: &Path) -> bool {
    fs::read(program).is_ok_and(|bytes| memchr::memmem::find(&bytes, PROXY.as_bytes()).is_some())
}
