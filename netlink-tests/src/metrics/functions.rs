//! The functions of expressions.
//!
//! `rate` and `increase` do not extrapolate to the ends of the window, as Prometheus does: both are
//! above 0 if and only if a counter grew.

use super::expression::Selector;
use super::sample::{Labels, Sample};
use super::scrapes::Scrapes;
use super::value::nameless;

/// `absent`: a sample if none was found.
pub(super) fn absent(selector: &Selector, found: &[Sample]) -> Vec<Sample> {
    let labels = selector.labels.iter().cloned().collect();
    found.is_empty().then(|| nameless(labels, 1.0)).into_iter().collect()
}

/// A function of the points of each series in the selector's window.
pub(super) fn over_time(function: &str, selector: &Selector, scrapes: &Scrapes) -> Vec<Sample> {
    let value: fn(&[(f64, f64)]) -> Option<f64> = match function {
        "rate" => |points| increase(points).map(|(by, seconds)| by / seconds),
        "increase" => |points| increase(points).map(|(by, _)| by),
        "max_over_time" => |points| points.iter().map(|(_, value)| *value).reduce(f64::max),
        other => panic!("the function {other}"),
    };
    let series = series(selector, scrapes).into_iter();
    series.filter_map(|(labels, points)| Some(nameless(labels, value(&points)?))).collect()
}

/// Times and values of one series.
type Points = Vec<(f64, f64)>;

/// The points of each series in the selector's window.
fn series(selector: &Selector, scrapes: &Scrapes) -> Vec<(Labels, Points)> {
    let window = selector.window.expect("a function over time has a window");
    let mut series: Vec<(Labels, Points)> = Vec::new();
    for (at, sample) in scrapes.since(window).filter(|(_, sample)| selector.selects(sample)) {
        match series.iter_mut().find(|(labels, _)| *labels == sample.labels) {
            Some((_, points)) => points.push((at, sample.value)),
            None => series.push((sample.labels.clone(), vec![(at, sample.value)])),
        }
    }
    series
}

/// By how much a counter grew, and in how many seconds. A smaller value than before is a new start.
fn increase(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let [(first, _), .., (last, _)] = points else { return None };
    let steps = points.windows(2).map(|pair| {
        let [(_, before), (_, after)] = [pair[0], pair[1]];
        if after < before { after } else { after - before }
    });
    Some((steps.sum(), last - first))
}

/// The quantile of each histogram, NaN without observations.
pub(super) fn quantiles(quantile: f64, buckets: &[Sample]) -> Vec<Sample> {
    let mut histograms: Vec<(Labels, Points)> = Vec::new();
    for bucket in buckets {
        let mut labels = bucket.labels.clone();
        let bound = labels.remove("le").expect("a bucket has a bound").replace("+Inf", "inf");
        let point = (bound.parse().expect("a bound is a number"), bucket.value);
        match histograms.iter_mut().find(|(known, _)| *known == labels) {
            Some((_, points)) => points.push(point),
            None => histograms.push((labels, vec![point])),
        }
    }
    let each = |(labels, mut points): (Labels, Points)| {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        nameless(labels, interpolated(quantile, &points))
    };
    histograms.into_iter().map(each).collect()
}

/// The quantile of buckets in the order of their bounds.
fn interpolated(quantile: f64, buckets: &[(f64, f64)]) -> f64 {
    let count = buckets.last().map_or(0.0, |(_, count)| *count);
    if count == 0.0 {
        return f64::NAN;
    }
    let rank = quantile * count;
    let at = buckets.iter().position(|(_, below)| *below >= rank).unwrap_or(buckets.len() - 1);
    let (bound, below) = buckets[at];
    let (lower, before) = if at == 0 { (0.0, 0.0) } else { buckets[at - 1] };
    if bound.is_infinite() {
        return lower;
    }
    lower + (bound - lower) * (rank - before) / (below - before)
}
