//! Real-kernel tests of deltaproxy: hosts, links and probes made of network namespaces.
