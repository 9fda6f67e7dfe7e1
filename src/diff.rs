//! Two maps that should be equal, and the keys on which they differ.
