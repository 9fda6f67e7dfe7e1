//! Counters of set elements: the expression `counter` of a set, which applies to each element.

use std::ops::AddAssign;

use super::abi::*;
use super::fields::{DecodeError, Fields};
use crate::netlink::attr::AttrWriter;

/// The count of an element: each lookup that finds it (`nft_lookup_eval`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Bytes of these packets, network header included.
    pub bytes: u64,
}

impl AddAssign for Counter {
    fn add_assign(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Counter {
    /// Returns the count since `last`. A lower counter restarted at zero, because its element was
    /// replaced.
    pub fn since(self, last: Self) -> Self {
        let packets = self.packets.checked_sub(last.packets);
        let bytes = self.bytes.checked_sub(last.bytes);
        packets.zip(bytes).map_or(self, |(packets, bytes)| Self { packets, bytes })
    }
}

/// The kernel's name of the expression.
pub(super) const NAME: &str = "counter";

/// Appends the expression to a set, so that each new element gets a counter at zero.
pub(super) fn write(w: &mut AttrWriter<'_>) {
    w.nest(NFTA_SET_EXPR, |w| {
        w.str(NFTA_EXPR_NAME, NAME);
        w.nest(NFTA_EXPR_DATA, |_| {});
    });
}

/// Returns the counter of an element; `None` without one.
pub(super) fn of_element(fields: &Fields<'_>) -> Result<Option<Counter>, DecodeError> {
    let Some(expr) = fields.find(NFTA_SET_ELEM_EXPR) else { return Ok(None) };
    let expr = Fields::read(expr.nested())?;
    if expr.str(NFTA_EXPR_NAME)? != NAME {
        return Ok(None);
    }
    let state = expr.nest(NFTA_EXPR_DATA)?;
    let number = |kind| state.be64(kind)?.ok_or(DecodeError::Missing { kind });
    let (packets, bytes) = (number(NFTA_COUNTER_PACKETS)?, number(NFTA_COUNTER_BYTES)?);
    Ok(Some(Counter { packets, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_is_lower_than_before_began_at_zero() {
        let counter = |packets, bytes| Counter { packets, bytes };
        for (now, last, expected) in [
            (counter(7, 420), counter(0, 0), counter(7, 420)),
            (counter(7, 420), counter(5, 300), counter(2, 120)),
            (counter(7, 420), counter(7, 420), counter(0, 0)),
            (counter(2, 120), counter(7, 420), counter(2, 120)),
            // More packets, but fewer bytes than before.
            (counter(8, 320), counter(7, 420), counter(8, 320)),
        ] {
            assert_eq!(now.since(last), expected, "{now:?} after {last:?}");
        }
    }
}
