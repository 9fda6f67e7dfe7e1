//! The map of the program: a kube-proxy that sends the kernel only what changed.
//!
//! ```text
//!  API server / files                                                                              kernel
//!      |                                                                                             ^
//!      v                                                                                             |
//!   source --Event--> model --touched--> desired --fragments--> diff --Change--> plan --Transaction--> kernel
//!   (kube types and   (Cluster: our own  (frontends, slots,     (desired vs      (order that the      (commit,
//!    YAML end here)    services,          set and map            installed)       kernel accepts)      read back)
//!                      endpoints)         elements)                                                      |
//!        run: the only loop <-- schedule: when to commit (no clock, no I/O) <---- committed/refused/tampered
//!         +--> observe: metrics and health     +--> conntrack: stale UDP flows
//! ```
//!
//! Data flows left to right; what flows back is one of three words. One task owns everything
//! between `source` and `kernel`, so there are no locks. It applies no event to the diff while a
//! commit is in flight, so the diff cannot change under a transaction.
//!
//! `bench` measures all of this on a synthetic cluster, by calling the same modules.
//!
//! Things that are deliberately absent:
//!
//! - Kubernetes types outside `source`. A malformed object becomes a problem report and never
//!   stops other objects.
//! - Failing, waiting or logging in `model`, `desired`, `diff`, `plan` and `schedule`.
//! - Reading the clock anywhere but in `run` and at the edges (`kernel`, `cli`, `observe`, `bench`).
//! - Acting on any table but our own two, `ip kube-proxy` and `ip6 kube-proxy`.

pub mod bench;
pub mod cli;
pub mod config;
pub mod conntrack;
pub mod desired;
pub mod diff;
pub mod engine;
pub mod family;
pub mod kernel;
pub mod model;
pub mod netlink;
pub mod nft;
pub mod observe;
pub mod plan;
pub mod ruleset;
pub mod run;
pub mod schedule;
pub mod source;
pub mod yaml;
