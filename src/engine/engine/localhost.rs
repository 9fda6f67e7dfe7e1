//! NodePorts at loopback addresses of IPv4.

use super::Engine;

impl Engine {
    /// Returns whether loopback addresses of IPv4 serve NodePorts.
    pub fn serves_localhost(&self) -> bool {
        self.serves_localhost
    }

    /// Returns whether the next commit removes the rule that drops packets of other hosts to
    /// loopback addresses, because localhost NodePorts are no longer configured.
    pub fn loses_guard(&self) -> bool {
        self.loses_guard
    }

    /// Stops serving NodePorts at loopback addresses, because the kernel does not route them.
    pub fn leave_out_localhost(&mut self) {
        self.serves_localhost = false;
        self.render_tables();
        self.render_node_ports();
    }
}
