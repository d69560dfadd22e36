//! A request as most tests have it.

use symphony_scheduler::Request;
use symphony_types::{RequestId, RequestValue, Time};

/// Of one item and of value one.
pub(crate) fn request(sequence: u64, deadline: Time) -> Request {
    Request {
        id: RequestId { sequence, ..RequestId::default() },
        deadline,
        items: 1,
        weight: RequestValue::ONE,
        variant: 0,
    }
}
