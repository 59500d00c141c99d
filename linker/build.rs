//! Asks the linker for a static program with no start files and no default libraries.
fn main() {
    for arg in ["-nostartfiles", "-nodefaultlibs", "-static", "-no-pie"] {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
}
