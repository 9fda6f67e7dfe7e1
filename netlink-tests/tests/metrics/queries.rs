//! What the dashboard and the alerts for kube-proxy of kubernetes-mixin ask of a page.

use netlink_tests::metrics::Sample;

/// Queries by the names, matchers and groups that they use. Prometheus adds `job`, `instance` and
/// `cluster` to each sample.
pub(crate) const QUERIES: &[&str] = &[
    "sum(up{job=\"kube-proxy\"})",
    "absent(up{job=\"kube-proxy\"} == 1)",
    "sum(rate(kubeproxy_sync_proxy_rules_duration_seconds_count{job=\"kube-proxy\"}[5m]))",
    "histogram_quantile(0.99, rate(kubeproxy_sync_proxy_rules_duration_seconds_bucket\
     {job=\"kube-proxy\"}[5m]))",
    "sum(rate(kubeproxy_network_programming_duration_seconds_count{job=\"kube-proxy\"}[5m]))",
    "histogram_quantile(0.99, sum(rate(kubeproxy_network_programming_duration_seconds_bucket\
     {job=\"kube-proxy\"}[5m])) by (instance, le))",
    "sum(rate(rest_client_requests_total{job=\"kube-proxy\", code=~\"2..\"}[5m]))",
    "sum(rate(rest_client_requests_total{job=\"kube-proxy\", code=~\"4..\"}[5m]))",
    "sum(rate(rest_client_requests_total{job=\"kube-proxy\", code=~\"5..\"}[5m]))",
    "sum(rate(rest_client_requests_total{job!=\"kubelet\", code=~\"4..|5..\"}[5m])) by (cluster, \
     instance, job) / sum(rate(rest_client_requests_total{job!=\"kubelet\"}[5m])) by (cluster, \
     instance, job) > 0.01",
    "histogram_quantile(0.99, sum(rate(rest_client_request_duration_seconds_bucket\
     {job=\"kube-proxy\", verb=\"POST\"}[5m])) by (verb, host, le))",
    "histogram_quantile(0.99, sum(rate(rest_client_request_duration_seconds_bucket\
     {job=\"kube-proxy\", verb=\"GET\"}[5m])) by (verb, host, le))",
    "process_resident_memory_bytes{job=\"kube-proxy\"}",
    "rate(process_cpu_seconds_total{job=\"kube-proxy\"}[5m])",
    "count by (git_version, cluster) (kubernetes_build_info{job!=\"coredns\"})",
];

/// What the queries ask and this program has not, and why.
pub(crate) const ABSENT: &[(&str, &str)] = &[
    ("go_goroutines{job=\"kube-proxy\"}", "there is no runtime of Go"),
    ("rest_client_requests_total{code=~\"3..\"}", "API servers do not redirect"),
    ("rest_client_request_duration_seconds_bucket{url!=\"\"}", "Go's client has host instead"),
];

/// A name with matchers of labels.
#[derive(Debug)]
struct Selector<'a> {
    name: &'a str,
    matchers: Vec<(&'a str, &'a str, &'a str)>,
}

/// What a query asks and the samples have not.
pub(crate) fn missing(query: &str, samples: &[Sample]) -> Vec<String> {
    let mut missing = Vec::new();
    let selectors = selectors(query);
    assert!(!selectors.is_empty(), "{query}");
    for selector in selectors {
        let found: Vec<_> = samples.iter().filter(|sample| selector.selects(sample)).collect();
        if found.is_empty() {
            missing.push(format!("{selector:?} of {query}"));
        }
        for label in groups(query) {
            if !found.iter().all(|sample| sample.labels.contains_key(label)) {
                missing.push(format!("the label {label} of {query}"));
            }
        }
    }
    missing
}

fn selectors(query: &str) -> Vec<Selector<'_>> {
    let mut found = Vec::new();
    for (place, _) in query.match_indices('{') {
        let before = query[..place].trim_end();
        let start = before.rfind(|it: char| !it.is_ascii_alphanumeric() && it != '_');
        let name = &before[start.map_or(0, |start| start + 1)..];
        let matchers = query[place + 1..].split_once('}').expect("the end of a selector").0;
        let matchers = matchers.split(',').map(|matcher| {
            let (label, value) = matcher.trim().split_once('"').expect("a value of a label");
            let place = label.find(['=', '!']).expect("an operator");
            (&label[..place], &label[place..], value.trim_end_matches('"'))
        });
        found.push(Selector { name, matchers: matchers.collect() });
    }
    found
}

/// The labels of all `by (...)`.
fn groups(query: &str) -> impl Iterator<Item = &str> {
    let groups = query.split("by (").skip(1).filter_map(|rest| rest.split_once(')'));
    groups.flat_map(|(labels, _)| labels.split(',').map(str::trim))
}

impl Selector<'_> {
    fn selects(&self, sample: &Sample) -> bool {
        let met = |(label, operator, value): &(&str, &str, &str)| match *operator {
            "=" => sample.label(label) == *value,
            "!=" => sample.label(label) != *value,
            "=~" => value.split('|').any(|pattern| is_like(pattern, sample.label(label))),
            other => panic!("the operator {other}"),
        };
        sample.name == self.name && self.matchers.iter().all(met)
    }
}

/// Whether a text is like a pattern, in which a dot stands for any character.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut pairs = pattern.chars().zip(text.chars());
    pattern.len() == text.len() && pairs.all(|(expected, it)| expected == '.' || expected == it)
}

#[test]
fn a_query_of_an_absent_metric_is_detected() {
    let samples = [Sample::read("a_total{code=\"200\",host=\"b\"} 1")];
    let missing = |query| missing(query, &samples).len();
    assert_eq!(missing("sum(rate(a_total{code=~\"2..\"}[5m])) by (host)"), 0);
    assert_eq!(missing("sum(rate(a_total{code=~\"5..|4..\"}[5m]))"), 1);
    assert_eq!(missing("sum by (host, url) (a_total{code!=\"500\"})"), 1);
    assert_eq!(missing("b_total{code=\"200\"} / a_total{code=\"200\"}"), 1);
}
