//! Lines on their way to a writer that may block for ever.
//!
//! Nothing here waits for the writer but a thread of its own, and [`LineQueue::flush`] for a limited
//! time. Lines that find the queue full, or that cannot be written, are dropped and counted.
//!
//! `tracing-appender` has such a queue, and eight crates behind it, most of them for dated files. It
//! limits lines and not bytes, does not count lines that cannot be written, and may block on
//! standard output at the end.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::observe::Observe;

/// Bytes that may wait: some 5,000 lines of the usual length.
const MAX_WAITING: usize = 1024 * 1024;

/// How long the last lines may take to write.
const FLUSH_LIMIT: Duration = Duration::from_millis(500);

/// The way to the thread that writes. Clones share it.
#[derive(Clone, Debug)]
pub struct LineQueue {
    entries: Sender<Entry>,
    /// Length of the lines that wait, in bytes.
    waiting: Arc<AtomicUsize>,
    observe: Observe,
}

#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    /// Dropped when everything before it is written.
    Flush(Sender<()>),
}

impl LineQueue {
    /// Starts the thread that writes. `observe` counts the lines that are dropped.
    ///
    /// # Errors
    /// What the system reports if it cannot start a thread.
    pub(super) fn spawn(writer: impl Write + Send + 'static, observe: Observe) -> io::Result<Self> {
        let (entries, received) = channel();
        let queue = Self { entries, waiting: Arc::default(), observe };
        let drain =
            Drain { writer, waiting: queue.waiting.clone(), observe: queue.observe.clone() };
        thread::Builder::new().name("log".to_owned()).spawn(move || drain.run(&received))?;
        Ok(queue)
    }

    /// Queues a line, with its newline, or drops it.
    pub(super) fn push(&self, line: Vec<u8>) {
        let length = line.len();
        let before = self.waiting.fetch_add(length, Ordering::Relaxed);
        if before + length > MAX_WAITING || self.entries.send(Entry::Line(line)).is_err() {
            self.waiting.fetch_sub(length, Ordering::Relaxed);
            self.observe.log_line_dropped();
        }
    }

    /// Waits until the lines before are written, but not long.
    pub(super) fn flush(&self) {
        let (written, done) = channel();
        if self.entries.send(Entry::Flush(written)).is_ok() {
            // An error either way: written, or not within the limit.
            let _ = done.recv_timeout(FLUSH_LIMIT);
        }
    }
}

/// Takes one line in each call, as `tracing_subscriber` writes them.
impl Write for LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The thread's side.
struct Drain<W> {
    writer: W,
    waiting: Arc<AtomicUsize>,
    observe: Observe,
}

impl<W: Write> Drain<W> {
    fn run(mut self, entries: &Receiver<Entry>) {
        let mut reported = 0;
        for entry in entries {
            let line = match entry {
                Entry::Line(line) => line,
                Entry::Flush(written) => {
                    drop(written);
                    continue;
                }
            };
            let written = self.writer.write_all(&line);
            let left = self.waiting.fetch_sub(line.len(), Ordering::Relaxed) - line.len();
            match written {
                // There is room for one more line.
                Ok(()) if left <= MAX_WAITING / 2 => self.report_dropped(&mut reported),
                Ok(()) => {}
                // Nothing is logged about it: that line could not be written either.
                Err(_) => self.observe.log_line_dropped(),
            }
        }
    }

    /// Logs how many lines were dropped since it was logged last.
    fn report_dropped(&self, reported: &mut u64) {
        let dropped = self.observe.dropped_log_lines();
        let new = dropped - std::mem::replace(reported, dropped);
        if new > 0 {
            tracing::warn!("{new} log lines were dropped: standard error was not read");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{SyncSender, sync_channel};

    use super::*;

    /// A pipe that holds one write at a time.
    struct Pipe(SyncSender<Vec<u8>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn queue() -> (LineQueue, Observe, Receiver<Vec<u8>>) {
        let (sender, receiver) = sync_channel(0);
        let observe = Observe::new();
        let queue = LineQueue::spawn(Pipe(sender), observe.clone()).unwrap();
        (queue, observe, receiver)
    }

    #[test]
    fn lines_that_find_no_room_are_dropped_and_counted() {
        let (queue, observe, pipe) = queue();
        let line = vec![b'x'; MAX_WAITING / 4];
        for _ in 0..10 {
            queue.push(line.clone());
        }
        assert_eq!(observe.dropped_log_lines(), 6);
        for _ in 0..4 {
            assert_eq!(pipe.recv().unwrap().len(), line.len());
        }
        queue.push(b"short\n".to_vec());
        assert_eq!(pipe.recv().unwrap(), b"short\n");
        assert_eq!(observe.dropped_log_lines(), 6);
    }

    #[test]
    fn a_flush_ends_when_the_lines_are_written_or_its_time_is_over() {
        let (queue, _observe, pipe) = queue();
        queue.push(b"one\n".to_vec());
        let reader = thread::spawn(move || pipe.recv().map(|line| (line, pipe)));
        queue.flush();
        let (line, _pipe) = reader.join().unwrap().unwrap();
        assert_eq!(line, b"one\n");

        // This line is not read.
        queue.push(b"two\n".to_vec());
        queue.flush();
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_nothing_is_logged_about_them() {
        let (queue, observe, pipe) = queue();
        drop(pipe);
        for _ in 0..3 {
            queue.push(b"lost\n".to_vec());
        }
        queue.flush();
        assert_eq!(observe.dropped_log_lines(), 3);
    }
}
