//! The files of `scenarios` are embedded; cargo does not see them by itself.
fn main() {
    println!("cargo:rerun-if-changed=scenarios");
    println!("cargo:rerun-if-changed=build.rs");
}
