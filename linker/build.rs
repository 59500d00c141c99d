//! Asks the linker for a static program at fixed addresses, with no start files and no libraries, laid out by `link.ld`.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/link.ld");
    println!("cargo:rerun-if-changed={script}");
    let layout = format!("-Wl,-T,{script},--build-id=none,--no-eh-frame-hdr");
    for arg in ["-nostartfiles", "-nodefaultlibs", "-static", "-no-pie", &layout] {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
}
