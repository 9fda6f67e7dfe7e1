//! Metrics: values that the program changes, and one collection of them, which each format writes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use nft::family::Family as IpFamily;
use parking_lot::Mutex;

use super::native_buckets::NativeBuckets;

engine::named! {
    /// Type of a metric, with its name in OpenMetrics.
    pub(super) enum MetricKind {
        Counter = "counter",
        Gauge = "gauge",
        /// A gauge that is always 1, for its labels.
        Info = "info",
        Histogram = "histogram",
    }
}

/// Value of a series at one time.
#[derive(Clone, Debug)]
pub(super) enum Sample {
    Whole(i128),
    Real(f64),
    Distribution(Distribution),
}

/// The values of a histogram at one time.
#[derive(Clone, Debug)]
pub(super) struct Distribution {
    pub(super) sum: f64,
    pub(super) count: u64,
    /// Upper bounds and counts of the classic buckets. The last bound is infinite.
    pub(super) classic: Vec<(f64, u64)>,
    pub(super) native: NativeBuckets,
}

impl Distribution {
    /// Returns each upper bound of the classic buckets with the count of all values up to it.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        self.classic.iter().scan(0, |sum, (bound, count)| {
            *sum += count;
            Some((*bound, *sum))
        })
    }
}

/// A metric at one time.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) name: String,
    pub(super) help: String,
    pub(super) kind: MetricKind,
    /// The labels and the value of each series.
    pub(super) series: Vec<(SeriesLabels, Sample)>,
}

impl Described {
    /// Returns the name of the samples, which is also that of the metric in all formats but
    /// OpenMetrics.
    pub(super) fn sample_name(&self) -> String {
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        format!("{}{suffix}", self.name)
    }
}

/// Name and help of a metric.
type NameAndHelp = (&'static str, &'static str);

/// Names and values of labels.
pub(super) type SeriesLabels = Vec<(&'static str, String)>;

/// Returns labels with these values.
pub(super) fn labels<const N: usize>(names: [&'static str; N], values: [&str; N]) -> SeriesLabels {
    names.into_iter().zip(values.map(str::to_owned)).collect()
}

/// All metrics of a page.
#[derive(Default)]
pub(super) struct Registry(Vec<Collect>);

/// Returns metrics at one time.
type Collect = Box<dyn Fn() -> Vec<Described> + Send + Sync>;

impl Registry {
    /// Adds metrics that are read for each scrape.
    pub(super) fn add(&mut self, source: impl Fn() -> Vec<Described> + Send + Sync + 'static) {
        self.0.push(Box::new(source));
    }

    /// Adds a metric, whose help gets a full stop.
    fn add_one(
        &mut self,
        (name, help): NameAndHelp,
        kind: MetricKind,
        series: impl Fn() -> Vec<(SeriesLabels, Sample)> + Send + Sync + 'static,
    ) {
        self.add(move || {
            vec![Described { name: name.into(), help: format!("{help}."), kind, series: series() }]
        });
    }

    /// Returns the present values. A metric without series is absent.
    pub(super) fn collect(&self) -> impl Iterator<Item = Described> {
        self.0.iter().flat_map(|source| source()).filter(|metric| !metric.series.is_empty())
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.0.len()).finish()
    }
}

/// A series. Clones are the same one.
pub(super) trait Metric: Clone + Send + Sync + 'static {
    const KIND: MetricKind;

    /// What a new one needs.
    type Form: Send + Sync + 'static;

    fn new(form: &Self::Form) -> Self;

    fn sample(&self) -> Sample;
}

/// A number that only grows.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1_u64);
    }

    /// Adds a number.
    pub fn add(&self, number: impl TryInto<u64>) {
        self.0.fetch_add(number.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A whole number.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Sets the number.
    pub fn set(&self, number: impl TryInto<i64>) {
        self.0.store(number.try_into().unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Adds a number.
    pub fn add(&self, number: i64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number with a fraction, as its bits.
#[derive(Clone, Debug, Default)]
pub(super) struct Floating(Arc<AtomicU64>);

impl Floating {
    pub(super) fn set(&self, number: f64) {
        self.0.store(number.to_bits(), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

macro_rules! metric {
    ($type:ty, $kind:ident, $sample:ident) => {
        impl Metric for $type {
            const KIND: MetricKind = MetricKind::$kind;

            type Form = ();

            fn new((): &()) -> Self {
                Self::default()
            }

            fn sample(&self) -> Sample {
                Sample::$sample(self.get().into())
            }
        }
    };
}

metric! { Counter, Counter, Whole }
metric! { Gauge, Gauge, Whole }
metric! { Floating, Gauge, Real }

/// Series by the values of their labels, in the order of their creation. There are few.
#[derive(Clone)]
pub struct Family<const N: usize, M>(Arc<AllSeries<N, M>>);

struct AllSeries<const N: usize, M> {
    new: Box<dyn Fn() -> M + Send + Sync>,
    series: Mutex<Vec<([String; N], M)>>,
}

impl<const N: usize, M> fmt::Debug for Family<N, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").finish_non_exhaustive()
    }
}

impl<const N: usize, M: Clone> Family<N, M> {
    /// Returns the series with these values, a new one if there is none.
    pub fn with(&self, values: [&str; N]) -> M {
        let mut all = self.0.series.lock();
        let found = all.iter().find(|(known, _)| known.each_ref().map(String::as_str) == values);
        if let Some((_, metric)) = found {
            return metric.clone();
        }
        let new = (self.0.new)();
        all.push((values.map(str::to_owned), new.clone()));
        new
    }

    pub(super) fn has(&self, values: [&str; N]) -> bool {
        self.0.series.lock().iter().any(|(known, _)| known.each_ref().map(String::as_str) == values)
    }

    /// Removes all series.
    pub(super) fn clear(&self) {
        self.0.series.lock().clear();
    }
}

/// A metric, or several of one name, that a registry can have.
pub(super) trait Registered {
    /// Labels, if there are any.
    type Labels;

    /// What a new series needs.
    type Form;

    fn register(
        registry: &mut Registry,
        text: NameAndHelp,
        by: Self::Labels,
        form: Self::Form,
    ) -> Self;
}

impl<M: Metric> Registered for M {
    type Labels = ();
    type Form = M::Form;

    fn register(registry: &mut Registry, text: NameAndHelp, (): (), form: M::Form) -> Self {
        let metric = M::new(&form);
        let kept = metric.clone();
        registry.add_one(text, M::KIND, move || vec![(Vec::new(), kept.sample())]);
        metric
    }
}

impl<const N: usize, M: Metric> Registered for Family<N, M> {
    type Labels = [&'static str; N];
    type Form = M::Form;

    fn register(
        registry: &mut Registry,
        text: NameAndHelp,
        by: Self::Labels,
        form: M::Form,
    ) -> Self {
        let family = Self(Arc::new(AllSeries {
            new: Box::new(move || M::new(&form)),
            series: Mutex::default(),
        }));
        let kept = family.clone();
        registry.add_one(text, M::KIND, move || {
            let series = kept.0.series.lock();
            let of = |values: &[String; N]| labels(by, values.each_ref().map(String::as_str));
            series.iter().map(|(values, metric)| (of(values), metric.sample())).collect()
        });
        family
    }
}

/// One series for each of a few values of a label.
impl<const N: usize, M: Metric> Registered for [M; N] {
    type Labels = (&'static str, [&'static str; N]);
    type Form = M::Form;

    fn register(
        registry: &mut Registry,
        text: NameAndHelp,
        by: Self::Labels,
        form: M::Form,
    ) -> Self {
        let (name, values) = by;
        let family = Family::register(registry, text, [name], form);
        values.map(|value| family.with([value]))
    }
}

/// kube-proxy's label of families.
pub(super) const FAMILIES: (&str, [&str; 2]) =
    ("ip_family", [IpFamily::Ip.name(), IpFamily::Ip6.name()]);

/// Declares a struct of metrics: each with its name, its help, its labels and its form. `also` are
/// fields with other content.
macro_rules! metrics {
    ($(#[$about:meta])* $vis:vis struct $name:ident {
        $($sees:vis $field:ident: $type:ty
            = $text:literal, $help:literal $(, by $labels:expr)? $(, in $form:expr)?;)*
    } $(also { $($other:ident: $content:ty,)* })?) => {
        $(#[$about])*
        #[derive(Debug)]
        $vis struct $name {
            // As code: the help is no Markdown.
            $(#[doc = concat!("`", $help, "`")] $sees $field: $type,)*
            $($($other: $content,)*)?
        }

        impl $name {
            pub(super) fn register(registry: &mut super::metric::Registry) -> Self {
                use super::metric::Registered;
                Self {
                    $($field: <$type>::register(registry, ($text, $help), ($($labels)?), ($($form)?)),)*
                    $($($other: <$content>::default(),)*)?
                }
            }
        }
    };
}

pub(super) use metrics;

#[allow(clippy::cast_precision_loss, reason = "a metric needs 16 digits at most")]
pub(super) fn as_f64(value: u64) -> f64 {
    value as f64
}
