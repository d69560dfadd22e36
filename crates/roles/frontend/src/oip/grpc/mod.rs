//! gRPC: `inference.GRPCInferenceService`, `grpc.health.v1.Health` and `grpc.reflection`.

mod admitted;
mod encoding;
mod endpoint;
mod first_frame;
mod health;
mod infer_messages;
mod messages;
mod reflection;
mod server;
mod status;

pub use infer_messages::check_grpc_infer;
pub use server::GrpcServer;
