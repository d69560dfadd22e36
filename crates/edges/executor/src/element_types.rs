//! The one table of the types of elements that models may have.

/// Hands every type of element that the executors of ONNX models take and give to the macro `$then`: its
/// [`DataType`](symphony_types::DataType), the type of a number of it in Rust, and its name in ONNX Runtime.
#[macro_export]
macro_rules! with_element_types {
    ($then:ident) => {
        $then! {
            Bool: bool, Bool;
            Uint8: u8, Uint8;
            Uint16: u16, Uint16;
            Uint32: u32, Uint32;
            Uint64: u64, Uint64;
            Int8: i8, Int8;
            Int16: i16, Int16;
            Int32: i32, Int32;
            Int64: i64, Int64;
            Fp16: $crate::f16, Float16;
            Fp32: f32, Float32;
            Fp64: f64, Float64;
        }
    };
}
