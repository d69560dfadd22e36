//! Fleets: chosen, checked by hand, and followed.

mod advice;
mod artifact;
mod by_hand;
mod never_panics;
mod properties;
