//! Operators with two operands.

use super::expression::Binary;
use super::sample::{Labels, Sample};
use super::value::{Value, nameless};

/// Combines the values of both operands.
pub(super) fn binary(Binary { operator, on, .. }: &Binary, left: Value, right: Value) -> Value {
    let key = |sample: &Sample| -> Labels {
        let mut labels = sample.labels.clone();
        if let Some(on) = on {
            labels.retain(|label, _| on.contains(label));
        }
        labels
    };
    let samples = match (left, right) {
        (Value::Vector(left), Value::Scalar(number)) => {
            left.into_iter().filter_map(|it| combined(operator, it, number)).collect()
        }
        (Value::Scalar(number), Value::Vector(right)) => {
            let with_number =
                |it: Sample| combined(operator, nameless(it.labels, number), it.value);
            right.into_iter().filter_map(with_number).collect()
        }
        (Value::Vector(left), Value::Vector(right)) => {
            let right_of = |one: &Sample| right.iter().find(|other| key(one) == key(other));
            match operator.as_str() {
                "and" => left.into_iter().filter(|it| right_of(it).is_some()).collect(),
                "or" => {
                    let adds = |it: &&Sample| !left.iter().any(|one| key(one) == key(it));
                    let more: Vec<_> = right.iter().filter(adds).cloned().collect();
                    [left, more].concat()
                }
                _ => {
                    let pairs = left.into_iter().filter_map(|it| {
                        let value = right_of(&it)?.value;
                        combined(operator, it, value)
                    });
                    pairs.collect()
                }
            }
        }
        (left, right) => panic!("{left:?} {operator} {right:?}"),
    };
    Value::Vector(samples)
}

/// The result for one sample; `None` where a comparison is not met.
fn combined(operator: &str, mut sample: Sample, other: f64) -> Option<Sample> {
    let value = sample.value;
    let is_met = match operator {
        "==" => value == other,
        "!=" => value != other,
        ">" => value > other,
        "<" => value < other,
        ">=" => value >= other,
        "<=" => value <= other,
        _ => {
            sample.value = match operator {
                "+" => value + other,
                "-" => value - other,
                "*" => value * other,
                "/" => value / other,
                unknown => panic!("the operator {unknown}"),
            };
            true
        }
    };
    is_met.then_some(sample)
}
