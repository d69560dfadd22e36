//! Pictures that clients send instead of tensors.

pub(crate) mod decoders;
#[cfg(test)]
pub(crate) mod test_pictures;
