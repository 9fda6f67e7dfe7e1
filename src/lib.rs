//! The map of the program: a kube-proxy that sends the kernel only what changed.
//!
//! ```text
//!  API server / files                                                                        kernel
//!      |                                                                                        ^
//!      v                                                                                        |
//!   source --Event--> model --touched--> desired --Wanted--> diff --elements--> piece -Transaction
//!   (kube types and   (Cluster: our own  (one service:       (compared with     (order that     |
//!    YAML end here)    services,          frontends, lists,   installed, as its  the kernel     |
//!                      endpoints)         members)            turn comes)        accepts)       |
//!                                                                                               |
//!        engine: all between source and kernel as one value <--Answer-- committed/refused/unknown
//!        run: the only loop; schedule: when to commit (no clock, no I/O)
//!         +--> observe: metrics and health     +--> conntrack: stale UDP flows
//! ```
//!
//! Data flows left to right; what flows back is the outcome of a transaction, and now and then a list
//! of the flows that conntrack tracks, to be compared with what is committed. One task owns
//! everything between `source` and `kernel`, so there are no locks. A touched service waits in a
//! queue. When its turn comes it is rendered and compared with what is installed, and the difference
//! goes into the next transaction. While that is in the kernel, nothing is compared.
//!
//! `ruleset` holds what packets run: chains, rules, sets, and the meaning of each element.
//!
//! `read_back` reads the tables for the engine, whole or by keys; `converge` commits until they are as
//! desired, for callers without other work.
//!
//! `node` applies settings of the node beyond the tables.
//!
//! `handover` replaces our tables by tables with other flags, and leaves them to the next program.
//!
//! `other_modes` removes what kube-proxy's modes iptables and ipvs left, once the tables are in place.
//!
//! `inspect` reads the kernel, with no daemon: `show` lists services, `explain` walks a packet through
//! the rules, `top` follows both the kernel and a daemon.
//!
//! `docs/architecture.md` follows a change and a packet on their ways, and says where to change what;
//! `docs/glossary.md` has the words.
//!
//! `bench` measures all of this on a synthetic cluster, by calling the same modules.
//!
//! `probe` measures from outside, through an API server, the kube-proxy that runs on the node,
//! whichever it is. `figures` is what both report.
//!
//! Things that are deliberately absent:
//!
//! - Kubernetes types outside `source`. A malformed object becomes a problem report and never
//!   stops other objects.
//! - I/O, waiting, logging and errors in `model`, `desired`, `diff`, `piece`, `engine` and `schedule`.
//! - A second place that decides what follows from a refused transaction: [`engine::Engine::answer`]
//!   does for `run`, `apply`, `bench` and the tests.
//! - Reading the clock anywhere but in `run` and at the edges (`source`, `kernel`, `conntrack`,
//!   `observe`, `cli`, `bench`, `probe`, `figures`).
//! - Acting on any table but our own two, `ip kube-proxy` and `ip6 kube-proxy`, outside of
//!   `other_modes`, and there on any name that is not kube-proxy's.

pub mod bench;
pub mod cli;
pub mod config;
pub mod conntrack;
pub mod converge;
pub mod counters;
pub mod desired;
pub mod diff;
pub mod engine;
pub mod family;
pub mod figures;
pub mod flowtable;
pub mod handover;
pub mod inspect;
pub mod kernel;
pub mod model;
pub mod netlink;
pub mod nft;
pub mod node;
pub mod observe;
pub mod open_files;
pub mod other_modes;
pub mod piece;
pub mod printable;
pub mod probe;
pub mod read_back;
pub mod ruleset;
pub mod run;
pub mod schedule;
pub mod source;
pub mod yaml;
