//! The protobuf format of `/metrics`, with native histograms, read by a decoder of its own.
//!
//! The field numbers are those of `io/prometheus/client/metrics.proto` of
//! github.com/prometheus/client_model.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use daemon::observe::{CommitStage, Observe, ServedContent, Site, bind, serve};
use engine::schedule::Task;

/// The value of a field.
#[derive(Clone, Debug)]
enum Field<'a> {
    Varint(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

/// The fields of a message by their numbers.
#[derive(Debug, Default)]
struct Message<'a>(BTreeMap<u64, Vec<Field<'a>>>);

/// Takes a varint from the front of `bytes`.
fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a varint ends");
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            break;
        }
    }
    value
}

/// Takes bytes after their length from the front of `bytes`.
fn delimited<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let length = usize::try_from(varint(bytes)).unwrap();
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    taken
}

fn signed(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

impl<'a> Message<'a> {
    fn read(mut bytes: &'a [u8]) -> Self {
        let mut message = Self::default();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let field = match key & 7 {
                0 => Field::Varint(varint(&mut bytes)),
                1 => {
                    let (value, rest) = bytes.split_first_chunk().unwrap();
                    bytes = rest;
                    Field::Double(f64::from_le_bytes(*value))
                }
                2 => Field::Bytes(delimited(&mut bytes)),
                other => panic!("wire type {other}"),
            };
            message.0.entry(key >> 3).or_default().push(field);
        }
        message
    }

    fn all(&self, field: u64) -> &[Field<'a>] {
        self.0.get(&field).map_or(&[], Vec::as_slice)
    }

    fn messages(&self, field: u64) -> impl Iterator<Item = Message<'a>> {
        self.all(field).iter().map(|field| match field {
            Field::Bytes(bytes) => Message::read(bytes),
            other @ (Field::Varint(_) | Field::Double(_)) => panic!("{other:?} is no message"),
        })
    }

    fn text(&self, field: u64) -> &'a str {
        match self.all(field) {
            [Field::Bytes(bytes)] => std::str::from_utf8(bytes).unwrap(),
            other => panic!("{other:?} is no text"),
        }
    }

    fn number(&self, field: u64) -> u64 {
        match self.all(field) {
            [Field::Varint(number)] => *number,
            other => panic!("{other:?} is no number"),
        }
    }

    fn double(&self, field: u64) -> f64 {
        match self.all(field) {
            [Field::Double(value)] => *value,
            other => panic!("{other:?} is no double"),
        }
    }

    /// Returns the counts of the native buckets of a histogram, by their index.
    fn native(&self) -> BTreeMap<i64, i64> {
        let mut deltas = match self.all(13) {
            [Field::Bytes(bytes)] => *bytes,
            other => panic!("{other:?} are no differences"),
        };
        let (mut index, mut count, mut counts) = (0, 0, BTreeMap::new());
        for span in self.messages(12) {
            index += signed(span.number(1));
            for _ in 0..span.number(2) {
                count += signed(varint(&mut deltas));
                counts.insert(index, count);
                index += 1;
            }
        }
        assert!(deltas.is_empty());
        counts
    }
}

/// Returns the content type and the body of `/metrics`.
fn scrape(observe: &Observe, accept: &str) -> (String, Vec<u8>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(async { bind("127.0.0.1:0".parse().unwrap()).unwrap() });
    let address = listener.local_addr().unwrap();
    let content = ServedContent::new(observe.clone());
    runtime.spawn(serve(Arc::new(content), Site::Metrics, listener));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let request = format!("GET /metrics HTTP/1.0\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap();
    (kind.to_owned(), answer[end + 4..].to_vec())
}

/// What Prometheus sends with `scrape_native_histograms`.
const ACCEPT: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
    encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,\
    text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

/// Appends the samples of a message as lines of the text format, without the order of labels.
fn samples(family: &Message<'_>, lines: &mut BTreeSet<String>) {
    let name = family.text(1);
    let types = ["counter", "gauge", "summary", "untyped", "histogram"];
    let kind = types[usize::try_from(family.number(3)).unwrap()];
    lines.insert(format!("# TYPE {name} {kind}"));
    lines.insert(format!("# HELP {name} {}", family.text(2)));
    let mut add = |name: &str, labels: &[(String, String)], value: f64| {
        let labels: BTreeSet<_> = labels.iter().map(|(name, value)| (name, value)).collect();
        lines.insert(format!("{name} {labels:?} {value:?}"));
    };
    for metric in family.messages(4) {
        let label = |pair: Message<'_>| (pair.text(1).to_owned(), pair.text(2).to_owned());
        let labels: Vec<_> = metric.messages(1).map(label).collect();
        let field = match kind {
            "counter" => 3,
            "gauge" => 2,
            "untyped" => 5,
            "histogram" => 7,
            other => panic!("{other}"),
        };
        let value = metric.messages(field).next().unwrap();
        if kind != "histogram" {
            add(name, &labels, value.double(1));
            continue;
        }
        add(&format!("{name}_sum"), &labels, value.double(2));
        add(&format!("{name}_count"), &labels, value.number(1) as f64);
        for bucket in value.messages(3) {
            let bound = ("le".to_owned(), format!("{:?}", bucket.double(2)));
            let labels: Vec<_> = labels.iter().cloned().chain([bound]).collect();
            add(&format!("{name}_bucket"), &labels, bucket.number(1) as f64);
        }
    }
}

/// Returns the lines of the text format in the form of [`samples`].
fn samples_of_text(text: &str) -> BTreeSet<String> {
    let line = |line: &str| {
        if line.starts_with('#') {
            return line.to_owned();
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels: BTreeSet<_> = labels
            .trim_end_matches('}')
            .split("\",")
            .filter_map(|label| label.split_once("=\""))
            .map(|(name, value)| match (name, value.trim_end_matches('"')) {
                ("le", bound) => (name, format!("{:?}", bound.parse::<f64>().unwrap())),
                (_, value) => (name, value.to_owned()),
            })
            .collect();
        format!("{name} {labels:?} {:?}", value.parse::<f64>().unwrap())
    };
    text.lines().map(line).collect()
}

fn observed() -> Observe {
    let observe = Observe::new();
    for microseconds in [0, 3, 40, 41, 45, 900, 70_000] {
        let took = Duration::from_micros(microseconds);
        observe.metrics().commits.stage_took(CommitStage::Commit, took);
        observe.metrics().kube_proxy.sync_took(Task::Commit, took);
    }
    observe.metrics().server.answered(["GET", "[::1]:6443"], 300, None);
    observe.metrics().server.took(["GET", "[::1]:6443"], Duration::from_millis(30), Some(70_000));
    observe
}

#[test]
fn protobuf_has_the_samples_of_the_text_format() {
    let observe = observed();
    let (kind, body) = scrape(&observe, ACCEPT);
    assert_eq!(
        kind,
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
         encoding=delimited"
    );
    let (mut rest, mut found) = (body.as_slice(), BTreeSet::new());
    while !rest.is_empty() {
        samples(&Message::read(delimited(&mut rest)), &mut found);
    }
    let (kind, text) = scrape(&observe, "text/plain");
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    let expected = samples_of_text(&String::from_utf8(text).unwrap());
    // Those of the process itself change between two scrapes.
    let differing: Vec<_> = found
        .symmetric_difference(&expected)
        .filter(|line| !line.starts_with("process_"))
        .collect();
    assert!(differing.is_empty(), "{differing:#?}");
    assert!(found.len() > 500, "{}", found.len());
}

#[test]
fn native_buckets_of_every_histogram_add_up_to_its_count() {
    let (_, body) = scrape(&observed(), ACCEPT);
    let mut rest = body.as_slice();
    let mut histograms = BTreeMap::new();
    while !rest.is_empty() {
        let family = Message::read(delimited(&mut rest));
        for histogram in
            family.messages(4).flat_map(|metric| metric.messages(7).collect::<Vec<_>>())
        {
            let (zero, buckets) = (histogram.number(7), histogram.native());
            let sum = zero + u64::try_from(buckets.values().sum::<i64>()).unwrap();
            assert_eq!(sum, histogram.number(1), "{}", family.text(1));
            assert_eq!((signed(histogram.number(5)), histogram.double(6)), (3, 2_f64.powi(-128)));
            if sum > 1 {
                histograms.insert(family.text(1).to_owned(), (zero, buckets));
            }
        }
    }
    let (zero, buckets) = &histograms["deltaproxy_stage_duration_seconds"];
    // A bucket ends at 2^(index / 8) seconds: 3 µs, 40 and 41 µs, 45 µs, 900 µs, 70 ms.
    let counted: Vec<_> = buckets.iter().filter(|(_, count)| **count > 0).collect();
    assert_eq!(*zero, 1);
    assert_eq!(counted, [(&-146, &1), (&-116, &2), (&-115, &1), (&-80, &1), (&-30, &1)]);
    assert!(histograms.contains_key("kubeproxy_sync_proxy_rules_duration_seconds"));
}
