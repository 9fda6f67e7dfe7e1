//! Samples of a page in Prometheus' text format, read without the product's code.

use std::collections::BTreeMap;

/// Names and values of labels.
pub type Labels = BTreeMap<String, String>;

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name of the metric, empty for the result of an expression.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Its value.
    pub value: f64,
}

impl Sample {
    /// Reads a line of a page.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    #[track_caller]
    pub fn read(line: &str) -> Self {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels = labels.strip_suffix('}').expect("the end of the labels");
        // No value of a label has a comma or a quotation mark.
        let labels = labels.split(',').filter(|label| !label.is_empty()).map(|label| {
            let (name, value) = label.split_once('=').expect("a label");
            (name.to_owned(), value.trim_matches('"').to_owned())
        });
        let value = value.replace("+Inf", "inf").parse().expect("a number");
        Self { name: name.to_owned(), labels: labels.collect(), value }
    }

    /// The value of a label, empty without it.
    #[must_use]
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// All samples of a page.
///
/// # Panics
/// When a line is none.
#[must_use]
#[track_caller]
pub fn samples(page: &str) -> Vec<Sample> {
    page.lines().filter(|line| !line.starts_with('#')).map(Sample::read).collect()
}
