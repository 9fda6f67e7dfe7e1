//! Flags and the KubeProxyConfiguration file, parsed into one valid `Config`.
