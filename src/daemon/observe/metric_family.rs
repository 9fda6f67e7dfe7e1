//! The protobuf format of Prometheus: a `MetricFamily` for each metric, after its length.
//!
//! The field numbers are those of `io/prometheus/client/metrics.proto` of
//! github.com/prometheus/client_model. It is the only format with native histograms.

use super::metric::{Described, Distribution, MetricKind, Sample};
use super::native_buckets::{Spans, ZERO_THRESHOLD};
use crate::protobuf_message::Message;

/// Fields of `MetricFamily`.
const NAME: u64 = 1;
const HELP: u64 = 2;
const TYPE: u64 = 3;
const METRIC: u64 = 4;

/// Fields of `Metric`, apart from those of the values.
const LABEL: u64 = 1;

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
    let family = Message::default()
        .text(NAME, &metric.sample_name())
        .text(HELP, &metric.help)
        .number(TYPE, metric_type);
    let family = metric.series.iter().fold(family, |family, (labels, sample)| {
        let labels = labels.iter().fold(Message::default(), |metric, (name, value)| {
            // `LabelPair` has the fields of an entry of a map.
            metric.entry(LABEL, name, value)
        });
        let value = match sample {
            Sample::Distribution(values) => histogram(values),
            Sample::Whole(number) => double(number.to_string().parse().unwrap_or_default()),
            Sample::Real(number) => double(*number),
        };
        family.message(METRIC, &labels.message(field, &value))
    });
    family.after_its_length()
}

fn double(number: f64) -> Message {
    Message::default().double(VALUE, number)
}

fn histogram(values: &Distribution) -> Message {
    let message =
        Message::default().number(SAMPLE_COUNT, values.count).double(SAMPLE_SUM, values.sum);
    let message = values.cumulative().fold(message, |message, (bound, count)| {
        let bucket = Message::default().number(CUMULATIVE_COUNT, count);
        message.message(BUCKET, &bucket.double(UPPER_BOUND, bound))
    });
    let message = message
        .signed(SCHEMA, values.native.schema.into())
        // A threshold above zero marks a histogram as native, even without values.
        .double(THRESHOLD, ZERO_THRESHOLD)
        .number(ZERO_COUNT, values.native.zero_count);
    let Spans { spans, deltas } = values.native.spans();
    let message = spans.into_iter().fold(message, |message, (offset, length)| {
        let span = Message::default().signed(OFFSET, offset.into());
        message.message(POSITIVE_SPAN, &span.number(LENGTH, length.into()))
    });
    message.signed_list(POSITIVE_DELTA, &deltas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::metric::labels;

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
