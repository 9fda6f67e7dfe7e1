//! A queue of lines for a writer that may block forever.
//!
//! Only the queue's own thread waits for the writer, and [`LineQueue::flush`] for a limited time.
//! Lines are dropped and counted if the queue is full or the write fails.
//!
//! `tracing-appender` has such a queue, but eight dependencies, most of them for dated files. It
//! limits lines instead of bytes, does not count lines that cannot be written, and may block on
//! standard output at the end.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use daemon::observe::Observe;
use tokio::time::Instant;

/// Most queued bytes: some 5,000 lines of the usual length.
const MAX_WAITING: usize = 1024 * 1024;

/// Time limit of the last writes.
const FLUSH_LIMIT: Duration = Duration::from_millis(500);

/// Time between two lines about dropped lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Sender to the writing thread. Clones share it.
#[derive(Clone, Debug)]
pub struct LineQueue {
    entries: Sender<Entry>,
    /// Length of the queued lines in bytes.
    waiting: Arc<AtomicUsize>,
    observe: Observe,
}

#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    /// Dropped when all earlier lines are written.
    Flush(Sender<()>),
}

impl LineQueue {
    /// Starts the writing thread. `observe` counts dropped lines.
    ///
    /// # Errors
    /// Errors of starting a thread.
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
            self.observe.metrics().own.log_lines_dropped.inc();
        }
    }

    /// Waits until all earlier lines are written, for a limited time.
    pub(super) fn flush(&self) {
        let (written, done) = channel();
        if self.entries.send(Entry::Flush(written)).is_ok() {
            // Always an error: a closed channel when written, else a timeout.
            let _ = done.recv_timeout(FLUSH_LIMIT);
        }
    }
}

/// Expects one line per call, as `tracing_subscriber` writes them.
impl Write for LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Receiver on the writing thread.
struct Drain<W> {
    writer: W,
    waiting: Arc<AtomicUsize>,
    observe: Observe,
}

impl<W: Write> Drain<W> {
    fn run(mut self, entries: &Receiver<Entry>) {
        let (mut reported, mut due) = (0, Instant::now() + REPORT_INTERVAL);
        // Whether the last line was written, and the queue has space for one more.
        let (mut is_open, mut flush) = (true, None);
        loop {
            if due <= Instant::now() {
                due = Instant::now() + REPORT_INTERVAL;
                let _ = is_open && self.report_dropped(&mut reported);
            }
            let line = match entries.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(Entry::Line(line)) => line,
                // The report is the last line to wait for.
                Ok(Entry::Flush(written)) => {
                    flush = Some(written).filter(|_| is_open && self.report_dropped(&mut reported));
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let written = self.writer.write_all(&line);
            let left = self.waiting.fetch_sub(line.len(), Ordering::Relaxed) - line.len();
            is_open = written.is_ok() && left <= MAX_WAITING / 2;
            if written.is_err() {
                // Not logged: that line could not be written either.
                self.observe.metrics().own.log_lines_dropped.inc();
            }
            drop(flush.take());
        }
    }

    /// Logs the number of lines dropped since the last such log line. Returns whether there are any.
    fn report_dropped(&self, reported: &mut u64) -> bool {
        let dropped = self.observe.metrics().own.log_lines_dropped.get();
        let new = dropped - std::mem::replace(reported, dropped);
        if new > 0 {
            tracing::warn!(
                "{new} log lines were dropped: standard error was not read, or they were too many \
                 about an object or of a kind"
            );
        }
        new > 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{SyncSender, sync_channel};

    use super::*;

    /// A pipe with capacity for one write.
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
        assert_eq!(observe.metrics().own.log_lines_dropped.get(), 6);
        for _ in 0..4 {
            assert_eq!(pipe.recv().unwrap().len(), line.len());
        }
        queue.push(b"short\n".to_vec());
        assert_eq!(pipe.recv().unwrap(), b"short\n");
        assert_eq!(observe.metrics().own.log_lines_dropped.get(), 6);
    }

    #[test]
    fn a_flush_ends_when_the_lines_are_written_or_its_time_is_over() {
        let (queue, _observe, pipe) = queue();
        queue.push(b"one\n".to_vec());
        let reader = thread::spawn(move || pipe.recv().map(|line| (line, pipe)));
        queue.flush();
        let (line, _pipe) = reader.join().unwrap().unwrap();
        assert_eq!(line, b"one\n");

        // Nothing reads this line.
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
        // A flush has a limit, which the thread of the queue may miss.
        for _ in 0..40 {
            queue.flush();
            if observe.metrics().own.log_lines_dropped.get() == 3 {
                return;
            }
        }
        panic!("{} lines were counted", observe.metrics().own.log_lines_dropped.get());
    }
}
