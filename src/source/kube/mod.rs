//! The only place that names `kube`: watches and the fallback from streaming lists.
