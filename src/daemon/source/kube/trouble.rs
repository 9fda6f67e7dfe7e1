//! Reports a failure once, and again if it changes or its retries become rare.

use std::time::Duration;

use engine::model::Resource;

use super::error::SourceError;
use super::outlet::{Closed, Outlet, Report};

/// Wait from which an unchanged failure is reported again.
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

    pub(super) fn report(
        &mut self,
        outlet: &Outlet,
        resource: Option<Resource>,
        error: SourceError,
        retry_in: Duration,
    ) -> Result<(), Closed> {
        let text = error.to_string();
        if self.0.as_ref() == Some(&text) && retry_in < QUIET {
            return Ok(());
        }
        self.0 = Some(text);
        outlet.report(Report::Trouble { resource, error, retry_in })
    }
}
