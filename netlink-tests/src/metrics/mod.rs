//! The metrics of a daemon as Prometheus sees them: samples, expressions over scrapes, and alerts.
//!
//! An expression of another form than those of `deploy/alerts.yaml` and `deploy/rules.yaml` panics,
//! so that none counts as evaluated that was not.

mod alerts;
mod binary;
mod evaluation;
mod expression;
mod functions;
mod parser;
mod sample;
mod scrapes;
mod value;

pub use alerts::{Active, Alerts};
pub use evaluation::evaluate;
pub use expression::Expression;
pub use sample::{Labels, Sample, samples};
pub use scrapes::Scrapes;
pub use value::Value;

#[cfg(test)]
mod tests;
