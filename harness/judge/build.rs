//! Cargo does not detect changes in the embedded directory `golden` on its own.
fn main() {
    println!("cargo:rerun-if-changed=golden");
    println!("cargo:rerun-if-changed=build.rs");
}
