//! The registration of metrics under their names, and the types of frequent ones.

use nft::family::Family as IpFamily;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

pub(super) type Label<V> = [(&'static str, V); 1];
pub(super) type Floating = Gauge<f64, std::sync::atomic::AtomicU64>;

/// Answers to probes, by status code.
pub(super) type Answers = Family<Label<u16>, Counter>;

/// A metric with kube-proxy's label `ip_family`: one handle for each value.
pub(super) type PerFamily<M> = [M; 2];

/// Declares a struct of metrics, each with the expression that registers it.
macro_rules! metrics {
    ($(#[$about:meta])* $vis:vis struct $name:ident($names:ident: $from:ty) {
        $($(#[$note:meta])* $sees:vis $field:ident: $type:ty = $registered:expr;)*
    }) => {
        $(#[$about])*
        #[derive(Debug)]
        $vis struct $name {
            $($(#[$note])* $sees $field: $type,)*
        }

        impl $name {
            pub(super) fn register($names: $from) -> Self {
                $(let $field = $registered;)*
                Self { $($field,)* }
            }
        }
    };
}

pub(super) use metrics;

/// Registers metrics with a common prefix of their names.
pub(super) struct Names<'a> {
    registry: &'a mut Registry,
    prefix: &'static str,
}

impl<'a> Names<'a> {
    pub(super) fn new(registry: &'a mut Registry, prefix: &'static str) -> Self {
        Self { registry, prefix }
    }

    /// Registers a metric without values.
    pub(super) fn add<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.register(name, help, M::default())
    }

    pub(super) fn register<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.registry.register(format!("{}{name}", self.prefix), help, metric.clone());
        metric
    }

    pub(super) fn per_family<M: Metric + Clone>(
        &mut self,
        name: &str,
        help: &str,
        constructor: fn() -> M,
    ) -> PerFamily<M>
    where
        Family<Label<&'static str>, M, fn() -> M>: Metric,
    {
        let family = Family::new_with_constructor(constructor);
        let family = self.register(name, help, family);
        IpFamily::ALL.map(|value| family.get_or_create_owned(&[("ip_family", value.name())]))
    }
}

/// Returns the metrics of `registry` in the OpenMetrics text format.
pub(super) fn text(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a `String` does not fail, and none of our metrics returns an error.
    let _ = prometheus_client::encoding::text::encode(&mut text, registry);
    text
}
