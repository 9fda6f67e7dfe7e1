//! The formats of metrics: OpenMetrics 1.0.0, version 0.0.4 of Prometheus' text, and its protobuf.
//!
//! Each is written from the same values. kube-proxy serves 0.0.4 unless a client requests another one.

use hyper::HeaderMap;
use hyper::header::ACCEPT;

use super::accept::{Accepted, accepted};
use super::metric::{Described, MetricKind, Registry, Sample, SeriesLabels};
use super::metric_family::family;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricsFormat {
    Prometheus,
    OpenMetrics,
    /// The only one with native histograms.
    Protobuf,
}

impl MetricsFormat {
    /// Returns the format that `headers` prefer.
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        let ranges = accepted(headers, ACCEPT);
        ranges.iter().find_map(Self::of_range).unwrap_or(Self::Prometheus)
    }

    fn of_range(range: &Accepted<'_>) -> Option<Self> {
        let [version, message, encoding] =
            ["version", "proto", "encoding"].map(|name| range.parameter(name));
        match (&*range.value, version) {
            ("application/openmetrics-text", None | Some("0.0.1" | "1.0.0")) => {
                Some(Self::OpenMetrics)
            }
            ("application/vnd.google.protobuf", _)
                if (message, encoding) == (Some(METRIC_FAMILY), Some("delimited")) =>
            {
                Some(Self::Protobuf)
            }
            ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", _) => Some(Self::Prometheus),
            _ => None,
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; \
                 proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

/// The message of the protobuf format.
const METRIC_FAMILY: &str = "io.prometheus.client.MetricFamily";

/// Returns the present metrics in a format.
pub(super) fn written(format: MetricsFormat, registry: &Registry) -> Vec<u8> {
    let metrics = registry.collect();
    match format {
        MetricsFormat::Protobuf => metrics.flat_map(|metric| family(&metric)).collect(),
        MetricsFormat::Prometheus => {
            metrics.map(|metric| prometheus(&metric)).collect::<String>().into()
        }
        MetricsFormat::OpenMetrics => {
            let text: String = metrics.map(|metric| open_metrics(&metric)).collect();
            (text + "# EOF\n").into()
        }
    }
}

fn open_metrics(metric: &Described) -> String {
    lines(metric, (&metric.name, metric.kind.name()), real)
}

/// In version 0.0.4 the name of a metric has the suffix of its samples, and there is no type of
/// information. Bounds of buckets have Go's notation: Prometheus before 3.0 compares them as text,
/// and a sum over nodes with both programs needs the same text.
fn prometheus(metric: &Described) -> String {
    let is_info = metric.kind == MetricKind::Info;
    let kind = if is_info { MetricKind::Gauge } else { metric.kind };
    lines(metric, (&metric.sample_name(), kind.name()), in_go)
}

/// Returns the lines of a metric.
fn lines(metric: &Described, (name, kind): (&str, &str), bound: fn(f64) -> String) -> String {
    let mut text = format!("# HELP {name} {}\n# TYPE {name} {kind}\n", metric.help);
    let name = metric.sample_name();
    let mut add = |suffix: &str, bound: Option<String>, labels: &SeriesLabels, value: String| {
        let labels = labels.iter().map(|(name, value)| (*name, escaped(value)));
        let labels = bound.map(|bound| ("le", bound)).into_iter().chain(labels);
        let labels: Vec<_> = labels.map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        text.extend([&name, suffix]);
        if !labels.is_empty() {
            text.extend(["{", &labels.join(","), "}"]);
        }
        text.extend([" ", &value, "\n"]);
    };
    for (labels, sample) in &metric.series {
        match sample {
            Sample::Whole(number) => add("", None, labels, number.to_string()),
            Sample::Real(number) => add("", None, labels, real(*number)),
            Sample::Distribution(values) => {
                add("_sum", None, labels, real(values.sum));
                add("_count", None, labels, values.count.to_string());
                for (upper, count) in values.cumulative() {
                    add("_bucket", Some(bound(upper)), labels, count.to_string());
                }
            }
        }
    }
    text
}

/// Returns the value of a label as it is between quotation marks.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Formats a number as in OpenMetrics: like Go, but a whole one has a decimal.
fn real(number: f64) -> String {
    let text = in_go(number);
    if text.contains(['.', 'e', 'I']) { text } else { text + ".0" }
}

/// Formats a number like Go's verb `g`: with an exponent below -4 or above 5.
fn in_go(number: f64) -> String {
    let scientific = format!("{number:e}");
    match scientific.split_once('e').map(|(digits, exponent)| (digits, exponent.parse::<i32>())) {
        Some((digits, Ok(exponent))) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        Some(_) => number.to_string(),
        None => "+Inf".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use MetricsFormat::{OpenMetrics, Prometheus, Protobuf};
    use hyper::header::HeaderValue;

    use super::*;
    use crate::observe::histogram::Histogram;
    use crate::observe::metric::Metric;

    #[test]
    fn the_format_is_the_one_that_weighs_most() {
        for (accept, expected) in [
            (&[][..], Prometheus),
            (&["*/*"][..], Prometheus),
            (&["text/html"], Prometheus),
            (&["application/openmetrics-text"], OpenMetrics),
            (&["Application/OpenMetrics-Text; Version=\"1.0.0\""], OpenMetrics),
            (&["application/openmetrics-text;version=2.0.0"], Prometheus),
            (&["application/openmetrics-text;q=0"], Prometheus),
            (&["application/openmetrics-text;q=nan"], Prometheus),
            (&["application/openmetrics-text;q=0.2,text/plain;q=0.3"], Prometheus),
            (&["text/plain;q=0.3", "application/openmetrics-text;q=0.4"], OpenMetrics),
            (&["text/plain, application/openmetrics-text"], Prometheus),
            // Prometheus 2.50 and 3.0.
            (
                &["application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;\
                   version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"],
                OpenMetrics,
            ),
            (
                &["application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                   encoding=delimited;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"],
                Protobuf,
            ),
            (&["application/vnd.google.protobuf"], Prometheus),
            (
                &["application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                   encoding=text"],
                Prometheus,
            ),
            // Protobuf after text.
            (
                &["text/plain;version=0.0.4;q=0.6,application/vnd.google.protobuf;\
                   proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.5"],
                Prometheus,
            ),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(ACCEPT, HeaderValue::from_static(value));
            }
            assert_eq!(MetricsFormat::accepted(&headers), expected, "{accept:?}");
        }
    }

    #[test]
    fn names_and_types_are_those_of_the_version() {
        let histogram = Histogram::new(&vec![]);
        histogram.observe(0.5);
        let mut registry = Registry::default();
        let series = [
            ("a_changes", "Changes.", MetricKind::Counter, vec![("x", "# EOF")], Sample::Whole(3)),
            ("a_seconds", "Times.", MetricKind::Histogram, vec![], histogram.sample()),
            ("a_build", "The version.", MetricKind::Info, vec![("version", "1")], Sample::Whole(1)),
            ("a_thing", "Anything.", MetricKind::Gauge, vec![], Sample::Real(1.5)),
        ];
        let described = series.map(|(name, help, kind, labels, sample)| {
            let labels = labels.into_iter().map(|(name, value)| (name, value.to_owned()));
            let (name, help) = (name.to_owned(), help.to_owned());
            Described { name, help, kind, series: vec![(labels.collect(), sample)] }
        });
        let none = Described { series: Vec::new(), ..described[3].clone() };
        registry.add(move || described.iter().chain([&none]).cloned().collect());
        let text = |format| String::from_utf8(written(format, &registry)).unwrap();
        let expected = "\
            # HELP a_changes Changes.\n\
            # TYPE a_changes counter\n\
            a_changes_total{x=\"# EOF\"} 3\n\
            # HELP a_seconds Times.\n\
            # TYPE a_seconds histogram\n\
            a_seconds_sum 0.5\n\
            a_seconds_count 1\n\
            a_seconds_bucket{le=\"+Inf\"} 1\n\
            # HELP a_build The version.\n\
            # TYPE a_build info\n\
            a_build_info{version=\"1\"} 1\n\
            # HELP a_thing Anything.\n\
            # TYPE a_thing gauge\n\
            a_thing 1.5\n\
            # EOF\n";
        assert_eq!(text(OpenMetrics), expected);
        let expected = expected
            .replace(" a_changes ", " a_changes_total ")
            .replace(" a_build ", " a_build_info ")
            .replace("a_build_info info", "a_build_info gauge")
            .replace("# EOF\n", "");
        assert_eq!(text(Prometheus), expected);
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("1\"2\\3\n4"), "1\\\"2\\\\3\\n4");
    }

    #[test]
    fn bounds_of_buckets_are_written_as_go_does() {
        for (bound, open_metrics, expected) in [
            (0.000_01, "1e-05", "1e-05"),
            (0.000_1, "0.0001", "0.0001"),
            (0.512, "0.512", "0.512"),
            (1.0, "1.0", "1"),
            (16_384.0, "16384.0", "16384"),
            (262_144.0, "262144.0", "262144"),
            (1_048_576.0, "1.048576e+06", "1.048576e+06"),
            (f64::INFINITY, "+Inf", "+Inf"),
        ] {
            assert_eq!((real(bound).as_str(), in_go(bound).as_str()), (open_metrics, expected));
        }
    }

    /// Every sample follows a `# TYPE` of its own name, or of the name without a histogram's
    /// suffix.
    #[test]
    fn every_sample_of_ours_has_its_type() {
        let observe = crate::observe::Observe::new();
        let text = written(Prometheus, &observe.shared.metrics.registry);
        let text = String::from_utf8(text).unwrap();
        let mut kind = ("", "");
        for line in text.lines() {
            if let Some(named) = line.strip_prefix("# TYPE ") {
                kind = named.split_once(' ').unwrap();
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                let suffixes: &[&str] = match kind.1 {
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                let suffix = name.strip_prefix(kind.0).unwrap_or(name);
                assert!(suffixes.contains(&suffix), "{line} of {kind:?}");
            }
        }
        assert!(!text.contains("EOF") && text.contains("# TYPE deltaproxy_events_total counter\n"));
    }
}
