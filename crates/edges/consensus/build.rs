//! Compiles `proto/symphony/v1/raft.proto` in pure Rust: no `protoc` has to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = "../../../proto";
    let raft = "../../../proto/symphony/v1/raft.proto";
    println!("cargo:rerun-if-changed={raft}");
    let descriptors = protox::compile([raft], [root])?;
    // Commands and snapshot chunks stay reference counted from the socket to the log: `Bytes`, not `Vec<u8>`.
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
