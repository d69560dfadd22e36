//! gRPC: `inference.GRPCInferenceService` and `grpc.health.v1.Health`.

mod admitted;
mod endpoint;
mod health;
mod infer_messages;
mod messages;
mod server;
mod status;

pub use infer_messages::check_grpc_infer;
pub use server::GrpcServer;
