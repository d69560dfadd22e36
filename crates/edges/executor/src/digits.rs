//! The demo's classifier and the images it has never seen, embedded in the binary.
//!
//! `deploy/models/digits/PROVENANCE.md` says where they come from and describes both formats.

/// The classifier, an ONNX file: `pixels`, FP32, 64 numbers → `probabilities`, FP32, 10 numbers, and `label`, INT64.
pub const MODEL: &[u8] = include_bytes!("../../../../deploy/models/digits/digits.onnx");
/// What frontends do for its clients: pictures of 8 × 8 pixels in, names of digits out; as `symphony model load
/// --transforms` reads it.
pub const TRANSFORMS: &str = include_str!("../../../../deploy/models/digits/transforms.toml");
/// Pixels of one image: 8 rows of 8.
pub const PIXELS: usize = 64;
/// The digits 0 to 9.
pub const CLASSES: usize = 10;
/// Images of the test set that the classifier got right when it was made.
pub const RIGHT_WHEN_MADE: usize = 590;

const TEST_SET: &[u8] = include_bytes!("../../../../deploy/models/digits/digits-test.bin");
const MAGIC: &[u8] = b"SYMDIGIT";
const FORMAT_VERSION: u32 = 1;
const HEADER_BYTES: usize = MAGIC.len() + 3 * size_of::<u32>();

/// One image and what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digit<'a> {
    /// Grey values 0 to 16, row by row, [`PIXELS`] of them.
    pub pixels: &'a [u8],
    /// The digit shown.
    pub label: u8,
}

/// Why bytes are not a test set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a set of digits: {0}")]
pub struct BadTestSet(String);

impl Digit<'_> {
    /// Appends the image as the model takes it: FP32, little-endian.
    pub fn append_input(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.pixels.iter().flat_map(|&pixel| f32::from(pixel).to_le_bytes()));
    }
}

/// The embedded held-out images.
#[must_use]
pub fn test_set() -> Vec<Digit<'static>> {
    read(TEST_SET).expect("the embedded set of digits is checked by a test")
}

/// Reads a set of digits.
///
/// # Errors
/// If the bytes are not in the format described in `PROVENANCE.md`.
pub fn read(bytes: &[u8]) -> Result<Vec<Digit<'_>>, BadTestSet> {
    let refuse = |problem: String| Err(BadTestSet(problem));
    let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
        return refuse(format!("{} bytes; expected at least {HEADER_BYTES}", bytes.len()));
    };
    let Some(fields) = header.strip_prefix(MAGIC) else {
        return refuse("the first bytes are not SYMDIGIT".into());
    };
    let [version, images, pixels] = [0, 1, 2].map(|field| {
        let number = fields[field * 4..].first_chunk().copied();
        number.map_or(0, u32::from_le_bytes)
    });
    if (version, pixels as usize) != (FORMAT_VERSION, PIXELS) {
        return refuse(format!(
            "version {version} with {pixels} pixels per image; expected version {FORMAT_VERSION} with {PIXELS}"
        ));
    }
    let (records, rest) = body.as_chunks::<{ PIXELS + 1 }>();
    if records.len() != images as usize || !rest.is_empty() {
        return refuse(format!("{} bytes of images; expected {images} times {}", body.len(), PIXELS + 1));
    }
    let digits = records.iter().map(|record| Digit { pixels: &record[..PIXELS], label: record[PIXELS] });
    if let Some(wrong) = digits.clone().find(|digit| usize::from(digit.label) >= CLASSES) {
        return refuse(format!("label {}; expected 0 to 9", wrong.label));
    }
    Ok(digits.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_set_is_whole_and_has_every_digit() {
        let digits = test_set();
        assert_eq!(digits.len(), 599);
        for label in 0..10 {
            assert!(digits.iter().filter(|digit| digit.label == label).count() > 40, "{label}");
        }
        assert!(digits.iter().all(|digit| digit.pixels.iter().all(|&pixel| pixel <= 16)));
    }

    #[test]
    fn damaged_sets_are_refused() {
        assert!(read(&[]).is_err());
        assert!(read(&TEST_SET[..TEST_SET.len() - 1]).unwrap_err().to_string().contains("expected 599 times 65"));
        for damaged in [0, 8, 12, 16] {
            let mut bytes = TEST_SET.to_vec();
            bytes[damaged] ^= 0x55;
            assert!(read(&bytes).is_err(), "byte {damaged}");
        }
        let mut bytes = TEST_SET.to_vec();
        bytes[HEADER_BYTES + PIXELS] = 10;
        assert!(read(&bytes).unwrap_err().to_string().contains("label 10"));
    }
}
