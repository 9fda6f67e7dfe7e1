//! A plot of a report's times as curves over percentiles, in SVG.

use super::change::CURVES;
use super::report::Report;
use crate::figures::{self, COLOURS, Curve, DASHES, Value, find};

/// Returns the plot of a report; without times, only the axes.
pub fn plot(report: &Report) -> String {
    let title = format!(
        "Rule sync of node {} on Linux {}: time of a change by percentile",
        report.node, report.machine.kernel
    );
    let curves = CURVES.iter().zip(COLOURS).filter_map(|(name, colour)| {
        match &find(&report.rows, name)?.value {
            Value::Spread(spread) => {
                Some(Curve { name: (*name).to_owned(), colour, dashes: DASHES[0], spread })
            }
            Value::Single(_) => None,
        }
    });
    figures::plot(&title, &curves.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::report::tests::report;

    #[test]
    fn each_stage_has_a_curve() {
        let svg = plot(&report());
        assert_eq!(svg.matches("<polyline").count(), CURVES.len());
        assert!(svg.contains(">change: first packet at the new endpoint</text>"), "{svg}");
    }
}
