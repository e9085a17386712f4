//! Puts the functions that every run needs next to each other, in release builds: a run of one agent takes half the memory
//! (docs/decisions/0013-functions-that-runs-need-are-linked-together.md).

use std::env::var;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=link-order.ld");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let flags = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    // Other linkers may not know such scripts, and without this flag (`.cargo/config.toml`) functions have other names.
    let usual_linker = var("RUSTC_LINKER").is_err() && !flags.contains("link");
    let usual_names = flags.contains("symbol-mangling-version=v0");
    let is = |name: &str, value: &str| var(name).is_ok_and(|found| found == value);
    if !(is("TARGET", "x86_64-unknown-linux-gnu") && is("PROFILE", "release") && usual_linker && usual_names)
    {
        return;
    }
    let directory = var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rustc-link-arg-bins=-Wl,-T,{directory}/link-order.ld");
    if is("HOST", "x86_64-unknown-linux-gnu") && loader_knows_packed_relocations() {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether the C library of this machine is glibc 2.36 or newer: older ones refuse a program with packed relocations.
fn loader_knows_packed_relocations() -> bool {
    let Ok(output) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else { return false };
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = version.trim().trim_start_matches("glibc ").split('.').map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(2)), Some(Ok(minor))) if minor >= 36)
}
