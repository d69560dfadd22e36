//! gRPC: `inference.GRPCInferenceService` and `grpc.health.v1.Health`.

mod admitted;
mod endpoint;
mod health;
mod infer;
mod pages;
mod server;
mod status;

pub use infer::check_grpc_infer;
pub use server::GrpcServer;
