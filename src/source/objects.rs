//! Kubernetes API objects as JSON, reduced to the fields that routing needs.
