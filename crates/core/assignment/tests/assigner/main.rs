//! The solver: against brute force, against known results, by its certificate.

mod brute_force;
mod certificate;
mod degenerate;
mod known;
