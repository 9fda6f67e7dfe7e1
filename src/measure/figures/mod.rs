//! Figures of a measurement: samples, report rows, tables and curves, for `bench` and `probe`.

mod clock;
mod histogram;
mod machine;
mod plot;
mod progress;
mod row;
mod table;

pub use clock::{interval, now, thread_time, timed};
pub use histogram::{histogram, record};
pub use machine::Machine;
pub use plot::{Plotted, plot};
pub use progress::Progress;
pub use row::{Row, Spread, Unit, Value, find};
pub use table::{aligned, cell, differences, label, number, rate, ratio, side_by_side};
