//! Values of expressions, and the alerts that follow from them.

use super::alerts::{filled_in, rules};
use super::{Alerts, Expression, Labels, Scrapes, evaluate};

/// Scrapes of these pages, a minute apart.
fn scrapes(pages: &[&str]) -> Scrapes {
    let mut scrapes = Scrapes::default();
    for (minute, page) in (0_u32..).zip(pages) {
        let page = Some(*page).filter(|page| !page.is_empty());
        scrapes.add(f64::from(minute) * 60.0, page);
    }
    scrapes
}

/// The values of an expression, in order.
#[track_caller]
fn values(expression: &str, pages: &[&str]) -> Vec<f64> {
    let found = evaluate(&Expression::parse(expression), &scrapes(pages)).vector();
    found.into_iter().map(|sample| sample.value).collect()
}

#[test]
fn expressions_have_the_values_that_prometheus_documents() {
    let two = "a{x=\"1\"} 4\na{x=\"2\"} 6\nb{x=\"1\"} 2\nc 3";
    for (expression, page, expected) in [
        ("a == 4", two, &[4.0][..]),
        ("a{x=\"2\"} > 0", two, &[6.0]),
        ("a > 7", two, &[]),
        ("min by (job) (a) == 4", two, &[4.0]),
        ("max by (job) (a) - 1", two, &[5.0]),
        ("sum by (job, instance) (a)", two, &[10.0]),
        ("1 + 2 * sum by (job) (a) / 4 - 3", two, &[3.0]),
        ("a / on (x) b", two, &[2.0]),
        ("a / on (instance) group_left () c > 1.5", two, &[2.0]),
        ("a and on (x) b", two, &[4.0]),
        ("b > 5 or a > 5", two, &[6.0]),
        ("b > 1 or a", two, &[2.0, 6.0]),
        ("absent(d)", two, &[1.0]),
        ("absent(a)", two, &[]),
        ("up", two, &[1.0]),
        ("up == 0", "", &[0.0]),
        ("a", "", &[]),
        ("time() - c > 40", "c 10\n", &[]),
    ] {
        assert_eq!(values(expression, &[page]), expected, "{expression}");
    }
    assert_eq!(values("time() - c > 40", &["c 10\n", "c 10\n"]), [50.0]);
}

#[test]
fn functions_over_time_use_the_scrapes_of_their_window() {
    let pages = ["a 9", "a 10", "a 3", "a 5"];
    // The counter began anew at 0.
    assert_eq!(values("increase(a[1h])", &pages), [6.0]);
    assert_eq!(values("increase(a[60s])", &pages), [2.0]);
    assert_eq!(values("rate(a[1h])", &pages), [6.0 / 180.0]);
    assert_eq!(values("max_over_time(a[1d])", &pages), [10.0]);
    assert_eq!(values("increase(a[30s])", &pages), [0.0; 0], "one point is no increase");
    let down = ["a 1", ""];
    assert_eq!(values("up == 0 and on (job, instance) max_over_time(a[1d])", &down), [0.0]);
    assert_eq!(
        values("up == 0 and on (job, instance) max_over_time(a[1d])", &["b 1", ""]),
        [0.0; 0]
    );
}

#[test]
fn a_quantile_lies_between_the_bounds_of_its_bucket() {
    let buckets = |counts: [u8; 3]| {
        let [one, two, all] = counts;
        format!("h{{le=\"1.0\"}} {one}\nh{{le=\"2.0\"}} {two}\nh{{le=\"+Inf\"}} {all}\n")
    };
    let quantile =
        |expression: &str, counts| values(expression, &[&buckets([0, 0, 0]), &buckets(counts)]);
    let half = "histogram_quantile(0.5, sum by (instance, le) (increase(h[5m])))";
    assert_eq!(quantile(half, [0, 4, 4]), [1.5]);
    assert_eq!(quantile(half, [4, 4, 4]), [0.5]);
    assert_eq!(quantile(half, [0, 0, 4]), [2.0]);
    assert_eq!(quantile(&format!("{half} > 0"), [0, 0, 0]), [0.0; 0], "no observation");
}

#[test]
fn an_alert_is_active_while_its_expression_has_a_result_and_has_its_labels() {
    let page = "deltaproxy_build_info 1\ndeltaproxy_watch_connected{resource=\"nodes\"} 0\n";
    let active = Alerts::deployed().active(&scrapes(&[page]));
    assert_eq!(active.keys().collect::<Vec<_>>(), ["DeltaproxyWatchDisconnected"]);
    let summary = &active["DeltaproxyWatchDisconnected"][0];
    assert!(summary.starts_with("node1 cannot watch nodes: "), "{summary}");
}

#[test]
#[should_panic(expected = "no label resource")]
fn a_label_that_the_result_has_not_is_noticed() {
    let _ = filled_in("{{ $labels.resource }}", &Labels::new(), 1.0);
}

#[test]
fn all_expressions_of_the_rules_are_understood() {
    for path in ["deploy/alerts.yaml", "deploy/rules.yaml"] {
        for rule in rules(path) {
            let expression = Expression::parse(rule["expr"].as_str().unwrap());
            let _ = evaluate(&expression, &scrapes(&["a 1"])).vector();
        }
    }
}
