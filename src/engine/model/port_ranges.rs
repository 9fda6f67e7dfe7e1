//! Ranges of ports of a service, whose numbers packets keep.

use std::num::NonZeroU16;

use super::protocol::Protocol;

/// Ports of one protocol, from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortRange {
    /// Transport protocol.
    pub protocol: Protocol,
    /// The lowest port.
    pub first: NonZeroU16,
    /// The highest port.
    pub last: NonZeroU16,
}

/// Ports with the same first bits: rules look a port up without the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortBlock {
    first: u16,
    length: u8,
}

/// Ranges of a service, at most.
const MOST: usize = 16;

/// Bits of a port.
const BITS: u8 = 16;

/// A form that every message about a wrong range shows.
const EXPECTED: &str = "expected ranges such as udp/10000-20000, tcp/30000-30100 or tcp/*";

impl PortRange {
    /// Parses ranges with commas between them: `udp/10000-20000, tcp/*`. Sorts them, and joins those
    /// that overlap or adjoin.
    ///
    /// # Errors
    /// A part that is no range, or too many of them.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        let parts = text.split(',').map(str::trim);
        let mut ranges = parts.map(Self::parse).collect::<Result<Vec<_>, _>>()?;
        ranges.sort_unstable();
        ranges.dedup_by(|next, range| {
            let adjoins = next.protocol == range.protocol
                && u32::from(next.first.get()) <= u32::from(range.last.get()) + 1;
            if adjoins {
                range.last = range.last.max(next.last);
            }
            adjoins
        });
        if ranges.len() > MOST {
            return Err(format!("has {} ranges, of at most {MOST}", ranges.len()));
        }
        Ok(ranges)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let range = || {
            let (protocol, ports) = text.split_once('/')?;
            let protocol = Protocol::ALL.into_iter().find(|it| it.to_string() == protocol)?;
            let (first, last) = match ports {
                "*" => (NonZeroU16::MIN, NonZeroU16::MAX),
                _ => {
                    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
                    (first.parse().ok()?, last.parse().ok()?)
                }
            };
            (first <= last).then_some(Self { protocol, first, last })
        };
        range().ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            format!("{shown:?} is no range of ports: {EXPECTED}")
        })
    }

    /// Returns the fewest blocks of at least one common bit with all ports of the range; that of all
    /// ports has port 0 too, which no service has.
    pub fn blocks(self) -> Vec<PortBlock> {
        let (mut first, last) = (u32::from(self.first.get()), u32::from(self.last.get()));
        if first == 1 && last == u32::from(u16::MAX) {
            first = 0;
        }
        let mut blocks = Vec::new();
        while first <= last {
            let aligned = first.trailing_zeros().min(BITS.into());
            let fitting = (last - first + 1).ilog2();
            let bits = aligned.min(fitting).min(u32::from(BITS) - 1);
            // Both fit: `first` is a port, and the bits are fewer than 16.
            let length = BITS - u8::try_from(bits).unwrap_or_default();
            let start = u16::try_from(first).unwrap_or_default();
            blocks.push(PortBlock { first: start, length });
            first += 1 << bits;
        }
        blocks
    }

    /// Returns the ranges of ascending blocks as text, such as `10000-20000`, `5060` or `*`.
    pub fn joined(blocks: &[PortBlock]) -> Vec<String> {
        let mut ranges = Vec::<(u16, u16)>::new();
        for block in blocks {
            let last = block.first | !mask(block.length);
            match ranges.last_mut() {
                Some((_, end)) if end.checked_add(1) == Some(block.first) => *end = last,
                _ => ranges.push((block.first, last)),
            }
        }
        let text = |(first, last)| match (first, last) {
            (0, u16::MAX) => "*".to_owned(),
            _ if first == last => first.to_string(),
            _ => format!("{first}-{last}"),
        };
        ranges.into_iter().map(text).collect()
    }
}

impl PortBlock {
    /// Returns the block of the ports that have the first `length` bits of `first`; `None` if another
    /// bit of it is set, or the length is not in 1 to 16.
    pub fn new(first: u16, length: u8) -> Option<Self> {
        ((1..=BITS).contains(&length) && first & !mask(length) == 0)
            .then_some(Self { first, length })
    }

    /// Returns whether it has a port.
    pub fn contains(self, port: NonZeroU16) -> bool {
        port.get() & mask(self.length) == self.first
    }

    /// Returns its lowest port.
    pub fn first(self) -> u16 {
        self.first
    }

    /// Returns the number of first bits that its ports share, 1 to 16.
    pub fn length(self) -> u8 {
        self.length
    }
}

/// Returns the bits of a port that are compared in blocks of a length.
pub(crate) fn mask(length: u8) -> u16 {
    u16::MAX.checked_shl(u32::from(BITS - length.min(BITS))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Vec<(String, u16, u16)>, String> {
        let ranges = PortRange::parse_list(text)?;
        let shown = |it: PortRange| (it.protocol.to_string(), it.first.get(), it.last.get());
        Ok(ranges.into_iter().map(shown).collect())
    }

    #[test]
    fn ranges_are_sorted_and_joined() {
        let udp = |first, last| ("udp".to_owned(), first, last);
        let tcp = |first, last| ("tcp".to_owned(), first, last);
        for (text, ranges) in [
            ("udp/10000-20000", vec![udp(10_000, 20_000)]),
            ("udp/9, tcp/30000-30100,udp/7-8", vec![tcp(30_000, 30_100), udp(7, 9)]),
            ("tcp/*", vec![tcp(1, 65_535)]),
            ("tcp/65535,tcp/1-65534", vec![tcp(1, 65_535)]),
            ("udp/1-9,udp/3-4,udp/11", vec![udp(1, 9), udp(11, 11)]),
        ] {
            assert_eq!(parse(text), Ok(ranges), "{text}");
        }
    }

    #[test]
    fn what_is_no_range_is_named_with_an_example() {
        for wrong in [
            "",
            "udp",
            "udp/",
            "icmp/1-2",
            "udp/2-1",
            "udp/0-9",
            "udp/1-65536",
            "udp/1-2,",
            "UDP/1",
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.ends_with(EXPECTED), "{wrong}: {error}");
        }
        let many: Vec<_> = (1..=17).map(|i| format!("tcp/{}", 2 * i)).collect();
        assert_eq!(parse(&many.join(",")), Err("has 17 ranges, of at most 16".into()));
    }

    proptest! {
        #[test]
        fn blocks_hold_the_ports_of_their_range_and_no_others(first in 1u16.., last in 1u16.., port in 1u16..) {
            let [first, last] = [first.min(last), first.max(last)].map(|it| NonZeroU16::new(it).unwrap());
            let range = PortRange { protocol: Protocol::Udp, first, last };
            let blocks = range.blocks();
            prop_assert!(blocks.len() <= 30);
            for port in [port, first.get(), last.get(), first.get() - 1, last.get().saturating_add(1)] {
                let in_block = |it: &&PortBlock| port & mask(it.length) == it.first;
                let found = blocks.iter().filter(in_block).count();
                let is_in = (first.get()..=last.get()).contains(&port);
                prop_assert!(port == 0 || found == usize::from(is_in), "{port} in {found} of {blocks:?}");
            }
            for block in blocks {
                prop_assert_eq!(PortBlock::new(block.first, block.length), Some(block));
            }
        }
    }
}
