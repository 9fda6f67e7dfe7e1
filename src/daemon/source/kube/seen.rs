//! What one watch has seen of the server, beyond its present list.

use std::time::Duration;

use engine::model::Resource;

use super::outlet::plural;

/// Least time before the second look at a list that became empty: a cache or an API server that
/// starts may have nothing yet. Longer than [`Outages`](super::Outages) join failures, so that the
/// log has a warning.
pub(super) const SECOND_LOOK: Duration = Duration::from_secs(3);

/// What was seen of the server.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) content: Content,
    /// The log has a line about a long wait since the last success.
    pub(super) is_wait_reported: bool,
    /// Its answers cannot be used, which is a present problem.
    pub(super) is_unusable: bool,
    /// The last list was too long: nothing of the next one is sent on before its end.
    pub(super) is_held: bool,
    /// The resource was reported as empty because the server does not have it.
    pub(super) is_reported_absent: bool,
}

/// What the server has of the resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing, as far as known.
    #[default]
    Nothing,
    /// At least one object since the last list that was empty.
    Objects,
    /// The same, but then a list was empty; the next one counts.
    Doubtful,
}

impl Seen {
    /// Returns what is seen before the first list, if there are objects of an earlier source or none.
    pub(super) fn new(has_objects: bool) -> Self {
        let content = if has_objects { Content::Objects } else { Content::Nothing };
        Self { content, ..Self::default() }
    }

    /// Records an empty list. Returns whether it is not believed yet.
    pub(super) fn doubts(&mut self, resource: Resource) -> bool {
        let (next, doubts) = match self.content {
            Content::Objects => (Content::Doubtful, true),
            Content::Doubtful => {
                let names = plural(resource);
                tracing::warn!("the API server lists no {names} again: all of them are removed");
                (Content::Nothing, false)
            }
            Content::Nothing => (Content::Nothing, false),
        };
        self.content = next;
        doubts
    }

    /// Logs once that the server asks for a longer wait than this one.
    pub(super) fn long_wait(&mut self, resource: Resource, asked: Duration, wait: Duration) {
        if !std::mem::replace(&mut self.is_wait_reported, true) {
            let (names, asked, wait) = (plural(resource), asked.as_secs(), wait.as_secs());
            tracing::warn!(
                "the API server asks to wait {asked} s for {names}: {wait} s are waited"
            );
        }
    }
}
