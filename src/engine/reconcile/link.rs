//! The network devices of the node, as their listener reports them.

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Index, unique in the namespace.
    pub index: u32,
    /// Name, unique in the namespace; it may change.
    pub name: String,
    /// It is the loopback device.
    pub is_loopback: bool,
    /// It belongs to another device: a bridge, a bond, a VRF.
    pub has_master: bool,
}

/// A change of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// The device is new or may have changed.
    Is(Link),
    /// The device with this index is gone.
    Gone(u32),
}

/// Devices of the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkNews {
    /// All devices; others are gone.
    All(Vec<Link>),
    /// Changes in order.
    Changes(Vec<LinkChange>),
}
