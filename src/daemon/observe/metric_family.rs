//! The protobuf format of Prometheus: a `MetricFamily` for each metric, after its length.
//!
//! The field numbers are those of `io/prometheus/client/metrics.proto` of
//! github.com/prometheus/client_model. It is the only format with native histograms.

use super::metric::{Described, Distribution, MetricKind, Sample};
use super::native_buckets::ZERO_THRESHOLD;

/// Fields of `MetricFamily`.
const NAME: u64 = 1;
const HELP: u64 = 2;
const TYPE: u64 = 3;
const METRIC: u64 = 4;

/// Fields of `Metric`, apart from those of the values.
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

/// Returns the message of a metric after its length.
pub(super) fn family(metric: &Described) -> Vec<u8> {
    // The value of `MetricType`, and the field of `Metric`.
    let (metric_type, field) = match metric.kind {
        MetricKind::Counter => (0, 3),
        MetricKind::Gauge | MetricKind::Info => (1, 2),
        MetricKind::Histogram => (4, 7),
    };
    let mut family = Message::default();
    family.bytes(NAME, metric.sample_name().as_bytes());
    family.bytes(HELP, metric.help.as_bytes());
    family.unsigned(TYPE, metric_type);
    for (labels, sample) in &metric.series {
        let mut metric = Message::default();
        for (name, value) in labels {
            let mut label = Message::default();
            label.bytes(LABEL_NAME, name.as_bytes());
            label.bytes(LABEL_VALUE, value.as_bytes());
            metric.message(LABEL, &label);
        }
        let value = match sample {
            Sample::Distribution(values) => histogram(values),
            Sample::Whole(number) => double(number.to_string().parse().unwrap_or_default()),
            Sample::Real(number) => double(*number),
        };
        metric.message(field, &value);
        family.message(METRIC, &metric);
    }
    family.after_its_length()
}

fn double(number: f64) -> Message {
    let mut message = Message::default();
    message.double(VALUE, number);
    message
}

fn histogram(values: &Distribution) -> Message {
    let mut message = Message::default();
    message.unsigned(SAMPLE_COUNT, values.count);
    message.double(SAMPLE_SUM, values.sum);
    for (bound, count) in values.cumulative() {
        let mut bucket = Message::default();
        bucket.unsigned(CUMULATIVE_COUNT, count);
        bucket.double(UPPER_BOUND, bound);
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
    use crate::observe::metric::labels;

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
    fn a_family_is_the_bytes_of_its_message() {
        let (name, help) = ("a".to_owned(), "A.".to_owned());
        let series = vec![(labels(["x"], ["y"]), Sample::Whole(2))];
        let bytes = family(&Described { name, help, kind: MetricKind::Counter, series });
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
