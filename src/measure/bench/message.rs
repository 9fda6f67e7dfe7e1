//! Encodes messages of protobuf.

/// A message, field by field in the order of the calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message(Vec<u8>);

/// Wire types of the format.
const VARINT: u64 = 0;
const BYTES: u64 = 2;

impl Message {
    pub(super) fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    pub(super) fn texts<'a>(self, field: u64, texts: impl IntoIterator<Item = &'a str>) -> Self {
        texts.into_iter().fold(self, |message, text| message.text(field, text))
    }

    /// Adds texts in fields whose numbers follow one another.
    pub(super) fn texts_from<const COUNT: usize>(self, first: u64, texts: [&str; COUNT]) -> Self {
        let fields = (first..).zip(texts);
        fields.fold(self, |message, (field, text)| message.text(field, text))
    }

    pub(super) fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// Adds an entry of a map of texts.
    pub(super) fn entry(self, field: u64, key: &str, value: &str) -> Self {
        self.message(field, &Self::default().text(1, key).text(2, value))
    }

    pub(super) fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn number(mut self, field: u64, number: u64) -> Self {
        self.varint(field << 3 | VARINT);
        self.varint(number);
        self
    }

    pub(super) fn flag(self, field: u64, value: bool) -> Self {
        self.number(field, value.into())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends a number of seven bits in each byte, the lowest first; all bytes but the last have the
    /// highest bit.
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            let [low, ..] = number.to_le_bytes();
            self.0.push(low | 0x80);
            number >>= 7;
        }
        let [low, ..] = number.to_le_bytes();
        self.0.push(low);
    }
}
