//! Expressions of Prometheus' query language, of the forms that our rules have.

use super::sample::Sample;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A number.
    Number(f64),
    /// Samples by name and labels.
    Selector(Selector),
    /// A function.
    Call {
        /// Its name.
        function: String,
        /// Its arguments.
        arguments: Vec<Self>,
    },
    /// An aggregation, such as `sum by (le) (…)`.
    Aggregation {
        /// `sum`, `min` or `max`.
        operator: String,
        /// The labels that remain.
        by: Vec<String>,
        /// The aggregated samples.
        of: Box<Self>,
    },
    /// Two operands.
    Binary(Box<Binary>),
}

/// Samples by name and labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Selector {
    /// The name of the metric.
    pub name: String,
    /// Labels and their values.
    pub labels: Vec<(String, String)>,
    /// All samples of these seconds instead of the newest.
    pub window: Option<f64>,
}

impl Selector {
    /// Whether it selects a sample.
    pub(super) fn selects(&self, sample: &Sample) -> bool {
        sample.name == self.name
            && self.labels.iter().all(|(label, value)| sample.label(label) == value)
    }
}

/// Two operands.
#[derive(Clone, Debug, PartialEq)]
pub struct Binary {
    /// The operator.
    pub operator: String,
    /// The labels that are equal in both operands; `None` for all labels.
    pub on: Option<Vec<String>>,
    /// The operand before the operator.
    pub left: Expression,
    /// The operand after it.
    pub right: Expression,
}
