//! What the person on call sees.

mod console;
mod outage;
mod traced;
