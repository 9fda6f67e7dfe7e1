//! `/metrics/slis`: the probes as service level indicators, under the names of Kubernetes
//! components (KEP-3466).

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::names::text;

/// Results of the probes. A probe has no series until its first request, as in Kubernetes.
#[derive(Debug)]
pub(super) struct Slis {
    registry: Registry,
    last: Family<[(&'static str, &'static str); 2], Gauge>,
    all: Family<[(&'static str, &'static str); 3], Counter>,
}

impl Default for Slis {
    fn default() -> Self {
        let (last, all) = (Family::default(), Family::default());
        let mut registry = Registry::default();
        let help = "This metric records the result of a single healthcheck";
        registry.register("kubernetes_healthcheck", help, Family::clone(&last));
        let help = "This metric records the results of all healthcheck";
        registry.register("kubernetes_healthchecks", help, Family::clone(&all));
        Self { registry, last, all }
    }
}

impl Slis {
    /// Counts an answer to the probe `kind`: healthz, livez or readyz.
    pub(super) fn answered(&self, kind: &'static str, is_success: bool) {
        let (name, kind) = (("name", NAME), ("type", kind));
        self.last.get_or_create(&[name, kind]).set(is_success.into());
        let status = ("status", if is_success { "success" } else { "error" });
        self.all.get_or_create(&[name, kind, status]).inc();
    }

    /// Returns all series in the OpenMetrics text format.
    pub(super) fn text(&self) -> String {
        text(&self.registry)
    }
}

/// Name of the only check behind each probe.
const NAME: &str = "proxy";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_has_its_last_result_and_counts_of_both() {
        let slis = Slis::default();
        slis.answered("readyz", false);
        slis.answered("readyz", false);
        slis.answered("readyz", true);
        slis.answered("livez", false);
        let text = slis.text();
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
