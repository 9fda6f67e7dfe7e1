//! Operations on bytes of which some are unknown.

use std::cmp::Ordering;

use nft::key;

use super::packet::Field;

/// Compares bytes; `None` if an unknown byte decides.
fn equal(field: &Field, value: &[u8]) -> Option<bool> {
    let pairs = || field.iter().zip(value);
    if pairs().any(|(byte, value)| byte.is_some_and(|byte| byte != *value)) {
        return Some(false);
    }
    pairs().all(|(byte, _)| byte.is_some()).then_some(true)
}

/// Returns whether a comparison, `NFT_CMP_*`, is true; `None` if an unknown byte decides.
pub(super) fn holds(operation: u32, field: &Field, value: &[u8]) -> Option<bool> {
    Some(match operation {
        key::CMP_EQUAL => equal(field, value)?,
        key::CMP_NOT_EQUAL => !equal(field, value)?,
        key::CMP_LESS => compare(field, value)?.is_lt(),
        key::CMP_LESS_OR_EQUAL => compare(field, value)?.is_le(),
        key::CMP_GREATER => compare(field, value)?.is_gt(),
        key::CMP_GREATER_OR_EQUAL => compare(field, value)?.is_ge(),
        _ => return None,
    })
}

/// Returns the bytes if all are known.
pub(super) fn bytes(field: &[Option<u8>]) -> Option<Vec<u8>> {
    field.iter().copied().collect()
}

pub(super) fn compare(field: &Field, value: &[u8]) -> Option<Ordering> {
    Some(bytes(field)?.as_slice().cmp(value))
}

/// Applies mask and xor. A bit of an unknown byte is known if the mask clears it.
pub(super) fn masked(field: &Field, mask: &[u8], xor: &[u8]) -> Field {
    let step = |((byte, mask), xor): ((&Option<u8>, &u8), &u8)| match byte {
        Some(byte) => Some((byte & mask) ^ xor),
        None if *mask == 0 => Some(*xor),
        None => None,
    };
    field.iter().zip(mask).zip(xor).map(step).collect()
}

/// Swaps the bytes of each number, where host and network byte order differ.
pub(super) fn swapped(field: &Field, size: usize) -> Field {
    if cfg!(target_endian = "big") || size == 0 {
        return field.clone();
    }
    field.chunks(size).flat_map(|number| number.iter().rev().copied()).collect()
}

pub(super) fn number(field: &Field) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes(field)?.try_into().ok()?))
}

pub(super) fn port_of(field: &Field) -> Option<u16> {
    Some(u16::from_be_bytes(bytes(field)?.try_into().ok()?))
}
