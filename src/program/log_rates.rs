//! The rates of the lines of the log: one for each object, and one for all lines of a kind.
//!
//! Who may write an object, or the API server, chooses how often it becomes wrong. Further lines are
//! dropped and counted. Those of levels debug and trace have no rate.

use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use daemon::observe::Observe;
use daemon::rate_limit::RateLimit;
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};
use tracing_subscriber::layer::{Context, Filter};

/// Lines about one object that may come at once: all problems of a version of it.
const OF_OBJECT: u32 = 25;

/// Mean time between further lines about it, as between Events.
const OBJECT_INTERVAL: Duration = Duration::from_secs(5);

/// Lines of a kind that may come at once: those of one place in the program.
const OF_KIND: u32 = 200;

/// Mean time between further lines of a kind.
const KIND_INTERVAL: Duration = Duration::from_secs(1);

/// Most objects whose rates are kept.
const OBJECTS: usize = 4096;

/// A filter of lines.
#[derive(Debug)]
pub(super) struct LogRates {
    rates: Mutex<Rates>,
    observe: Observe,
}

#[derive(Debug, Default)]
struct Rates {
    hasher: RandomState,
    objects: HashMap<u64, RateLimit>,
    kinds: HashMap<tracing::callsite::Identifier, RateLimit>,
}

impl LogRates {
    /// Returns a filter of which `observe` counts the dropped lines.
    pub(super) fn new(observe: Observe) -> Self {
        Self { rates: Mutex::default(), observe }
    }
}

impl<S> Filter<S> for LogRates {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        if *event.metadata().level() > Level::INFO {
            return true;
        }
        let mut message = Message::default();
        event.record(&mut message);
        let now = Instant::now();
        let is_logged = {
            // After a panic elsewhere a line is dropped, or is not, which does no harm.
            let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
            rates.allow(event.metadata(), &message.0, now)
        };
        if !is_logged {
            self.observe.metrics().own.log_lines_dropped.inc();
        }
        is_logged
    }
}

impl Rates {
    /// Returns whether a line may be logged. The text before its first colon names the object.
    fn allow(&mut self, metadata: &Metadata<'_>, message: &str, now: Instant) -> bool {
        let kind = metadata.callsite();
        let object = message.split(": ").next().unwrap_or_default();
        let key = self.hasher.hash_one((&kind, object));
        if self.objects.len() >= OBJECTS {
            self.objects.retain(|_, rate| !rate.is_idle(now));
        }
        if self.objects.len() >= OBJECTS {
            self.objects.clear();
        }
        let of_object = || RateLimit::new(OBJECT_INTERVAL, OF_OBJECT);
        let of_kind = || RateLimit::new(KIND_INTERVAL, OF_KIND);
        self.objects.entry(key).or_insert_with(of_object).try_start(now)
            && self.kinds.entry(kind).or_insert_with(of_kind).try_start(now)
    }
}

/// The message of a line.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // Writing to a string cannot fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::channel;

    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::{Layer, SubscriberExt};

    use super::*;

    /// Returns the lines of `log`, and the number of those dropped.
    fn lines(log: impl FnOnce()) -> (Vec<String>, u64) {
        struct Sink(std::sync::mpsc::Sender<Vec<u8>>);
        impl io::Write for Sink {
            fn write(&mut self, line: &[u8]) -> io::Result<usize> {
                self.0.send(line.to_vec()).map_err(io::Error::other)?;
                Ok(line.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (sender, written) = channel();
        let observe = Observe::new();
        let rates = LogRates::new(observe.clone());
        let writer = move || Sink(sender.clone());
        let layer = fmt::layer().with_writer(writer).with_filter(rates);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let lines = written.try_iter().map(|line| String::from_utf8(line).unwrap());
        (lines.collect(), observe.metrics().own.log_lines_dropped.get())
    }

    #[test]
    fn the_lines_of_one_object_leave_those_of_others_in_the_log() {
        let (lines, dropped) = lines(|| {
            for i in 0..1000 {
                tracing::warn!("Service a/flips: spec.ports[{i}]: is wrong");
                if i % 100 == 0 {
                    tracing::warn!("Service a/other-{i}: is wrong");
                }
            }
            tracing::info!("stopped");
        });
        let of = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!((of("flips"), of("other"), of("stopped")), (25, 10, 1));
        assert_eq!(dropped, 975);
    }

    #[test]
    fn the_lines_of_many_objects_leave_those_of_other_kinds_in_the_log() {
        let (lines, dropped) = lines(|| {
            for i in 0..100_000 {
                tracing::warn!("Service a/{i}: is wrong");
            }
            tracing::info!("stopped");
        });
        // Some more if the test takes seconds.
        assert!((201..300).contains(&lines.len()), "{} lines", lines.len());
        assert!(lines.iter().any(|line| line.contains("stopped")));
        assert_eq!(lines.len() as u64 + dropped, 100_001);
    }

    #[test]
    fn lines_for_debugging_have_no_rate() {
        let (lines, dropped) = lines(|| (0..1000).for_each(|_| tracing::debug!("again")));
        assert_eq!((lines.len(), dropped), (1000, 0));
    }
}
