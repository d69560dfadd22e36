//! Names of clusters, nodes, sub-clusters and GPU kinds; they become labels of metrics, parts of file names and of
//! certificates.

/// The longest name, in bytes: that of a DNS label, which names become in most deployments.
pub const NAME_BYTES_MAX: usize = 63;

/// Whether a name is acceptable: 1 to [`NAME_BYTES_MAX`] of `a–z 0–9 -`, beginning with a letter or digit.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(allowed)
}
