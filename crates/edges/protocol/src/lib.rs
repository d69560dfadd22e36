//! The messages between processes: rkyv frames for requests, plans and results, protobuf for control.

pub mod carrier;
pub mod data;
pub mod dispatch;
pub mod epoch_plan_view;
pub mod execute;
pub mod federation;
mod frame;
pub mod journal;
mod model_spec;
pub mod parameters;
pub mod port_limits;
mod transforms;
pub mod view;

pub use frame::{
    Echo, FRAME_BYTES_MAX, FRAME_HEADER_BYTES, Frame, FrameError, FrameHeader, Message, PAYLOAD_BYTES_MAX,
};

/// `symphony.v1`: the control surface, and the one of a federation.
#[allow(missing_docs, clippy::all, unreachable_pub, missing_debug_implementations)]
pub mod control {
    tonic::include_proto!("symphony.v1");
}

/// `inference`: the Open Inference Protocol v2 with Triton's extensions, the public surface.
#[allow(missing_docs, clippy::all, unreachable_pub, missing_debug_implementations)]
pub mod inference {
    tonic::include_proto!("inference");

    /// The service and its messages as reflection shows them.
    pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("inference_descriptors");
}

/// `externalscaler`: how KEDA asks for the number of replicas.
#[allow(missing_docs, clippy::all, unreachable_pub, missing_debug_implementations)]
pub mod externalscaler {
    tonic::include_proto!("externalscaler");
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::externalscaler::{GetMetricsResponse, MetricSpec, MetricValue, external_scaler_server};

    /// The wire names and field numbers, which KEDA has compiled in.
    #[test]
    fn the_scaler_has_kedas_names_and_numbers() {
        assert_eq!(external_scaler_server::SERVICE_NAME, "externalscaler.ExternalScaler");
        let value = MetricValue { metric_name: "g".to_owned(), metric_value: 12, metric_value_float: 12.0 };
        // Tags are number · 8 + type: text 2, integer 0, double 1.
        let float = 12_f64.to_le_bytes();
        let bytes = [&[0x0a, 1, b'g', 0x10, 12, 0x19][..], &float].concat();
        assert_eq!(value.encode_to_vec(), bytes);
        let answer = GetMetricsResponse { metric_values: vec![value] };
        assert_eq!(answer.encode_to_vec(), [&[0x0a, bytes.len() as u8][..], &bytes].concat());
        let spec = MetricSpec { metric_name: "g".to_owned(), target_size: 4, target_size_float: 4.0 };
        assert_eq!(spec.encode_to_vec(), [&[0x0a, 1, b'g', 0x10, 4, 0x19][..], &4_f64.to_le_bytes()].concat());
    }
}
