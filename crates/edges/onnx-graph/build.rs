//! Generates the messages of `proto/onnx/onnx.proto`, and the table of their fields by which files are checked before
//! they are decoded: prost drops a field that it does not know, and a part without it could compute something else.

use std::fmt::Write as _;

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTO_DIR: &str = "../../../proto/onnx";
    println!("cargo:rerun-if-changed={PROTO_DIR}");
    let files = protox::compile(["onnx.proto"], [PROTO_DIR])?;
    let mut messages = Vec::new();
    for file in &files.file {
        for message in &file.message_type {
            collect(&format!(".{}", file.package()), message, &mut messages);
        }
    }
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("schema.rs"), table(&messages)?)?;
    // Weights stay in the bytes of the file that they came in: `Bytes`, not `Vec<u8>`.
    prost_build::Config::new().bytes(["."]).compile_fds(files)?;
    Ok(())
}

/// The message and those inside it, with their full names.
fn collect<'a>(scope: &str, message: &'a DescriptorProto, messages: &mut Vec<(String, &'a DescriptorProto)>) {
    let name = format!("{scope}.{}", message.name());
    for nested in &message.nested_type {
        collect(&name, nested, messages);
    }
    messages.push((name, message));
}

fn table(messages: &[(String, &DescriptorProto)]) -> Result<String, Box<dyn std::error::Error>> {
    let mut table = String::from("&[\n");
    for (full_name, message) in messages {
        let name = full_name.trim_start_matches(".onnx.");
        writeln!(table, "Message {{ name: {name:?}, fields: &[")?;
        for field in &message.field {
            let (name, number, kind) = (field.name(), field.number(), kind(field, messages)?);
            let repeated = field.label() == Label::Repeated;
            writeln!(table, "Known {{ number: {number}, name: {name:?}, repeated: {repeated}, kind: {kind} }},")?;
        }
        writeln!(table, "] }},")?;
    }
    table.push(']');
    Ok(table)
}

fn kind(field: &FieldDescriptorProto, messages: &[(String, &DescriptorProto)]) -> Result<String, String> {
    Ok(match field.r#type() {
        Type::Int32 | Type::Int64 | Type::Uint64 | Type::Enum => "Kind::Varint".to_owned(),
        Type::Float => "Kind::Fixed32".to_owned(),
        Type::Double => "Kind::Fixed64".to_owned(),
        Type::String => "Kind::Text".to_owned(),
        Type::Bytes => "Kind::Bytes".to_owned(),
        Type::Message => {
            let index = messages.iter().position(|(name, _)| name == field.type_name());
            let index = index.ok_or_else(|| format!("{} is no message", field.type_name()))?;
            format!("Kind::Message({index})")
        }
        other => return Err(format!("field {} has the type {other:?}, which the table has no kind for", field.name())),
    })
}
