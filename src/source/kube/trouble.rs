//! Reports a failure once, and again when it is another one or is tried again only seldom.

use std::time::Duration;

use super::SourceError;
use super::outlet::{Closed, Outlet, Report};
use crate::model::Resource;

/// The same failure is reported again only when the wait has grown to this.
const QUIET: Duration = Duration::from_secs(1);

/// The last failure that was reported, until it is over.
#[derive(Debug, Default)]
pub(super) struct Trouble(Option<String>);

impl Trouble {
    pub(super) fn is_over(&self) -> bool {
        self.0.is_none()
    }

    /// Takes it for over; returns whether there was a failure.
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
