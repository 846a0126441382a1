//! The suite is embedded in the binary; cargo does not see its files by itself.
fn main() {
    println!("cargo:rerun-if-changed=scenarios");
    println!("cargo:rerun-if-changed=golden");
    println!("cargo:rerun-if-changed=build.rs");
}
