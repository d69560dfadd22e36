//! Compiles the subset of model configurations: types to work with, and descriptors by which their text is read.

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTO_DIR: &str = "../../../proto/repository";
    println!("cargo:rerun-if-changed={PROTO_DIR}");
    let descriptors = protox::compile(["model_config.proto"], [PROTO_DIR])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("model_config.bin"), descriptors.encode_to_vec())?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}
