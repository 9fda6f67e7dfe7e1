//! Parses the command, builds the parts, runs.

fn main() {}
