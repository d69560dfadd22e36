//! Compiles the double. The linker that Rust itself needs is a C compiler.

use std::path::PathBuf;
use std::process::Command;

const SOURCES: [&str; 4] = ["src/double/blaslt.c", "src/double/driver.c", "src/double/memory.c", "src/double/queue.c"];
const HEADER: &str = "src/double/double.h";
/// One library under the names that are looked up: a file with several names is loaded once, so both see the same
/// device.
const FILE: &str = "libcuda.so";
const NAMES: [&str; 2] = ["libcuda.so.1", "libcublasLt.so"];

fn main() {
    for file in SOURCES.iter().chain([&HEADER]) {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-env-changed=CC");
    let dir = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names OUT_DIR")).join("lib");
    println!("cargo:rustc-env=SYMPHONY_CUDA_DOUBLE_DIR={}", dir.display());
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        println!("cargo:warning=the double of a GPU works on Linux only");
        return;
    }
    std::fs::create_dir_all(&dir).expect("OUT_DIR can be written");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-std=gnu11", "-o"])
        .arg(dir.join(FILE))
        .args(SOURCES)
        .arg("-lpthread")
        .status();
    match status {
        Ok(status) if status.success() => {}
        outcome => panic!("{} does not compile the double: {outcome:?}", compiler.display()),
    }
    for name in NAMES {
        let link = dir.join(name);
        let _ = std::fs::remove_file(&link);
        std::fs::hard_link(dir.join(FILE), &link).expect("OUT_DIR can be written");
    }
}
