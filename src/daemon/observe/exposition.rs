//! The formats of metrics: OpenMetrics 1.0.0, version 0.0.4 of Prometheus' text, and its protobuf.
//!
//! prometheus-client writes OpenMetrics, from which the others follow. kube-proxy serves 0.0.4
//! unless a client requests another one.

use hyper::HeaderMap;
use hyper::body::Bytes;
use hyper::header::ACCEPT;

use super::accept::{Accepted, accepted};
use super::histogram::recorded;
use super::protobuf::{Described, family};

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Prometheus,
    OpenMetrics,
    /// The only one with native histograms.
    Protobuf,
}

impl Format {
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

    /// Returns the metrics that `encode` writes as OpenMetrics in this format.
    pub(super) fn written(self, encode: impl FnOnce() -> String) -> Bytes {
        match self {
            Self::Prometheus => prometheus(&encode()).into(),
            Self::OpenMetrics => encode().into(),
            Self::Protobuf => protobuf(encode).into(),
        }
    }
}

/// The message of the protobuf format.
const METRIC_FAMILY: &str = "io.prometheus.client.MetricFamily";

/// A metric of a text in OpenMetrics, with its name and type in version 0.0.4. There the name has the
/// suffix of the samples, and `# UNIT`, `# EOF` and some types do not exist. Samples are the same,
/// because ours have neither timestamps nor exemplars.
struct Metric<'a> {
    name: String,
    help: &'a str,
    kind: &'a str,
    samples: Vec<&'a str>,
}

/// Returns the metrics of a text. Labels have no line breaks, so these words begin the first line of
/// each metric.
fn metrics(open_metrics: &str) -> impl Iterator<Item = Metric<'_>> {
    let metrics = open_metrics.strip_prefix("# HELP ").unwrap_or_default().split("\n# HELP ");
    metrics.filter_map(|text| {
        let mut lines = text.lines();
        let (name, help) = lines.next()?.split_once(' ')?;
        let (comments, samples): (Vec<_>, _) = lines.partition(|line| line.starts_with('#'));
        let kind = comments.iter().find_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let (suffix, kind) = renamed(kind.map_or("unknown", |(_, kind)| kind));
        Some(Metric { name: format!("{name}{suffix}"), help, kind, samples })
    })
}

fn protobuf(encode: impl FnOnce() -> String) -> Vec<u8> {
    let (text, histograms) = recorded(encode);
    let mut histograms = histograms.into_iter();
    let families = metrics(&text).map(|Metric { name, help, kind, samples }| {
        family(&Described { name: &name, help, kind }, &samples, &mut histograms)
    });
    families.flatten().collect()
}

fn prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    for Metric { name, help, kind, samples } in metrics(open_metrics) {
        text.extend(["# HELP ", &name, " ", help, "\n# TYPE ", &name, " ", kind, "\n"]);
        for sample in samples {
            push_sample(&mut text, sample);
            text.push('\n');
        }
    }
    text
}

/// Appends a sample. Bounds of buckets have Go's notation: Prometheus before 3.0 compares them as
/// text, and a sum over nodes with both programs needs the same text.
fn push_sample(text: &mut String, line: &str) {
    let bucket = line.split_once(BOUND).and_then(|(name, rest)| {
        let (bound, rest) = rest.split_once('"')?;
        Some((name, bound.parse().ok()?, rest))
    });
    match bucket {
        Some((name, bound, rest)) => text.extend([name, BOUND, &in_go(bound), "\"", rest]),
        None => text.push_str(line),
    }
}

/// Text before the bound of a bucket.
const BOUND: &str = "_bucket{le=\"";

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

/// Returns the suffix of the samples of an OpenMetrics type, and its name in version 0.0.4.
fn renamed(kind: &str) -> (&'static str, &str) {
    match kind {
        "counter" => ("_total", "counter"),
        "info" => ("_info", "gauge"),
        "stateset" => ("", "gauge"),
        "unknown" => ("", "untyped"),
        kind => ("", kind),
    }
}

#[cfg(test)]
mod tests {
    use Format::{OpenMetrics, Prometheus, Protobuf};
    use hyper::header::HeaderValue;

    use super::*;

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
            assert_eq!(Format::accepted(&headers), expected, "{accept:?}");
        }
    }

    #[test]
    fn names_and_types_are_those_of_version_0_0_4() {
        let open_metrics = "\
            # HELP a_changes Changes, all of them.\n\
            # TYPE a_changes counter\n\
            a_changes_total{x=\"# EOF\"} 3\n\
            # HELP a_seconds Times.\n\
            # TYPE a_seconds histogram\n\
            # UNIT a_seconds seconds\n\
            a_seconds_bucket{le=\"+Inf\"} 1\n\
            # HELP a_build The version.\n\
            # TYPE a_build info\n\
            a_build_info{version=\"1\"} 1\n\
            # HELP a_thing Anything.\n\
            # TYPE a_thing unknown\n\
            a_thing 1.5\n\
            # HELP a_pending Changes.\n\
            # TYPE a_pending gauge\n\
            # EOF\n";
        let expected = "\
            # HELP a_changes_total Changes, all of them.\n\
            # TYPE a_changes_total counter\n\
            a_changes_total{x=\"# EOF\"} 3\n\
            # HELP a_seconds Times.\n\
            # TYPE a_seconds histogram\n\
            a_seconds_bucket{le=\"+Inf\"} 1\n\
            # HELP a_build_info The version.\n\
            # TYPE a_build_info gauge\n\
            a_build_info{version=\"1\"} 1\n\
            # HELP a_thing Anything.\n\
            # TYPE a_thing untyped\n\
            a_thing 1.5\n\
            # HELP a_pending Changes.\n\
            # TYPE a_pending gauge\n";
        assert_eq!(Prometheus.written(|| open_metrics.to_owned()), expected);
        assert_eq!(OpenMetrics.written(|| open_metrics.to_owned()), open_metrics);
    }

    #[test]
    fn bounds_of_buckets_are_written_as_go_does() {
        for (bound, expected) in [
            ("0.00001", "1e-05"),
            ("0.0001", "0.0001"),
            ("0.512", "0.512"),
            ("1.0", "1"),
            ("16384.0", "16384"),
            ("262144.0", "262144"),
            ("1048576.0", "1.048576e+06"),
            ("+Inf", "+Inf"),
        ] {
            let mut text = String::new();
            push_sample(&mut text, &format!("a_bucket{{le=\"{bound}\",b=\"1.0\"}} 1"));
            assert_eq!(text, format!("a_bucket{{le=\"{expected}\",b=\"1.0\"}} 1"));
        }
    }

    /// Every sample follows a `# TYPE` of its own name, or of the name without a histogram's
    /// suffix.
    #[test]
    fn every_sample_of_ours_has_its_type() {
        let observe = crate::observe::Observe::new();
        let text = prometheus(&observe.metrics_text());
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
