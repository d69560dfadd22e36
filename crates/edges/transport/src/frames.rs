//! How many payloads go into one frame.

use symphony_config::limits::REQUEST_BYTES_MAX;
use symphony_protocol::{FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// Bytes of payloads in one frame, unless a single one is larger.
const TOGETHER_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;

// Every input that a frontend accepts fits into a frame to a backend.
const _: () = assert!(REQUEST_BYTES_MAX as usize <= PAYLOAD_BYTES_MAX);

/// Divides payloads among frames, in order; none has more than [`PAYLOAD_BYTES_MAX`]. There is at least one frame.
pub(crate) fn in_frames<T>(payloads: Vec<T>, bytes_of: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let (mut frames, mut frame, mut bytes) = (Vec::new(), Vec::new(), 0);
    for payload in payloads {
        let more = bytes_of(&payload);
        if bytes > 0 && bytes + more > TOGETHER_BYTES_MAX {
            frames.push(std::mem::take(&mut frame));
            bytes = 0;
        }
        bytes += more;
        frame.push(payload);
    }
    frames.push(frame);
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_frame_has_half_of_what_fits_or_a_single_payload() {
        let frames = |mib: &[usize]| in_frames(mib.iter().map(|mib| mib * MIB).collect(), |bytes| *bytes);
        assert_eq!(frames(&[2; 40]).iter().map(Vec::len).collect::<Vec<_>>(), [16, 16, 8]);
        let large = [0, 20, 12, 0, 1, 63, 0, 1, 33];
        let divided = frames(&large);
        assert_eq!(divided.concat(), large.map(|mib| mib * MIB), "in order, and nothing is left out");
        assert_eq!(divided.iter().map(Vec::len).collect::<Vec<_>>(), [4, 1, 1, 2, 1]);
        assert!(divided.iter().all(|frame| frame.iter().sum::<usize>() <= PAYLOAD_BYTES_MAX));
        assert_eq!(frames(&[]), [Vec::<usize>::new()]);
    }
}
