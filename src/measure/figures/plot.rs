//! Plots of spreads as curves over percentiles, in SVG.
//!
//! Both axes are logarithmic: the horizontal one by the share of samples above a percentile, the
//! vertical one by time. Each part of the tail is therefore as wide as the part below it.

use std::fmt::Write;

use super::row::{Row, Spread, Value, find};

const WIDTH: f64 = 1020.0;
const HEIGHT: f64 = 520.0;
/// Margins left, right, above and below the curves.
const MARGINS: [f64; 4] = [70.0, 350.0, 40.0, 50.0];

/// Colours that remain distinguishable with colour blindness (Okabe and Ito): one for each name.
const COLOURS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000"];

/// Percentiles with a line and a label.
const PERCENTILES: [f64; 6] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99];

/// Line styles of curves with the same colour: solid, then ever shorter dashes.
const DASHES: [&str; 4] = ["none", "8 4", "4 4", "2 3"];

/// Names of rows with curves.
pub type Plotted = [&'static str; COLOURS.len()];

/// One curve.
struct Curve<'a> {
    /// Name in the legend.
    name: String,
    colour: &'static str,
    dashes: &'static str,
    spread: &'a Spread,
}

/// Returns an SVG with a curve for each of the named rows in each group that has samples of it; the
/// name of the group ends that of the curve. Without samples, it has only the axes.
pub fn plot(title: &str, names: Plotted, groups: &[(String, &[Row])]) -> String {
    let curves = curves(names, groups);
    let decades = decades(&curves);
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{}" y="24" font-size="15">{}</text>
"#,
        MARGINS[0],
        escaped(title)
    );
    write_axes(&mut svg, decades);
    for (number, curve) in curves.iter().enumerate() {
        write_curve(&mut svg, curve, number, decades);
    }
    svg.push_str("</svg>\n");
    svg
}

fn curves<'a>(names: Plotted, groups: &[(String, &'a [Row])]) -> Vec<Curve<'a>> {
    let mut curves = Vec::new();
    for (name, colour) in names.into_iter().zip(COLOURS) {
        for (number, (group, rows)) in groups.iter().enumerate() {
            if let Some(Value::Spread(spread)) = find(rows, name).map(|row| &row.value) {
                let dashes = DASHES[number.min(DASHES.len() - 1)];
                curves.push(Curve { name: format!("{name}{group}"), colour, dashes, spread });
            }
        }
    }
    curves
}

/// Returns the powers of ten of microseconds that enclose all samples.
fn decades(curves: &[Curve<'_>]) -> (f64, f64) {
    let times = curves.iter().flat_map(|curve| curve.spread.curve.iter().map(|(_, time)| *time));
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for time in times.filter(|time| *time > 0.0) {
        low = low.min(time.log10().floor());
        high = high.max(time.log10().ceil());
    }
    if low.is_finite() { (low, high.max(low + 1.0)) } else { (0.0, 3.0) }
}

/// Returns the horizontal position of a percentile.
fn x(percentile: f64) -> f64 {
    // The axis ends at 99.99.
    let above = (1.0 - percentile / 100.0).max(1e-4);
    MARGINS[0] + -above.log10() / 4.0 * (WIDTH - MARGINS[0] - MARGINS[1])
}

/// Returns the vertical position of a time in microseconds.
fn y(time: f64, (low, high): (f64, f64)) -> f64 {
    let part = (time.max(1e-3).log10().max(low) - low) / (high - low);
    HEIGHT - MARGINS[3] - part * (HEIGHT - MARGINS[2] - MARGINS[3])
}

fn write_axes(svg: &mut String, decades: (f64, f64)) {
    let (left, right) = (x(0.0), x(99.99));
    let bottom = HEIGHT - MARGINS[3];
    // Writing to a String cannot fail, here and below.
    for percentile in PERCENTILES {
        let at = x(percentile);
        let _ = writeln!(
            svg,
            r##"<line x1="{at:.1}" y1="{}" x2="{at:.1}" y2="{bottom}" stroke="#ddd"/><text x="{at:.1}" y="{}" text-anchor="middle">{percentile}%</text>"##,
            MARGINS[2],
            bottom + 18.0
        );
    }
    let mut power = decades.0;
    while power <= decades.1 {
        let at = y(10_f64.powf(power), decades);
        let _ = writeln!(
            svg,
            r##"<line x1="{left:.1}" y1="{at:.1}" x2="{right:.1}" y2="{at:.1}" stroke="#ddd"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
            left - 6.0,
            at + 4.0,
            time_label(power)
        );
        power += 1.0;
    }
}

/// Formats a power of ten of microseconds.
fn time_label(power: f64) -> String {
    let microseconds = 10_f64.powf(power);
    if microseconds >= 1e6 {
        format!("{:.0} s", microseconds / 1e6)
    } else if microseconds >= 1e3 {
        format!("{:.0} ms", microseconds / 1e3)
    } else if microseconds >= 1.0 {
        format!("{microseconds:.0} µs")
    } else {
        format!("{:.0} ns", microseconds * 1e3)
    }
}

fn write_curve(svg: &mut String, curve: &Curve<'_>, number: usize, decades: (f64, f64)) {
    let Curve { colour, dashes, .. } = curve;
    let points: Vec<String> = curve
        .spread
        .curve
        .iter()
        .map(|(percentile, time)| format!("{:.1},{:.1}", x(*percentile), y(*time, decades)))
        .collect();
    let (from, level) = (x(99.99) + 14.0, MARGINS[2] + 18.0 * f64::from(u8_of(number)));
    let _ = writeln!(
        svg,
        r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>
<line x1="{from:.1}" y1="{level}" x2="{:.1}" y2="{level}" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/><text x="{:.1}" y="{}" font-size="11">{}</text>"#,
        points.join(" "),
        from + 28.0,
        from + 34.0,
        level + 4.0,
        escaped(&curve.name)
    );
}

fn u8_of(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// Escapes text for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_grow_to_the_right_and_times_upwards() {
        assert!(x(50.0) < x(99.0) && x(100.0) <= WIDTH - MARGINS[1]);
        assert!(y(10.0, (0.0, 3.0)) > y(100.0, (0.0, 3.0)));
    }

    #[test]
    fn text_cannot_end_the_image() {
        let svg = plot("a < b & c", [""; 5], &[]);
        assert!(svg.contains(">a &lt; b &amp; c</text>"), "{svg}");
        assert!(svg.contains("1 ms") && !svg.contains("<polyline"), "{svg}");
    }
}
