//! Pictures: right, hostile and cut off.

mod hostile;
mod reference;
mod sound;
