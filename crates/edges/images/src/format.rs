//! The formats of pictures, told apart by their first bytes.

/// The formats that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JPEG, baseline and progressive.
    Jpeg,
    /// PNG; of an animation the picture that stands for it.
    Png,
}

impl Format {
    const JPEG_BEGIN: &[u8] = &[0xff, 0xd8, 0xff];
    pub(crate) const PNG_BEGIN: &[u8] = &[0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a];

    /// Name of the format, for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
        }
    }

    /// By the first bytes of a file.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        [(Self::JPEG_BEGIN, Self::Jpeg), (Self::PNG_BEGIN, Self::Png)]
            .into_iter()
            .find_map(|(begin, format)| bytes.starts_with(begin).then_some(format))
    }
}
