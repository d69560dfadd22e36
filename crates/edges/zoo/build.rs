//! Generates the messages of `proto/onnx/onnx.proto`; protox needs no protoc on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTO_DIR: &str = "../../../proto/onnx";
    println!("cargo:rerun-if-changed={PROTO_DIR}");
    let files = protox::compile(["onnx.proto"], [PROTO_DIR])?;
    tonic_prost_build::configure().build_client(false).build_server(false).compile_fds(files)?;
    Ok(())
}
