//! A line for each draining endpoint.

use std::io::{self, Write};

use engine::printable::Printable;

use super::cells::{OrDash, age, socket, write_columns};
use crate::show::view::View;

/// Writes a header and the draining endpoints, or a sentence if there are none.
///
/// # Errors
/// Errors of `out`.
pub fn draining(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let mut lines = view
        .draining()
        .map(|(entry, target, counts)| {
            [
                Printable(&entry.label).to_string(),
                view.address(&entry.frontend),
                socket(target).to_string(),
                counts.live().to_string(),
                OrDash(view.age(counts.oldest).map(age)).to_string(),
            ]
        })
        .peekable();
    if lines.peek().is_none() {
        return writeln!(out, "no endpoint is draining");
    }
    let titles = ["SERVICE", "ADDRESS", "ENDPOINT", "CONNECTIONS", "OLDEST"].map(str::to_owned);
    let lines: Vec<_> = [titles].into_iter().chain(lines).collect();
    write_columns(out, 3, &lines)
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Sample, written};
    use super::*;

    #[test]
    fn draining_endpoints_have_the_count_and_age_of_their_connections() {
        let sample = Sample::new();
        let expected = "\
SERVICE           ADDRESS            ENDPOINT         CONNECTIONS  OLDEST
default/web:http  10.96.0.10:80/tcp  10.244.1.6:8080            1   7m10s
";
        assert_eq!(written(|out| draining(out, &sample.view())), expected);
        let sample = sample.of("default/sticky");
        let nothing = "no endpoint is draining\n";
        assert_eq!(written(|out| draining(out, &sample.view())), nothing);
    }
}
