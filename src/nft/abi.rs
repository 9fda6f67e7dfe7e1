//! Numbers of the kernel's interface, under the kernel's names.
