//! Encodes messages of protobuf.

/// A message, field by field in the order of the calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Message(Vec<u8>);

/// Wire types of the format.
const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const LENGTH_FIRST: u64 = 2;

impl Message {
    /// Adds a text.
    pub fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    /// Adds a text in a field that repeats, for each of `texts`.
    pub fn texts<'a>(self, field: u64, texts: impl IntoIterator<Item = &'a str>) -> Self {
        texts.into_iter().fold(self, |message, text| message.text(field, text))
    }

    /// Adds texts in fields whose numbers follow one another.
    pub fn texts_from<const COUNT: usize>(self, first: u64, texts: [&str; COUNT]) -> Self {
        let fields = (first..).zip(texts);
        fields.fold(self, |message, (field, text)| message.text(field, text))
    }

    /// Adds a message.
    pub fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// Adds an entry of a map of texts.
    pub fn entry(self, field: u64, key: &str, value: &str) -> Self {
        self.message(field, &Self::default().text(1, key).text(2, value))
    }

    /// Adds bytes.
    pub fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.key(field, LENGTH_FIRST);
        push_varint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds a number of a type without a sign, or with one that is not negative.
    pub fn number(mut self, field: u64, number: u64) -> Self {
        self.key(field, VARINT);
        push_varint(&mut self.0, number);
        self
    }

    /// Adds a number of type `sint32` or `sint64`.
    pub fn signed(self, field: u64, number: i64) -> Self {
        self.number(field, zigzag(number))
    }

    /// Adds a packed list of numbers of type `sint64`.
    pub fn signed_list(self, field: u64, numbers: &[i64]) -> Self {
        let mut list = Vec::new();
        numbers.iter().for_each(|number| push_varint(&mut list, zigzag(*number)));
        self.bytes(field, &list)
    }

    /// Adds a number of type `double`.
    pub fn double(mut self, field: u64, number: f64) -> Self {
        self.key(field, EIGHT_BYTES);
        self.0.extend(number.to_le_bytes());
        self
    }

    /// Adds a boolean.
    pub fn flag(self, field: u64, value: bool) -> Self {
        self.number(field, value.into())
    }

    /// Returns the encoded message.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the encoded message after its length.
    pub fn after_its_length(&self) -> Vec<u8> {
        let mut delimited = Vec::new();
        push_varint(&mut delimited, self.0.len() as u64);
        delimited.extend_from_slice(&self.0);
        delimited
    }

    fn key(&mut self, field: u64, wire_type: u64) {
        push_varint(&mut self.0, (field << 3) | wire_type);
    }
}

/// Appends seven bits a byte, the lowest first; the high bit of a byte says that more follow.
fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            return bytes.push(low);
        }
        bytes.push(low | 0x80);
    }
}

/// Returns a number that is small if the absolute value is.
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_varint_has_seven_bits_a_byte() {
        for (value, expected) in [
            (0, &[0][..]),
            (127, &[127]),
            (300, &[0xac, 2]),
            (u64::MAX, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ] {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            assert_eq!(bytes, expected);
        }
        assert_eq!([0, -1, 1, i64::MIN].map(zigzag), [0, 1, 2, u64::MAX]);
    }
}
