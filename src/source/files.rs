//! Manifest files and folders, followed as they change.
