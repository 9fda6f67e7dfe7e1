//! The registers of the kernel's nftables virtual machine, with known and unknown contents.

use nft::expression::Reg;

use super::packet::Field;

/// Bytes of all data registers: `NFT_REG32_COUNT` of four bytes.
const BYTES: usize = 64;

/// Data registers during one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    bytes: [Option<u8>; BYTES],
    draws: Vec<Draw>,
}

/// A random number in a register: each from `offset` to `offset + modulus - 1` is equally likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Draw {
    pub(super) word: usize,
    pub(super) modulus: u32,
    pub(super) offset: u32,
}

impl Registers {
    pub(super) fn new() -> Self {
        Self { bytes: [None; BYTES], draws: Vec::new() }
    }

    /// Writes a value; like the kernel, fills the last word with zeros.
    pub(super) fn write(&mut self, to: Reg, value: &Field) {
        if let Some(word) = to.word() {
            self.write_at(word, value);
        }
    }

    fn write_at(&mut self, word: usize, value: &Field) {
        let start = word * 4;
        let padded = value.len().next_multiple_of(4);
        let bytes = value.iter().copied().chain(std::iter::repeat(Some(0))).take(padded);
        let target = self.bytes.iter_mut().skip(start);
        target.zip(bytes).for_each(|(target, byte)| *target = byte);
        let written = start..start + padded;
        self.draws.retain(|draw| !written.contains(&(draw.word * 4)));
    }

    /// Writes a random number.
    pub(super) fn draw(&mut self, to: Reg, modulus: u32, offset: u32) {
        // A draw of one number is a constant.
        let number = (modulus == 1).then_some(offset.to_ne_bytes());
        self.write(to, &number.map_or(vec![None; 4], |bytes| bytes.map(Some).to_vec()));
        if let Some(word) = to.word().filter(|_| number.is_none()) {
            self.draws.push(Draw { word, modulus, offset });
        }
    }

    pub(super) fn read(&self, from: Reg, length: usize) -> Field {
        let Some(start) = start(from) else { return Vec::new() };
        self.bytes.iter().skip(start).take(length).copied().collect()
    }

    /// Returns the first random number within `length` bytes.
    pub(super) fn drawn(&self, from: Reg, length: usize) -> Option<Draw> {
        let start = start(from)?;
        let place = |draw: &Draw| draw.word * 4;
        self.draws.iter().copied().find(|draw| (start..start + length).contains(&place(draw)))
    }

    /// Returns the registers with a certain random number.
    pub(super) fn with(&self, draw: Draw, number: u32) -> Self {
        let mut registers = self.clone();
        let value = draw.offset.wrapping_add(number).to_ne_bytes();
        registers.write_at(draw.word, &value.map(Some).to_vec());
        registers
    }

    /// Makes all registers unknown: an unknown expression may have written any of them.
    pub(super) fn forget(&mut self) {
        *self = Self::new();
    }
}

fn start(register: Reg) -> Option<usize> {
    register.word().map(|word| word * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_value_fills_its_word_with_zeros() {
        let mut registers = Registers::new();
        registers.write(Reg::of_word(1), &vec![Some(6)]);
        let expected = [None, None, None, None, Some(6), Some(0), Some(0), Some(0)];
        assert_eq!(registers.read(Reg::of_word(0), 8), expected);
    }

    #[test]
    fn a_drawn_number_is_found_in_a_key_until_it_is_overwritten() {
        let mut registers = Registers::new();
        registers.draw(Reg::of_word(2), 5, 10);
        let draw = registers.drawn(Reg::of_word(0), 12).unwrap();
        assert_eq!(registers.drawn(Reg::of_word(0), 8), None);
        let chosen = registers.with(draw, 4);
        assert_eq!(chosen.read(Reg::of_word(2), 4), 14u32.to_ne_bytes().map(Some));
        assert_eq!(chosen.drawn(Reg::of_word(0), 12), None);
    }
}
