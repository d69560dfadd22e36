//! Compiles the wire formats with protox, so that no `protoc` has to be installed.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protos = [
        "symphony/v1/control.proto",
        "symphony/v1/federation.proto",
        "inference/grpc_service.proto",
        "externalscaler/externalscaler.proto",
    ];
    println!("cargo:rerun-if-changed=../../../proto");
    let descriptors = protox::compile(protos, ["../../../proto"])?;
    // What reflection shows: the public surface and nothing else, without our comments.
    let mut public = protox::Compiler::new(["../../../proto"])?;
    public.include_imports(true).open_file("inference/grpc_service.proto")?;
    let described = PathBuf::from(std::env::var("OUT_DIR")?).join("inference_descriptors.bin");
    std::fs::write(described, public.encode_file_descriptor_set())?;
    // Raw tensors stay reference counted from the socket to the payload: `Bytes`, not `Vec<u8>`.
    let raw_tensors =
        [".inference.ModelInferRequest.raw_input_contents", ".inference.ModelInferResponse.raw_output_contents"];
    let builder = raw_tensors.into_iter().fold(tonic_prost_build::configure(), |builder, field| builder.bytes(field));
    builder.compile_fds(descriptors)?;
    Ok(())
}
