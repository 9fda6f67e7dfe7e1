//! The memory that all lists of a daemon may take together: a server may send lists without end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::format::Format;

/// Bytes for all lists. 100,000 Services with a slice of 5 endpoints each need 169 MiB as they are
/// counted here: 250 MB in protobuf, with `managedFields`.
pub(super) const ROOM: usize = 192 << 20;

/// Bytes that an object takes at least.
const OBJECT: usize = 256;

/// The lists need more than [`ROOM`].
#[derive(Debug, thiserror::Error)]
#[error("no room")]
pub(super) struct NoRoom;

/// The room of all lists. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Room(Arc<AtomicUsize>);

/// The part of it that a list or an answer takes until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    room: Room,
    bytes: usize,
}

impl Room {
    /// Returns a share of nothing.
    pub(super) fn share(&self) -> Share {
        Share { room: self.clone(), bytes: 0 }
    }
}

impl Share {
    /// Returns another share of nothing.
    pub(super) fn another(&self) -> Self {
        self.room.share()
    }

    /// Takes further bytes.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.bytes += bytes;
        let all = self.room.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if all <= ROOM { Ok(()) } else { Err(NoRoom) }
    }

    /// Takes the bytes that remain of objects in an answer of this length: in memory they need less
    /// than half of their protobuf, and of their JSON, which is twice as long, a quarter.
    pub(super) fn keep(
        &mut self,
        objects: usize,
        format: Format,
        length: usize,
    ) -> Result<(), NoRoom> {
        let parts = match format {
            Format::Protobuf => 2,
            Format::Json => 4,
        };
        self.grow(objects * OBJECT + length / parts)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_share_the_room_and_a_list_that_ends_frees_its_part() {
        let room = Room::default();
        let (mut one, mut other) = (room.share(), room.share());
        assert!(one.grow(ROOM / 2).is_ok() && other.grow(ROOM / 2).is_ok());
        assert!(one.another().grow(1).is_err(), "another list has room for itself");
        drop(other);
        assert!(one.grow(ROOM / 2).is_ok() && one.grow(1).is_err());
    }

    #[test]
    fn the_lists_of_a_hundred_thousand_services_have_room_in_both_formats() {
        // Lengths with `managedFields`, of docs/measurements.md.
        for (format, service, slice) in [(Format::Protobuf, 800, 1727), (Format::Json, 1400, 2961)]
        {
            let room = Room::default();
            let (mut services, mut slices) = (room.share(), room.share());
            for _ in 0..100_000 {
                services.keep(1, format, service).unwrap();
                slices.keep(1, format, slice).unwrap();
            }
        }
    }
}
