//! The scheduler's objects from outside.

mod gpu_classes;
mod model_queue;
mod random_order;
mod ranker;
mod request;
mod rivals;
