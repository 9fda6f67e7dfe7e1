//! Numbers of messages about network devices, from `<linux/rtnetlink.h>` and `<linux/if_link.h>`.

/// The device is new, or may have changed.
pub const RTM_NEWLINK: u16 = 16;
/// The device is gone, or is to be deleted.
pub const RTM_DELLINK: u16 = 17;
/// Request for devices.
pub const RTM_GETLINK: u16 = 18;
/// Length of `struct ifinfomsg`.
pub const IFINFOMSG_LENGTH: usize = 16;
/// Attribute of the name.
pub const IFLA_IFNAME: u16 = 3;
/// Attribute of the kind of device, and of what belongs to that kind.
pub const IFLA_LINKINFO: u16 = 18;
/// Nested in [`IFLA_LINKINFO`]: the name of the kind.
pub const IFLA_INFO_KIND: u16 = 1;
/// Nested in [`IFLA_LINKINFO`]: what belongs to the kind.
pub const IFLA_INFO_DATA: u16 = 2;
