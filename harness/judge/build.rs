//! The files of `golden` are embedded; cargo does not see them by itself.
fn main() {
    println!("cargo:rerun-if-changed=golden");
    println!("cargo:rerun-if-changed=build.rs");
}
