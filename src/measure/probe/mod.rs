//! Measures rule sync of the kube-proxy of this node, whichever it is, from outside:
//! `deltaproxy probe`.
//!
//! ```text
//!   PATCH of an EndpointSlice --> the API server's answer
//!                             --> an event of our own watch
//!                             --> the proxy's commit that names the endpoint, if it uses nftables
//!   new connections to the ClusterIP, all the time --> the first that reaches the new endpoint
//! ```
//!
//! Invariants: nothing here depends on which proxy runs. A change is sent only when connections
//! reach the endpoint of the change before, so the answer to each try is unambiguous. Each object
//! is in a namespace with [`LABEL`], by which leftovers are found.

mod address;
mod attempt;
mod change_times;
mod commits;
mod endpoint;
mod error;
mod objects;
mod ports;
mod report;
mod run;
mod settings;
mod testbed;
mod tries;
mod watch;

pub use address::AddressError;
pub use error::{ProbeError, Unreached};
pub use objects::{LABEL, NAME, NODE};
pub use report::ProbeReport;
pub use run::measure;
pub use settings::{ProbeSettings, Protocol};
pub use testbed::{Left, Leftover, Testbed};
