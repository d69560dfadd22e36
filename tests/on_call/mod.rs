//! What the person on call sees.

mod outage;
mod traced;
