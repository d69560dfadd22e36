//! One model: its queue from the viewpoint of each GPU class, and the batch that it would run now.

pub(crate) mod aimd;
pub(crate) mod class_profiles;
pub(crate) mod class_window;
pub(crate) mod class_windows;
pub(crate) mod families;
pub(crate) mod model_queue;
pub(crate) mod queued;
pub(crate) mod recent_budgets;
pub(crate) mod request_items;
pub(crate) mod target_batch;
