//! The protobuf format of Prometheus: a `MetricFamily` for each metric, after its length.
//!
//! The field numbers are those of `io/prometheus/client/metrics.proto` of
//! github.com/prometheus/client_model. Names, types and samples are read from OpenMetrics text, in
//! which native histograms do not exist; their values are an argument.

use super::histogram::Values;
use super::native_buckets::ZERO_THRESHOLD;

/// Fields of `MetricFamily`.
const NAME: u64 = 1;
const HELP: u64 = 2;
const TYPE: u64 = 3;
const METRIC: u64 = 4;

/// Fields of `Metric`, apart from those of [`Kind`].
const LABEL: u64 = 1;

/// Fields of `LabelPair`.
const LABEL_NAME: u64 = 1;
const LABEL_VALUE: u64 = 2;

/// The field of `Gauge`, `Counter` and `Untyped`.
const VALUE: u64 = 1;

/// Fields of `Histogram`.
const SAMPLE_COUNT: u64 = 1;
const SAMPLE_SUM: u64 = 2;
const BUCKET: u64 = 3;
const SCHEMA: u64 = 5;
const THRESHOLD: u64 = 6;
const ZERO_COUNT: u64 = 7;
const POSITIVE_SPAN: u64 = 12;
const POSITIVE_DELTA: u64 = 13;

/// Fields of `Bucket`.
const CUMULATIVE_COUNT: u64 = 1;
const UPPER_BOUND: u64 = 2;

/// Fields of `BucketSpan`.
const OFFSET: u64 = 1;
const LENGTH: u64 = 2;

/// A type of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Untyped,
    Histogram,
}

impl Kind {
    /// Returns the kind of a type of version 0.0.4.
    fn of(name: &str) -> Self {
        match name {
            "counter" => Self::Counter,
            "gauge" => Self::Gauge,
            "histogram" => Self::Histogram,
            _ => Self::Untyped,
        }
    }

    /// Returns the value of `MetricType`, and the field of `Metric`.
    fn numbers(self) -> (u64, u64) {
        match self {
            Self::Counter => (0, 3),
            Self::Gauge => (1, 2),
            Self::Untyped => (3, 5),
            Self::Histogram => (4, 7),
        }
    }
}

/// Names of a metric: its help, and its name and type in version 0.0.4.
#[derive(Debug)]
pub(super) struct Described<'a> {
    pub(super) name: &'a str,
    pub(super) help: &'a str,
    pub(super) kind: &'a str,
}

/// Returns the message of a metric after its length. `samples` are the lines of OpenMetrics;
/// `histograms` continues with the values of its histograms.
pub(super) fn family(
    described: &Described<'_>,
    samples: &[&str],
    histograms: &mut impl Iterator<Item = Values>,
) -> Vec<u8> {
    let kind = Kind::of(described.kind);
    let (metric_type, field) = kind.numbers();
    let mut family = Message::default();
    family.bytes(NAME, described.name.as_bytes());
    family.bytes(HELP, described.help.as_bytes());
    family.unsigned(TYPE, metric_type);
    for sample in samples.iter().filter_map(|line| Sample::parse(line)) {
        let value = match kind {
            // The other lines of a histogram follow its sum, and repeat its values.
            Kind::Histogram if !sample.name.ends_with("_sum") => continue,
            Kind::Histogram => histograms.next().map(|values| histogram(&values)),
            Kind::Counter | Kind::Gauge | Kind::Untyped => {
                let mut message = Message::default();
                message.double(VALUE, sample.value);
                Some(message)
            }
        };
        let Some(value) = value else { continue };
        let mut metric = Message::default();
        for (name, value) in &sample.labels {
            let mut label = Message::default();
            label.bytes(LABEL_NAME, name.as_bytes());
            label.bytes(LABEL_VALUE, value.as_bytes());
            metric.message(LABEL, &label);
        }
        metric.message(field, &value);
        family.message(METRIC, &metric);
    }
    family.after_its_length()
}

fn histogram(values: &Values) -> Message {
    let mut message = Message::default();
    message.unsigned(SAMPLE_COUNT, values.count);
    message.double(SAMPLE_SUM, values.sum);
    let mut cumulative = 0;
    for (bound, count) in &values.classic {
        cumulative += count;
        let mut bucket = Message::default();
        bucket.unsigned(CUMULATIVE_COUNT, cumulative);
        bucket.double(UPPER_BOUND, *bound);
        message.message(BUCKET, &bucket);
    }
    message.signed(SCHEMA, values.native.schema().into());
    // A threshold above zero marks a histogram as native, even without values.
    message.double(THRESHOLD, ZERO_THRESHOLD);
    message.unsigned(ZERO_COUNT, values.native.zero_count());
    let buckets = values.native.spans();
    for (offset, length) in buckets.spans {
        let mut span = Message::default();
        span.signed(OFFSET, offset.into());
        span.unsigned(LENGTH, length.into());
        message.message(POSITIVE_SPAN, &span);
    }
    let mut deltas = Vec::new();
    buckets.deltas.iter().for_each(|delta| push_varint(&mut deltas, zigzag(*delta)));
    message.bytes(POSITIVE_DELTA, &deltas);
    message
}

/// A line of OpenMetrics with a value.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (name, mut rest) = line.split_at(line.find(['{', ' '])?);
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            while !rest.starts_with('}') {
                let (name, quoted) = rest.split_once("=\"")?;
                let (value, after) = unquoted(quoted)?;
                labels.push((name.trim_start_matches(','), value));
                rest = after;
            }
            rest = &rest[1..];
        }
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Self { name, labels, value })
    }
}

/// Returns the text before the quotation mark that ends it, without escapes, and what follows.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next()? {
            (end, '"') => return Some((value, &text[end + 1..])),
            (_, '\\') => value.push(match characters.next()?.1 {
                'n' => '\n',
                escaped => escaped,
            }),
            (_, other) => value.push(other),
        }
    }
}

/// The bytes of a message.
#[derive(Default)]
struct Message(Vec<u8>);

/// Wire types.
const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const LENGTH_FIRST: u64 = 2;

impl Message {
    fn unsigned(&mut self, field: u64, value: u64) {
        self.key(field, VARINT);
        push_varint(&mut self.0, value);
    }

    /// Appends a field of type `sint32` or `sint64`.
    fn signed(&mut self, field: u64, value: i64) {
        self.unsigned(field, zigzag(value));
    }

    fn double(&mut self, field: u64, value: f64) {
        self.key(field, EIGHT_BYTES);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, LENGTH_FIRST);
        push_varint(&mut self.0, bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    fn key(&mut self, field: u64, wire_type: u64) {
        push_varint(&mut self.0, (field << 3) | wire_type);
    }

    fn after_its_length(self) -> Vec<u8> {
        let mut delimited = Vec::new();
        push_varint(&mut delimited, self.0.len() as u64);
        delimited.extend(self.0);
        delimited
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

    #[test]
    fn labels_lose_their_escapes() {
        let sample = Sample::parse(r#"a_total{x="1\"2\\3\n4",y="} 5,"} 1.5"#).unwrap();
        assert_eq!((sample.name, sample.value), ("a_total", 1.5));
        let labels = [("x", "1\"2\\3\n4".to_owned()), ("y", "} 5,".to_owned())];
        assert_eq!(sample.labels, labels);
        assert!(Sample::parse("a{x=\"1} 2").is_none());
        assert!(Sample::parse("a").is_none());
        assert_eq!(Sample::parse("a +Inf").unwrap().value, f64::INFINITY);
    }

    #[test]
    fn a_family_is_the_bytes_of_its_message() {
        let described = Described { name: "a_total", help: "A.", kind: "counter" };
        let bytes = family(&described, &["a_total{x=\"y\"} 2"], &mut [].into_iter());
        let expected = [
            &[36, 0x0a, 7][..],
            b"a_total",
            &[0x12, 2],
            b"A.",
            &[0x18, 0, 0x22, 19, 0x0a, 6, 0x0a, 1],
            b"x",
            &[0x12, 1],
            b"y",
            &[0x1a, 9, 9, 0, 0, 0, 0, 0, 0, 0, 0x40],
        ];
        assert_eq!(bytes, expected.concat());
    }
}
