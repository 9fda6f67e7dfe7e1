//! Metrics of requests to the API server, under the names of Kubernetes' Go client
//! (k8s.io/component-base/metrics/prometheus/restclient).

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::buckets;
use super::histogram::Histogram;
use super::names::{Names, metrics};

/// Receiver of requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Target {
    verb: String,
    host: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    code: String,
    method: String,
    host: String,
}

type Histograms = Family<Target, Histogram, fn() -> Histogram>;

fn sizes() -> Histograms {
    Histograms::new_with_constructor(|| Histogram::new(buckets::request_sizes()))
}

metrics! {
    /// Metrics of requests. There is one host unless the kubeconfig changes.
    pub struct Requests(names: &mut Names<'_>) {
        answered: Family<Answered, Counter> = names.add("requests",
            "Requests to the API server, by HTTP status, or \"<error>\" without an answer");
        durations: Histograms = names.register("request_duration_seconds",
            "Time of a request until its answer is read; watches do not count",
            Histograms::new_with_constructor(|| Histogram::new(buckets::request_times())));
        request_sizes: Histograms = names.register("request_size_bytes",
            "Length of a request's body", sizes());
        response_sizes: Histograms = names.register("response_size_bytes",
            "Length of an answer's body; watches do not count", sizes());
    }
}

impl Requests {
    /// Counts a request of `size` bytes to the API server at `host`, with its HTTP status, or
    /// `None` without an answer.
    pub fn answered(&self, (verb, host): (&str, &str), size: u64, code: Option<u16>) {
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        let label = Answered { code, method: verb.to_owned(), host: host.to_owned() };
        self.answered.get_or_create(&label).inc();
        self.request_sizes.get_or_create(&Target::new(verb, host)).observe(as_f64(size));
    }

    /// Adds the time from sending a request to the end of its answer, and the answer's length in
    /// bytes, if there was one.
    pub fn took(&self, (verb, host): (&str, &str), duration: Duration, response: Option<u64>) {
        let target = Target::new(verb, host);
        self.durations.get_or_create(&target).observe(duration.as_secs_f64());
        if let Some(size) = response {
            self.response_sizes.get_or_create(&target).observe(as_f64(size));
        }
    }
}

impl Target {
    fn new(verb: &str, host: &str) -> Self {
        Self { verb: verb.to_owned(), host: host.to_owned() }
    }
}

#[allow(clippy::cast_precision_loss, reason = "lengths are far below 2^52")]
fn as_f64(size: u64) -> f64 {
    size as f64
}

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::has;
    use super::*;
    use crate::observe::Observe;

    #[test]
    fn requests_have_the_labels_of_the_go_client() {
        let observe = Observe::new();
        let get = ("GET", "10.96.0.1:443");
        observe.requests().answered(get, 0, Some(200));
        observe.requests().answered(get, 0, None);
        observe.requests().took(get, Duration::from_millis(20), Some(5_000));
        observe.requests().took(get, Duration::from_millis(200), None);
        let (target, host) = ("verb=\"GET\",host=\"10.96.0.1:443\"", "host=\"10.96.0.1:443\"");
        let answered =
            |code| format!("rest_client_requests_total{{code=\"{code}\",method=\"GET\",{host}}} 1");
        let lines = [
            answered("200"),
            answered("<error>"),
            format!("rest_client_request_duration_seconds_bucket{{le=\"0.025\",{target}}} 1"),
            format!("rest_client_request_duration_seconds_count{{{target}}} 2"),
            format!("rest_client_request_size_bytes_count{{{target}}} 2"),
            format!("rest_client_response_size_bytes_bucket{{le=\"4096.0\",{target}}} 0"),
            format!("rest_client_response_size_bytes_bucket{{le=\"16384.0\",{target}}} 1"),
        ];
        has(&observe, &lines.each_ref().map(String::as_str));
    }
}
