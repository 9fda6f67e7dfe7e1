//! Lookups during commits.

use nft::kernel::Release;

use super::phrase::Phrase;

/// How the kernel looks up elements while it commits a transaction.
///
/// A lookup reads the current generation and then walks the elements of a hash. If the kernel makes
/// the next generation current in between and removes the old element of a key, the walk finds the
/// new element of the key, which is not active in the generation that it has read, and misses both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lookups {
    /// The kernel repeats a lookup that misses during a commit (Linux 6.17 and later).
    #[default]
    Repeated,
    /// A lookup may miss an element whose key is deleted and added again. The rules repeat it: the
    /// second one reads the new generation, because elements are removed after it has begun.
    Once,
}

impl Lookups {
    /// Returns the lookups that suit a kernel of this release; an unknown one may be old.
    pub fn of_kernel(release: Option<Release>) -> Self {
        let is_new = release.is_some_and(|release| release >= Release::REPEATED_LOOKUPS);
        if is_new { Self::Repeated } else { Self::Once }
    }

    /// Returns rules that look elements up, repeated if a lookup may miss one.
    pub(super) fn repeat(self, rules: impl Into<Vec<Vec<Phrase>>>) -> Vec<Vec<Phrase>> {
        let times = match self {
            Self::Repeated => 1,
            Self::Once => 2,
        };
        std::iter::repeat_n(rules.into(), times).flatten().collect()
    }
}
