//! One model: its queue as each class of GPUs sees it, and the batch that it would make now.

pub(crate) mod aimd;
pub(crate) mod class_profiles;
pub(crate) mod class_window;
pub(crate) mod class_windows;
pub(crate) mod longest_budget;
pub(crate) mod model_queue;
pub(crate) mod queued;
pub(crate) mod request_items;
pub(crate) mod target_batch;
