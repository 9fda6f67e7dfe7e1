//! The counters and histograms of the daemon's `/metrics` that are shown.
//!
//! Accepts any text: other samples, and lines that are not samples, are ignored.

/// Counters and histograms at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    counters: [f64; COUNTERS.len()],
    times: [Histogram; TIMES.len()],
}

/// Displayed counters: the name, and the samples whose sum it is.
pub(super) const COUNTERS: [(&str, &str); 7] = [
    ("changes", "deltaproxy_events_total"),
    ("transactions", "deltaproxy_transactions_total{result=\"committed\"}"),
    ("refused", "deltaproxy_transactions_total{result=\"refused\"}"),
    ("elements", "deltaproxy_transaction_elements_sum"),
    ("bytes", "deltaproxy_transaction_size_bytes_sum"),
    ("failed syncs", "kubeproxy_sync_proxy_rules_nftables_sync_failures_total"),
    ("problems", "deltaproxy_problems_total"),
];

/// Displayed times: the name, the histogram, and its stage if it has stages.
pub(super) const TIMES: [(&str, &str, &str); 7] = [
    ("event to commit", "deltaproxy_event_to_commit_duration_seconds", ""),
    ("  parse", STAGES, "parse"),
    ("  queue", STAGES, "queue"),
    ("  compare", STAGES, "compare"),
    ("  encode", STAGES, "encode"),
    ("  commit", STAGES, "commit"),
    ("  acknowledge", STAGES, "acknowledge"),
];

const STAGES: &str = "deltaproxy_stage_duration_seconds";

/// Most buckets of a histogram.
const BUCKETS: usize = 64;

/// Counts of a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Histogram {
    /// Upper bounds in seconds, ascending, and cumulative counts.
    buckets: Vec<(f64, f64)>,
}

/// A percentile of times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Percentile {
    /// Seconds.
    About(f64),
    /// Longer than the last bound, in seconds.
    Beyond(f64),
}

impl Scrape {
    /// Parses the Prometheus text format.
    pub fn parse(text: &str) -> Self {
        let mut scrape = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Some(value) = value.parse().ok().filter(|value| *value >= 0.0) else { continue };
            scrape.add(series, value);
        }
        scrape
    }

    fn add(&mut self, series: &str, value: f64) {
        for (counter, (_, wanted)) in self.counters.iter_mut().zip(COUNTERS) {
            let rest = series.strip_prefix(wanted);
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('{')) {
                *counter += value;
            }
        }
        for (histogram, (_, wanted, stage)) in self.times.iter_mut().zip(TIMES) {
            let labels = series.strip_prefix(wanted).and_then(|it| it.strip_prefix("_bucket{"));
            let Some(labels) = labels else { continue };
            let bound = label(labels, "le").and_then(|bound| bound.parse().ok());
            if label(labels, "stage").unwrap_or_default() == stage
                && let Some(bound) = bound
            {
                histogram.add(bound, value);
            }
        }
    }

    /// Returns the increase since `former`; `None` if any value decreased, as after a restart of
    /// the daemon.
    pub(super) fn since(&self, former: &Self) -> Option<Self> {
        let mut scrape = Self::default();
        for (at, counter) in scrape.counters.iter_mut().enumerate() {
            *counter = Some(self.counters[at] - former.counters[at]).filter(|it| *it >= 0.0)?;
        }
        for (at, histogram) in scrape.times.iter_mut().enumerate() {
            *histogram = self.times[at].since(&former.times[at])?;
        }
        Some(scrape)
    }

    /// Returns the counters, in the order of [`COUNTERS`].
    pub(super) fn counters(&self) -> &[f64; COUNTERS.len()] {
        &self.counters
    }

    /// Returns the histograms, in the order of [`TIMES`].
    pub(super) fn times(&self) -> &[Histogram; TIMES.len()] {
        &self.times
    }
}

impl Histogram {
    fn add(&mut self, bound: f64, count: f64) {
        let is_next = match self.buckets.last() {
            Some(last) => last.0 < bound && last.1 <= count,
            None => bound > 0.0,
        };
        if is_next && self.buckets.len() < BUCKETS {
            self.buckets.push((bound, count));
        }
    }

    fn since(&self, former: &Self) -> Option<Self> {
        if former.buckets.is_empty() {
            return Some(self.clone());
        }
        if self.buckets.len() != former.buckets.len() {
            return None;
        }
        let pairs = self.buckets.iter().zip(&former.buckets);
        let buckets = pairs.map(|((bound, count), (same, before))| {
            let is_of_same = bound == same && count >= before;
            is_of_same.then_some((*bound, count - before))
        });
        Some(Self { buckets: buckets.collect::<Option<_>>()? })
    }

    /// Returns the number of times.
    pub(super) fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |last| last.1)
    }

    /// Returns the time that `percent` percent do not exceed; `None` without any time. Interpolates
    /// linearly within a bucket, like Prometheus' `histogram_quantile`.
    pub(super) fn percentile(&self, percent: f64) -> Option<Percentile> {
        let wanted = self.count() * percent / 100.0;
        let place = self.buckets.iter().position(|(_, count)| *count >= wanted && *count > 0.0)?;
        let (bound, count) = self.buckets[place];
        let (start, before) = match place {
            0 => (0.0, 0.0),
            place => self.buckets[place - 1],
        };
        if bound.is_infinite() {
            return Some(Percentile::Beyond(start));
        }
        let part = if count > before { (wanted - before) / (count - before) } else { 1.0 };
        Some(Percentile::About(start + (bound - start) * part.clamp(0.0, 1.0)))
    }
}

/// Returns the value of a label without escapes.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let parts = labels.trim_end_matches('}').split(',');
    let value = parts.filter_map(|part| part.split_once('=')).find(|(key, _)| *key == name)?.1;
    value.strip_prefix('"')?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# HELP deltaproxy_events_total Changes
deltaproxy_events_total 7
deltaproxy_transactions_total{result=\"committed\"} 3
deltaproxy_transactions_total{result=\"refused\"} 1
kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"} 2
kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv6\"} 3
deltaproxy_event_to_commit_duration_seconds_sum 1.5
deltaproxy_event_to_commit_duration_seconds_bucket{le=\"1e-05\"} 0
deltaproxy_event_to_commit_duration_seconds_bucket{le=\"0.0001\"} 90
deltaproxy_event_to_commit_duration_seconds_bucket{le=\"+Inf\"} 100
deltaproxy_stage_duration_seconds_bucket{le=\"0.001\",stage=\"commit\"} 4
deltaproxy_stage_duration_seconds_bucket{le=\"0.001\",stage=\"queue\"} 5
";

    #[test]
    fn samples_are_summed_by_name_and_stage() {
        let scrape = Scrape::parse(TEXT);
        assert_eq!(scrape.counters, [7.0, 3.0, 1.0, 0.0, 0.0, 5.0, 0.0]);
        let counts = scrape.times.each_ref().map(Histogram::count);
        assert_eq!(counts, [100.0, 0.0, 5.0, 0.0, 0.0, 4.0, 0.0]);
    }

    #[test]
    fn a_percentile_lies_within_its_bucket() {
        let histogram = &Scrape::parse(TEXT).times[0];
        let Some(Percentile::About(median)) = histogram.percentile(50.0) else { panic!() };
        assert!((median - 6e-5).abs() < 1e-9, "5/9 of the way from 10 to 100 µs: {median}");
        let Some(Percentile::About(most)) = histogram.percentile(90.0) else { panic!() };
        assert!((most - 1e-4).abs() < 1e-9, "{most}");
        assert_eq!(histogram.percentile(99.0), Some(Percentile::Beyond(1e-4)));
        assert_eq!(Histogram::default().percentile(50.0), None);
        let none = histogram.since(histogram).unwrap();
        assert_eq!((none.count(), none.percentile(99.0)), (0.0, None));
    }

    #[test]
    fn a_difference_is_what_was_added_and_none_after_a_restart() {
        let former = Scrape::parse(TEXT);
        let later = TEXT.replace("committed\"} 3", "committed\"} 13").replace("} 100", "} 130");
        let later = Scrape::parse(&later);
        let added = later.since(&former).unwrap();
        assert_eq!((added.counters[1], added.times[0].count()), (10.0, 30.0));
        assert_eq!(former.since(&later), None);
        assert_eq!(later.since(&Scrape::default()), Some(later.clone()));
        assert_eq!(Scrape::default().since(&later), None);
        let one_less = Scrape::parse(&TEXT.replace("events_total 7", "events_total 6"));
        assert_eq!(one_less.since(&former), None);
    }

    #[test]
    fn any_text_is_read() {
        let bucket = "deltaproxy_event_to_commit_duration_seconds_bucket";
        for text in [
            "",
            " ",
            "\n{} 1",
            "a{le=\"",
            "deltaproxy_events_total NaN",
            "deltaproxy_events_total -1",
            "deltaproxy_events_total",
            &format!("{bucket}{{le=\"x\"}} 1"),
            &format!("{bucket}{{le=\"NaN\"}} 1"),
            &format!("{bucket}{{le=}} 1"),
            &format!("{bucket}{{ 1"),
        ] {
            let scrape = Scrape::parse(text);
            assert_eq!(scrape.counters, [0.0; COUNTERS.len()], "{text}");
            assert_eq!(scrape.times[0].percentile(99.0), None, "{text}");
        }
        let descending = format!("{bucket}{{le=\"2\"}} 5\n{bucket}{{le=\"1\"}} 1\n");
        assert_eq!(Scrape::parse(&descending).times[0].count(), 5.0);
        let many: String = (0..1_000).map(|n| format!("{bucket}{{le=\"{n}\"}} {n}\n")).collect();
        assert_eq!(Scrape::parse(&many).times[0].buckets.len(), BUCKETS);
    }
}
