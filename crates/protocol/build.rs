//! Compiles the wire formats with protox, so that no `protoc` has to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protos = ["symphony/v1/control.proto"];
    println!("cargo:rerun-if-changed=../../proto");
    let descriptors = protox::compile(protos, ["../../proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
