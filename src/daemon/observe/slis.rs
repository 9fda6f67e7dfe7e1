//! `/metrics/slis`: the probes as service level indicators, under the names of Kubernetes
//! components (KEP-3466).

use super::metric::{Counter, Family, Gauge, Registry, metrics};

metrics! {
    /// Results of the probes. A probe has no series until its first request, as in Kubernetes.
    struct Probed {
        last: Family<2, Gauge> = "kubernetes_healthcheck",
            "This metric records the result of a single healthcheck", by ["name", "type"];
        all: Family<3, Counter> = "kubernetes_healthchecks",
            "This metric records the results of all healthcheck", by ["name", "type", "status"];
    }
}

/// The page, and its series.
#[derive(Debug)]
pub(super) struct Slis {
    pub(super) registry: Registry,
    probed: Probed,
}

impl Default for Slis {
    fn default() -> Self {
        let mut registry = Registry::default();
        let probed = Probed::register(&mut registry);
        Self { registry, probed }
    }
}

impl Slis {
    /// Counts an answer to the probe `kind`: healthz, livez or readyz. Returns whether the one before
    /// it was a success.
    pub(super) fn answered(&self, kind: &'static str, is_success: bool) -> bool {
        let last = self.probed.last.with([NAME, kind]);
        let was_success = last.get() == 1;
        last.set(is_success);
        let status = if is_success { "success" } else { "error" };
        self.probed.all.with([NAME, kind, status]).inc();
        was_success
    }
}

/// Name of the only check behind each probe.
const NAME: &str = "proxy";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::exposition::{MetricsFormat, written};

    #[test]
    fn a_probe_has_its_last_result_and_counts_of_both() {
        let slis = Slis::default();
        let answers = [("readyz", false), ("readyz", false), ("readyz", true), ("livez", false)];
        assert_eq!(answers.map(|(kind, is)| slis.answered(kind, is)), [false; 4]);
        let text = String::from_utf8(written(MetricsFormat::OpenMetrics, &slis.registry)).unwrap();
        let samples: std::collections::BTreeSet<_> =
            text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "kubernetes_healthchecks_total{name=\"proxy\",type=\"livez\",status=\"error\"} 1",
            "kubernetes_healthchecks_total{name=\"proxy\",type=\"readyz\",status=\"error\"} 2",
            "kubernetes_healthchecks_total{name=\"proxy\",type=\"readyz\",status=\"success\"} 1",
            "kubernetes_healthcheck{name=\"proxy\",type=\"livez\"} 0",
            "kubernetes_healthcheck{name=\"proxy\",type=\"readyz\"} 1",
        ];
        assert_eq!(samples.into_iter().collect::<Vec<_>>(), expected);
    }
}
