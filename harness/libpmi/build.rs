//! Sets the soname under which programs search for the shared library: major version 0, as RFC 13 requires.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpmi.so.0");
    }
}
