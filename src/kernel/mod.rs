//! The kernel side: commit, read back, be told of changes by others.
