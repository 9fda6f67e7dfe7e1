//! The methods to read a resource that fail with the server.

use std::time::Duration;

use tokio::time::Instant;

use super::format::Formats;
use super::reflector::Method;

/// Time after which a read method that failed is tried again; servers are upgraded in place.
const RETRY_METHOD_AFTER: Duration = Duration::from_secs(3600);

/// The methods to read the resource that fail with this server. Each is tried again after
/// [`RETRY_METHOD_AFTER`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Methods {
    pub(super) formats: Formats,
    /// Time at which the server first refused a streaming list.
    pub(super) lists_since: Option<Instant>,
    /// Time at which the server first sent protobuf that cannot be read, or refused it.
    pub(super) json_since: Option<Instant>,
}

impl Methods {
    /// Forgets failures that are old.
    pub(super) fn forget(&mut self) {
        let old = |since: &mut Instant| since.elapsed() >= RETRY_METHOD_AFTER;
        self.lists_since.take_if(old);
        self.json_since.take_if(old);
    }

    /// Returns the best method not known to fail.
    pub(super) fn best(&self) -> Method {
        let formats = if self.json_since.is_some() { Formats::Json } else { self.formats };
        Method { streams_lists: self.lists_since.is_none(), formats }
    }
}
