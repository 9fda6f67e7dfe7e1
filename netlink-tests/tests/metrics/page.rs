//! The rules of Prometheus for a page of metrics.

use std::collections::{BTreeMap, BTreeSet};

use netlink_tests::metrics::{Sample, samples};

/// What is wrong with a page by the rules of Prometheus for names, types and units.
pub(crate) fn mistakes(text: &str) -> Vec<String> {
    let comments = |word: &str| {
        let word = format!("# {word} ");
        let lines = text.lines().filter_map(move |line| line.strip_prefix(&word)?.split_once(' '));
        lines.map(|(name, rest)| (name.to_owned(), rest.to_owned())).collect::<Vec<_>>()
    };
    let (types, help) = (comments("TYPE"), comments("HELP"));
    let mut mistakes = Vec::new();
    let names: BTreeSet<_> = types.iter().map(|(name, _)| name).collect();
    if names.len() != types.len() || help.len() != types.len() {
        mistakes.push("a name without HELP and TYPE, or with more than one".to_owned());
    }
    for ((name, kind), (_, help)) in types.iter().zip(&help) {
        let is_counter = kind == "counter";
        let words: Vec<_> = name.split('_').collect();
        let is_lower =
            name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_');
        // This name is kube-proxy's.
        let is_known = name == "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
        for (is_wrong, what) in [
            (!is_lower, "is not in lower case"),
            (help.trim().is_empty(), "has no help"),
            (is_counter != name.ends_with("_total") && !is_known, "has a wrong suffix"),
            (["_count", "_sum", "_bucket"].iter().any(|it| name.ends_with(it)), "has a suffix"),
            (words.iter().any(|it| UNITS.contains(it)), "is in no base unit"),
            (words.contains(&"duration") && !words.contains(&"seconds"), "has no unit"),
            (words.contains(&"size") && !words.contains(&"bytes"), "has no unit"),
        ] {
            mistakes.extend(is_wrong.then(|| format!("{name} {what}")));
        }
    }
    mistakes.extend(samples(text).iter().filter_map(|sample| untyped(sample, &types)));
    mistakes.extend(broken_histograms(&samples(text)));
    mistakes
}

const UNITS: [&str; 8] = ["ms", "us", "ns", "milliseconds", "microseconds", "kb", "mb", "percent"];

/// That a sample has no type.
fn untyped(sample: &Sample, types: &[(String, String)]) -> Option<String> {
    let of_kind = |(name, kind): &(String, String)| match kind.as_str() {
        "histogram" => ["_bucket", "_sum", "_count"]
            .iter()
            .any(|suffix| sample.name.strip_suffix(suffix) == Some(name)),
        _ => sample.name == *name,
    };
    (!types.iter().any(of_kind)).then(|| format!("{} has no TYPE", sample.name))
}

/// Histograms whose buckets do not grow, or do not end with their count.
fn broken_histograms(samples: &[Sample]) -> Vec<String> {
    let mut series = BTreeMap::<_, Vec<f64>>::new();
    for sample in samples.iter().filter(|sample| sample.labels.contains_key("le")) {
        let mut labels = sample.labels.clone();
        labels.remove("le");
        series.entry((sample.name.clone(), labels)).or_default().push(sample.value);
    }
    let broken = |((name, labels), counts): &((String, BTreeMap<_, _>), Vec<f64>)| {
        let count = name.replace("_bucket", "_count");
        let count = samples.iter().find(|it| it.name == count && it.labels == *labels);
        !counts.is_sorted() || count.map(|it| it.value) != counts.last().copied()
    };
    series.into_iter().filter(broken).map(|it| format!("{:?} is broken", it.0)).collect()
}
