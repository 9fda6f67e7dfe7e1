//! Metrics and health. Knows no module above; is told values.
