//! Metrics that every component of Kubernetes has: its version and its feature gates
//! (k8s.io/component-base/metrics/prometheus/feature).

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::names::{Names, metrics};

metrics! {
    /// Feature gates; the version never changes.
    pub struct Component(names: &mut Names<'_>) {
        features: Family<[(&'static str, &'static str); 2], Gauge> = {
            let help = "The version of this program, which is not Kubernetes'";
            let build: Family<[(&'static str, &'static str); 5], Gauge> =
                names.add("build_info", help);
            build.get_or_create(&version()).set(1);
            let help = "Whether a feature gate is on, of those that have an effect";
            names.add("feature_enabled", help)
        };
    }
}

impl Component {
    /// Sets whether a feature gate is on. `stage` is empty for one that is generally available.
    pub fn feature(&self, name: &'static str, stage: &'static str, is_enabled: bool) {
        self.features.get_or_create(&[("name", name), ("stage", stage)]).set(is_enabled.into());
    }
}

/// Returns the labels of `kubernetes_build_info`. Labels about Go and its repository are absent.
fn version() -> [(&'static str, &'static str); 5] {
    [
        ("major", env!("CARGO_PKG_VERSION_MAJOR")),
        ("minor", env!("CARGO_PKG_VERSION_MINOR")),
        ("git_version", concat!("v", env!("CARGO_PKG_VERSION"))),
        ("compiler", "rustc"),
        ("platform", PLATFORM),
    ]
}

/// Operating system and architecture in Go's notation.
const PLATFORM: &str = if cfg!(target_arch = "x86_64") {
    "linux/amd64"
} else if cfg!(target_arch = "aarch64") {
    "linux/arm64"
} else if cfg!(all(target_arch = "powerpc64", target_endian = "little")) {
    "linux/ppc64le"
} else if cfg!(target_arch = "s390x") {
    "linux/s390x"
} else {
    "linux"
};

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::has;
    use crate::observe::Observe;

    #[test]
    fn version_and_gates_are_those_of_this_program() {
        let observe = Observe::new();
        observe.component().feature("SomeGate", "", false);
        has(&observe, &["kubernetes_feature_enabled{name=\"SomeGate\",stage=\"\"} 0"]);
        let text = observe.metrics_text();
        let version = concat!("git_version=\"v", env!("CARGO_PKG_VERSION"), "\"");
        let info = text.lines().find(|line| line.starts_with("kubernetes_build_info{")).unwrap();
        assert!(info.contains(version) && info.ends_with("} 1"), "{info}");
    }
}
