//! The scrapes of one daemon, with their times.

use super::sample::{Labels, Sample, samples};

/// The target's labels, which Prometheus adds to each sample.
const TARGET: [(&str, &str); 2] = [("job", "deltaproxy"), ("instance", "node1")];

/// One scrape.
#[derive(Clone, Debug)]
struct Scrape {
    /// Seconds since 1970.
    at: f64,
    samples: Vec<Sample>,
}

/// Scrapes, the newest last.
#[derive(Clone, Debug, Default)]
pub struct Scrapes(Vec<Scrape>);

impl Scrapes {
    /// Adds a scrape at `at`, in seconds since 1970; `None` if the daemon did not answer.
    pub fn add(&mut self, at: f64, page: Option<&str>) {
        let mut samples = page.map(samples).unwrap_or_default();
        let value = f64::from(u8::from(page.is_some()));
        samples.push(Sample { name: "up".to_owned(), labels: Labels::new(), value });
        for sample in &mut samples {
            let target = TARGET.map(|(name, value)| (name.to_owned(), value.to_owned()));
            sample.labels.extend(target);
        }
        self.0.push(Scrape { at, samples });
    }

    /// The time of the newest scrape.
    pub(super) fn now(&self) -> f64 {
        self.0.last().map_or(0.0, |scrape| scrape.at)
    }

    /// The samples of the newest scrape. Prometheus too forgets those of before a failed one.
    pub(super) fn newest(&self) -> &[Sample] {
        self.0.last().map(|scrape| &*scrape.samples).unwrap_or_default()
    }

    /// All samples of the last `seconds`, each with its time, the oldest first.
    pub(super) fn since(&self, seconds: f64) -> impl Iterator<Item = (f64, &Sample)> {
        let first = self.now() - seconds;
        let within = self.0.iter().filter(move |scrape| scrape.at >= first);
        within.flat_map(|scrape| scrape.samples.iter().map(|sample| (scrape.at, sample)))
    }
}
