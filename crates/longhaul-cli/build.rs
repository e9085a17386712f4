//! Puts the functions that every run needs next to each other, in release builds: a run of one agent takes less than half the
//! memory (docs/decisions/0013-functions-that-runs-need-are-linked-together.md). `LONGHAUL_LINK_ORDER=off` turns it off.

use std::env::var;
use std::path::Path;
use std::process::{Command, Stdio};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=link-order.ld");
    println!("cargo:rerun-if-env-changed=LONGHAUL_LINK_ORDER");
    let is = |name: &str, value: &str| var(name).is_ok_and(|found| found == value);
    // Without this flag (`.cargo/config.toml`) functions have other names.
    let usual_names =
        var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("symbol-mangling-version=v0"));
    if is("LONGHAUL_LINK_ORDER", "off")
        || !is("TARGET", "x86_64-unknown-linux-gnu")
        || !is("HOST", "x86_64-unknown-linux-gnu")
        || !is("PROFILE", "release")
        || !usual_names
    {
        return;
    }
    let order = format!("-T{}/link-order.ld", var("CARGO_MANIFEST_DIR").unwrap_or_default());
    // A loader older than glibc 2.36 refuses a program with packed relocations.
    for arg in [order.as_str(), "-Wl,-z,pack-relative-relocs"] {
        if works(arg) {
            println!("cargo:rustc-link-arg-bins={arg}");
        } else {
            println!(
                "cargo:warning=this linker or loader does not take {arg}: the program is linked without"
            );
        }
    }
}

/// Whether a program that is linked with this argument can be built, and starts.
fn works(link_arg: &str) -> bool {
    let directory = var("OUT_DIR").unwrap_or_default();
    let [source, program] = ["probe.rs", "probe"].map(|name| Path::new(&directory).join(name));
    if std::fs::write(&source, "fn main() {}").is_err() {
        return false;
    }
    let mut rustc = Command::new(var("RUSTC").unwrap_or_default());
    let flags = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    if let Ok(linker) = var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    rustc.arg(format!("-Clink-arg={link_arg}")).arg("-o").arg(&program).arg(&source);
    let succeeds = |command: &mut Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    succeeds(&mut rustc) && succeeds(&mut Command::new(&program))
}
