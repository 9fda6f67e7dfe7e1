//! The loop: events in, commits out. The only reader of the clock.
