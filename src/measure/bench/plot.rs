//! A plot of a report's spreads as curves over percentiles, in SVG.

use super::report::Report;
use crate::figures::{self, COLOURS, Curve, DASHES, Value};

/// Rows with a curve: the figures of interest to users, not every stage.
const PLOTTED: [&str; COLOURS.len()] = [
    "endpoint change: end to end",
    "endpoint change: all stages",
    "endpoint change: committed by the kernel",
    "one of 5000 endpoints: all stages",
    "endpoint change: kube-proxy's layout by nft",
];

/// Returns the plot of a report; without spreads, only the axes.
pub fn plot(report: &Report) -> String {
    let title = format!(
        "deltaproxy {} on Linux {}: time of a change by percentile",
        report.version, report.machine.kernel
    );
    figures::plot(&title, &curves(report))
}

fn curves(report: &Report) -> Vec<Curve<'_>> {
    let mut curves = Vec::new();
    for (name, colour) in PLOTTED.into_iter().zip(COLOURS) {
        for (number, size) in report.sizes.iter().enumerate() {
            if let Some(Value::Spread(spread)) = size.row(name).map(|row| &row.value) {
                let dashes = DASHES[number.min(DASHES.len() - 1)];
                let name = format!("{name}, {} services", size.services);
                curves.push(Curve { name, colour, dashes, spread });
            }
        }
    }
    curves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::report;

    #[test]
    fn every_plotted_row_has_a_curve_that_rises_to_the_right() {
        let mut report = report();
        report.sizes[0].rows[1].name = "endpoint change: end to end".into();
        let svg = plot(&report);
        assert_eq!(svg.matches("<polyline").count(), 1);
        assert!(svg.contains(">endpoint change: end to end, 1000 services</text>"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_report_without_samples_has_axes_only() {
        let svg = plot(&report());
        assert_eq!(svg.matches("<polyline").count(), 0);
        assert!(svg.contains("1 ms"));
    }
}
