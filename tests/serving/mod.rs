//! Models are served to the clients that people have.

mod canvas;
mod digits_file;
mod families;
mod gpu_double;
mod half_precision;
mod heads;
mod live_and_simulated;
mod load_protocols;
mod native_client;
mod pictures;
mod pipeline_rollout;
mod pipelines;
mod policies;
mod repository;
mod repository_pictures;
mod rollout;
mod subcluster_policies;
mod tritonclient;
