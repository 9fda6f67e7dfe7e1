//! What a sequence sends to the kernel, in order, for tests that compare runs.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::io;

thread_local! {
    static TRACE: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Returns all that `play` notes on this thread.
pub(crate) fn traced(play: impl FnOnce()) -> Vec<u8> {
    TRACE.set(Some(Vec::new()));
    play();
    TRACE.take().unwrap_or_default()
}

/// Adds a line, if the run is traced. Otherwise the text is not made.
pub(crate) fn note(line: impl fmt::Display) {
    TRACE.with_borrow_mut(|trace| {
        let Some(trace) = trace else { return };
        let mut text = String::new();
        let _ = writeln!(text, "{line}");
        trace.extend_from_slice(text.as_bytes());
    });
}

/// Adds the lines of a log.
pub(crate) struct Lines;

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        TRACE.with_borrow_mut(|trace| trace.iter_mut().for_each(|it| it.extend_from_slice(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
