//! Models of every shape, built in code: where they can be cut, what they have in common, and what is refused.

mod builder;
mod cuts;
mod families;
mod hashes;
mod parts;
mod properties;
mod refusals;
