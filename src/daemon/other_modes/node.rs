//! The node whose leftovers are removed.

use std::path::PathBuf;

use super::programs::Programs;

/// Files and programs of the node by which leftovers are found.
pub(super) struct Node {
    /// `/proc/net` of this thread's network namespace.
    pub(super) net: PathBuf,
    /// `/sys/module`.
    pub(super) modules: PathBuf,
    pub(super) programs: Programs,
}

impl Node {
    pub(super) fn new() -> Self {
        let [net, modules] = ["/proc/thread-self/net", "/sys/module"].map(PathBuf::from);
        Self { net, modules, programs: Programs::of_node() }
    }

    /// Returns a node whose files are all in one directory.
    #[cfg(test)]
    pub(super) fn at(folder: &std::path::Path, programs: Programs) -> Self {
        Self { net: folder.to_owned(), modules: folder.to_owned(), programs }
    }
}
