//! Compiles the library that is loaded into other programs. The linker that Rust itself needs is a C compiler.

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/interposer.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=CC");
    let library = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names OUT_DIR")).join("interposer.so");
    println!("cargo:rustc-env=SYMPHONY_INTERPOSER_LIBRARY={}", library.display());
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        println!("cargo:warning=faults are injected on Linux only");
        return;
    }
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-std=gnu11", "-o"])
        .arg(&library)
        .arg(SOURCE)
        .args(["-ldl", "-lpthread"])
        .status();
    match status {
        Ok(status) if status.success() => {}
        outcome => panic!("{} does not compile {SOURCE}: {outcome:?}", compiler.display()),
    }
}
