//! Reports a failure once, and again if it changes; that of a watch also if its retries become rare.

use std::sync::Arc;
use std::time::Duration;

use engine::model::Resource;

use super::error::SourceError;
use super::outlet::{Closed, Outlet, Report};

/// Wait from which an unchanged failure of a watch is reported again: longer than the first two.
const QUIET: Duration = Duration::from_secs(2);

/// Last reported failure; `None` after it is over.
#[derive(Debug, Default)]
pub(super) struct Trouble(Option<String>);

impl Trouble {
    pub(super) fn is_over(&self) -> bool {
        self.0.is_none()
    }

    /// Ends the failure. Returns whether there was one.
    pub(super) fn end(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Reports a failure of the watch of this resource at this server, or of all watches.
    pub(super) fn report(
        &mut self,
        outlet: &Outlet,
        watch: Option<(Resource, Arc<str>)>,
        error: SourceError,
        retry_in: Duration,
    ) -> Result<(), Closed> {
        let text = error.to_string();
        if self.0.as_ref() == Some(&text) && (watch.is_none() || retry_in < QUIET) {
            return Ok(());
        }
        self.0 = Some(text);
        let (resource, server) = watch.unzip();
        outlet.report(Report::Trouble { resource, server, error, retry_in })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::mpsc;

    use super::*;

    /// Returns how often a failure is reported that occurs twice with this wait.
    fn reports(watch: Option<&(Resource, Arc<str>)>, retry_in: Duration) -> usize {
        let (count, (events, _queue)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel(1));
        let counted = Arc::clone(&count);
        let report = move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let outlet = Outlet::new(events, report, Arc::new(|_, _| ()), Arc::new(|_, _| ()));
        let mut trouble = Trouble::default();
        for _ in 0..2 {
            let error = SourceError::Unreachable("refused".to_owned());
            trouble.report(&outlet, watch.cloned(), error, retry_in).unwrap();
        }
        count.load(Ordering::Relaxed)
    }

    #[test]
    fn an_unchanged_failure_is_reported_again_only_for_a_watch_with_rare_retries() {
        let watch = (Resource::Nodes, "10.0.0.1:6443".into());
        assert_eq!(reports(Some(&watch), QUIET / 2), 1);
        assert_eq!(reports(Some(&watch), QUIET), 2);
        assert_eq!(reports(None, QUIET), 1);
    }
}
