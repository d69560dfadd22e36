//! The data that the two ends of a connection exchange so that their devices can connect.

/// Queue pair numbers and packet numbers have 24 bits.
const NUMBER_MAX: u32 = (1 << 24) - 1;
/// Codes of packet sizes: 1 is 256 bytes, 5 is 4096.
const MTU_CODES: std::ops::RangeInclusive<u8> = 1..=5;

/// One end of a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Number of its queue pair at its device; 24 bits.
    pub queue_pair: u32,
    /// Number of the first packet that it sends.
    pub first_packet: u32,
    /// Largest packet, as a code of the verbs: 1 is 256 bytes, 5 is 4096.
    pub mtu: u8,
    /// Its port on an InfiniBand network; 0 on Ethernet.
    pub lid: u16,
    /// Its port's global name; on Ethernet an IP address.
    pub gid: [u8; 16],
}

/// Why an endpoint cannot be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// A number is too large.
    #[error("queue pair {queue_pair} and first packet {first_packet}; expected at most {NUMBER_MAX}")]
    Number {
        /// The queue pair that was given.
        queue_pair: u32,
        /// The first packet that was given.
        first_packet: u32,
    },
    /// There is no such packet size.
    #[error("packet size code {0}; expected 1 to 5")]
    Mtu(u8),
    /// It names neither of the two addresses.
    #[error("neither a lid nor a gid is given")]
    Nowhere,
}

impl Endpoint {
    /// This endpoint, if there can be such a one.
    ///
    /// # Errors
    /// If there cannot.
    pub fn checked(self) -> Result<Self, EndpointError> {
        let Self { queue_pair, first_packet, mtu, lid, gid } = self;
        if queue_pair > NUMBER_MAX || first_packet > NUMBER_MAX {
            return Err(EndpointError::Number { queue_pair, first_packet });
        }
        if !MTU_CODES.contains(&mtu) {
            return Err(EndpointError::Mtu(mtu));
        }
        if lid == 0 && gid == [0; 16] {
            return Err(EndpointError::Nowhere);
        }
        Ok(self)
    }

    /// The packet size that both ends can do, as a code.
    #[must_use]
    pub fn mtu_with(&self, other: &Self) -> u8 {
        self.mtu.min(other.mtu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_endpoints_are_refused() {
        let good = Endpoint { queue_pair: NUMBER_MAX, first_packet: 0, mtu: 5, lid: 0, gid: [1; 16] };
        assert_eq!(good.checked(), Ok(good));
        assert!(Endpoint { lid: 1, gid: [0; 16], ..good }.checked().is_ok());
        let number = Endpoint { queue_pair: 1 << 24, ..good };
        assert!(matches!(number.checked(), Err(EndpointError::Number { .. })));
        let packet = Endpoint { first_packet: u32::MAX, ..good };
        assert!(matches!(packet.checked(), Err(EndpointError::Number { .. })));
        for mtu in [0, 6, 255] {
            assert_eq!(Endpoint { mtu, ..good }.checked(), Err(EndpointError::Mtu(mtu)));
        }
        assert_eq!(Endpoint { gid: [0; 16], ..good }.checked(), Err(EndpointError::Nowhere));
        assert_eq!(good.mtu_with(&Endpoint { mtu: 3, ..good }), 3);
    }
}
