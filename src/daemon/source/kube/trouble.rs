//! Reports a failure once, and again if it changes; that of a watch also if its retries become rare.

use std::sync::Arc;
use std::time::Duration;

use engine::model::Resource;

use super::error::SourceError;
use super::outlet::{Closed, Outlet, Report};

/// Wait from which an unchanged failure of a watch is reported again.
const QUIET: Duration = Duration::from_secs(1);

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
