//! Firewalls of Debian run beside the tables: they start, reload and stop, and packets pass.
//!
//! `make test-neighbours` installs them and runs these tests. Each runs beside tables with an owner,
//! beside tables without one, and beside the tables of a daemon that was killed.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "firewalls/cluster.rs"]
mod cluster;
#[path = "firewalls/fail2ban.rs"]
mod fail2ban;
#[path = "firewalls/firewalld.rs"]
mod firewalld;
#[path = "firewalls/iptables.rs"]
mod iptables;
#[path = "firewalls/listings.rs"]
mod listings;
#[path = "firewalls/machine.rs"]
mod machine;
#[path = "firewalls/own_endpoint.rs"]
mod own_endpoint;
#[path = "firewalls/reload.rs"]
mod reload;
#[path = "firewalls/ufw.rs"]
mod ufw;
