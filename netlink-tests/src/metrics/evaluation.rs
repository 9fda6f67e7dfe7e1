//! Evaluates expressions over scrapes.

use super::binary::binary;
use super::expression::Expression;
use super::functions::{absent, over_time, quantiles};
use super::sample::Sample;
use super::scrapes::Scrapes;
use super::value::{Value, nameless};

/// The value at the time of the newest scrape.
///
/// # Panics
/// When the expression has a form that is not known here.
#[must_use]
pub fn evaluate(expression: &Expression, scrapes: &Scrapes) -> Value {
    match expression {
        Expression::Number(number) => Value::Scalar(*number),
        Expression::Selector(selector) => {
            assert_eq!(selector.window, None, "{} outside of a function", selector.name);
            let found = scrapes.newest().iter().filter(|sample| selector.selects(sample));
            Value::Vector(found.map(|it| nameless(it.labels.clone(), it.value)).collect())
        }
        Expression::Call { function, arguments } => call(function, arguments, scrapes),
        Expression::Aggregation { operator, by, of } => {
            Value::Vector(aggregate(operator, by, evaluate(of, scrapes).vector()))
        }
        Expression::Binary(it) => {
            binary(it, evaluate(&it.left, scrapes), evaluate(&it.right, scrapes))
        }
    }
}

fn call(function: &str, arguments: &[Expression], scrapes: &Scrapes) -> Value {
    match (function, arguments) {
        ("time", []) => Value::Scalar(scrapes.now()),
        ("absent", [of @ Expression::Selector(selector)]) => {
            Value::Vector(absent(selector, &evaluate(of, scrapes).vector()))
        }
        ("histogram_quantile", [quantile, of]) => {
            let quantile = evaluate(quantile, scrapes).scalar();
            Value::Vector(quantiles(quantile, &evaluate(of, scrapes).vector()))
        }
        (_, [Expression::Selector(selector)]) => {
            Value::Vector(over_time(function, selector, scrapes))
        }
        (_, _) => panic!("{function} with {} arguments", arguments.len()),
    }
}

/// Joins samples with equal values of the labels `by`.
fn aggregate(operator: &str, by: &[String], samples: Vec<Sample>) -> Vec<Sample> {
    let mut joined: Vec<Sample> = Vec::new();
    for mut sample in samples {
        sample.labels.retain(|label, _| by.contains(label));
        match joined.iter_mut().find(|it| it.labels == sample.labels) {
            None => joined.push(sample),
            Some(known) => {
                known.value = match operator {
                    "sum" => known.value + sample.value,
                    "min" => known.value.min(sample.value),
                    "max" => known.value.max(sample.value),
                    other => panic!("the aggregation {other}"),
                }
            }
        }
    }
    joined
}
