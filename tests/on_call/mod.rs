//! What the person on call sees.

mod alert;
mod console;
mod outage;
mod traced;
