//! Values of expressions.

use super::sample::{Labels, Sample};

/// The value of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number without labels.
    Scalar(f64),
    /// Samples without names.
    Vector(Vec<Sample>),
}

impl Value {
    /// The samples.
    ///
    /// # Panics
    /// When it is a number.
    #[must_use]
    #[track_caller]
    pub fn vector(self) -> Vec<Sample> {
        match self {
            Self::Vector(samples) => samples,
            Self::Scalar(number) => panic!("{number} instead of samples"),
        }
    }

    /// The number.
    #[track_caller]
    pub(super) fn scalar(self) -> f64 {
        match self {
            Self::Scalar(number) => number,
            Self::Vector(samples) => panic!("{samples:?} instead of a number"),
        }
    }
}

/// A sample of a result.
pub(super) fn nameless(labels: Labels, value: f64) -> Sample {
    Sample { name: String::new(), labels, value }
}
