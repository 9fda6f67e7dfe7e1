//! `jhash` of Linux, by Bob Jenkins: `<linux/jhash.h>`.

/// Returns the hash of the bytes.
pub(super) fn jhash(bytes: &[u8], seed: u32) -> u32 {
    // As in the kernel, the length is taken modulo 2^32.
    #[expect(clippy::cast_possible_truncation, reason = "registers have 64 bytes")]
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32).wrapping_add(seed);
    let [mut a, mut b, mut c] = [start; 3];
    let mut rest = bytes;
    while rest.len() > 12 {
        let (block, after) = rest.split_at(12);
        a = a.wrapping_add(word(block, 0));
        b = b.wrapping_add(word(block, 4));
        c = c.wrapping_add(word(block, 8));
        mix(&mut a, &mut b, &mut c);
        rest = after;
    }
    if rest.is_empty() {
        return c;
    }
    a = a.wrapping_add(word(rest, 0));
    b = b.wrapping_add(word(rest, 4));
    c = c.wrapping_add(word(rest, 8));
    finish(a, b, c)
}

/// Scales a hash to a number below `modulus`: `reciprocal_scale`.
pub(super) fn scale(hash: u32, modulus: u32) -> u32 {
    let scaled = (u64::from(hash) * u64::from(modulus)) >> 32;
    u32::try_from(scaled).unwrap_or_default()
}

/// Returns four bytes, with zeros after the end.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.iter_mut().zip(bytes.iter().skip(at)).for_each(|(to, from)| *to = *from);
    // The kernel reads whole blocks by `__get_unaligned_cpu32`, and the end as little-endian.
    u32::from_le_bytes(word)
}

fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    let step = |x: &mut u32, y: &mut u32, z: &mut u32, bits| {
        *x = x.wrapping_sub(*z);
        *x ^= z.rotate_left(bits);
        *z = z.wrapping_add(*y);
    };
    step(a, b, c, 4);
    step(b, c, a, 6);
    step(c, a, b, 8);
    step(a, b, c, 16);
    step(b, c, a, 19);
    step(c, a, b, 4);
}

fn finish(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    let step = |x: &mut u32, y: u32, bits| {
        *x ^= y;
        *x = x.wrapping_sub(y.rotate_left(bits));
    };
    step(&mut c, b, 14);
    step(&mut a, c, 11);
    step(&mut b, a, 25);
    step(&mut c, b, 16);
    step(&mut a, c, 4);
    step(&mut b, a, 14);
    step(&mut c, b, 24);
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `driver5` in Bob Jenkins' `lookup3.c`, whose start value is the same for `hashlittle`.
    #[test]
    fn it_is_lookup3() {
        assert_eq!(jhash(b"", 0), 0xdead_beef);
        assert_eq!(jhash(b"", 0xdead_beef), 0xbd5b_7dde);
        assert_eq!(jhash(b"Four score and seven years ago", 0), 0x1777_0551);
        assert_eq!(jhash(b"Four score and seven years ago", 1), 0xcd62_8161);
    }

    #[test]
    fn a_scaled_hash_is_below_its_modulus() {
        assert_eq!(scale(u32::MAX, 32_768), 32_767);
        assert_eq!(scale(0, 5), 0);
    }
}
