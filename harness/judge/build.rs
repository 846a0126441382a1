//! Cargo does not detect changes of the embedded directory `golden` by itself.
fn main() {
    println!("cargo:rerun-if-changed=golden");
    println!("cargo:rerun-if-changed=build.rs");
}
