//! Links, addresses and routes, through `rtnetlink`.
//!
//! Interface numbers and hardware addresses are chosen here and not by the kernel, so nothing has to
//! be looked up; packets neither. A new interface joins the multicast groups of IPv6 neighbour
//! discovery a little later than it is ready, and a question lost in that time costs a second.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;

use nix::net::if_::if_nametoindex;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use rtnetlink::packet_route::link::{
    InfoBridge, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::{Error, Handle, LinkBridge, LinkUnspec, LinkVeth, RouteMessageBuilder};

use crate::device::{DeviceKind, End};
use crate::namespace::Namespace;

/// The number of `lo` in every namespace.
pub const LOOPBACK: u32 = 1;

/// The number of `eth0` in every namespace that has one.
pub const ETH0: u32 = 2;

/// The settings of an interface.
#[derive(Debug, Default)]
pub struct Setup {
    /// Host addresses (/32 or /128).
    pub addresses: Vec<IpAddr>,
    /// Addresses with the length of the prefix that they share with others of the link.
    pub shared: Vec<(IpAddr, u8)>,
    /// Routes through the interface.
    pub routes: Vec<Route>,
}

/// A route through an interface, and the hardware address at its other end.
#[derive(Debug)]
pub enum Route {
    /// This one address is on the link.
    OnLink(IpAddr, HardwareAddress),
    /// Everything else of the gateway's family goes to this gateway.
    DefaultVia(IpAddr, HardwareAddress),
    /// This prefix is behind a gateway on the link, whose hardware address is looked up.
    Via((IpAddr, u8), IpAddr),
}

/// Six bytes, as on Ethernet.
pub type HardwareAddress = [u8; 6];

/// The hardware addresses of veth pair `index`, the near end's first.
pub fn hardware_addresses(index: u32) -> [HardwareAddress; 2] {
    let [_, a, b, c] = index.to_be_bytes();
    // 2: a local address.
    [[2, 0, 0, a, b, c], [2, 0, 1, a, b, c]]
}

/// Makes a veth pair: `name` with number `index` in `here`, up, and `eth0` in `there`, still down.
pub fn connect(here: &Namespace, there: &Namespace, name: &str, index: u32) {
    connect_ends(End { namespace: here, name, index }, DeviceKind::Veth.end(there));
}

/// Makes a veth pair: the near end, up, and the far one, still down. Both have hardware addresses by
/// the near end's number.
pub(crate) fn connect_ends(near: End<'_>, far: End<'_>) {
    let [near_address, far_address] = hardware_addresses(near.index);
    let peer = LinkUnspec::new_with_index(far.index).name(far.name).address(far_address.to_vec());
    let mut peer = peer.build();
    peer.attributes.push(LinkAttribute::NetNsFd(far.namespace.file().as_raw_fd()));
    let mut link = LinkVeth::new(near.name, far.name)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .address(near_address.to_vec())
        .index(near.index)
        .build();
    set_up(&mut link);
    near.namespace.run(|| talk(async |handle| handle.link().add(link).execute().await));
}

/// Sets interface `index` up and gives it its addresses and routes.
pub fn configure(namespace: &Namespace, index: u32, setup: &Setup) {
    namespace.run(|| {
        talk(async |handle| {
            let up = LinkUnspec::new_with_index(index).up().build();
            handle.link().set(up).execute().await?;
            let hosts = setup.addresses.iter().map(|address| (*address, host_prefix(*address)));
            for address in hosts.chain(setup.shared.iter().copied()) {
                add_address(&handle, index, address).await?;
            }
            for route in &setup.routes {
                add_route(&handle, index, route).await?;
            }
            Ok(())
        });
    });
}

/// Makes a bridge `name` with number `index`, up.
pub fn add_bridge(namespace: &Namespace, name: &str, index: u32) {
    let link = LinkBridge::new(name).index(index).build();
    namespace.run(|| talk(async |handle| handle.link().add(link).execute().await));
}

/// Makes interface `index` a port of a bridge.
pub fn add_port(namespace: &Namespace, index: u32, bridge: u32) {
    change(namespace, LinkUnspec::new_with_index(index).controller(bridge).build());
}

/// Lets a bridge learn no hardware addresses, so that it sends all frames to all ports.
pub fn forget_at_once(namespace: &Namespace, bridge: u32) {
    let mut link = LinkMessage::default();
    link.header.index = bridge;
    let ageing_time = InfoData::Bridge(vec![InfoBridge::AgeingTime(0)]);
    let info = vec![LinkInfo::Kind(InfoKind::Bridge), LinkInfo::Data(ageing_time)];
    link.attributes.push(LinkAttribute::LinkInfo(info));
    // Without NLM_F_CREATE and NLM_F_REPLACE, RTM_NEWLINK changes a device (`rtnl_changelink`).
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK;
    let flags = u16::try_from(flags).expect("two low bits");
    namespace.run(|| {
        talk(async |handle| handle.link().add(link).set_flags(flags).execute().await);
    });
}

/// Takes interface `index` from its bridge.
pub fn remove_port(namespace: &Namespace, index: u32) {
    change(namespace, LinkUnspec::new_with_index(index).nocontroller().build());
}

/// Sets the hardware address of interface `index`.
pub fn set_hardware_address(namespace: &Namespace, index: u32, address: HardwareAddress) {
    change(namespace, LinkUnspec::new_with_index(index).address(address.to_vec()).build());
}

/// Makes a veth pair whose both ends are in `namespace`, up.
pub fn add_pair(namespace: &Namespace, name: &str, peer: &str) {
    let mut link = LinkVeth::new(name, peer).build();
    set_up(&mut link);
    namespace.run(|| talk(async |handle| handle.link().add(link).execute().await));
}

/// Removes an interface, and its peer.
pub fn remove(namespace: &Namespace, name: &str) {
    let index = namespace.run(|| if_nametoindex(name)).expect("an interface of this name");
    namespace.run(|| talk(async |handle| handle.link().del(index).execute().await));
}

/// Sets the largest packet of an interface.
pub fn set_mtu(namespace: &Namespace, index: u32, bytes: u32) {
    change(namespace, LinkUnspec::new_with_index(index).mtu(bytes).build());
}

fn change(namespace: &Namespace, link: LinkMessage) {
    namespace.run(|| talk(async |handle| handle.link().set(link).execute().await));
}

/// Makes all addresses of a range local ones of a namespace.
pub fn add_range(namespace: &Namespace, first: IpAddr, prefix: u8) {
    // On the loopback interface the whole range of an address is local (`fib_add_ifaddr`).
    let add = |handle: Handle| async move {
        handle.address().add(LOOPBACK, first, prefix).execute().await
    };
    namespace.run(|| talk(add));
}

/// Sets `lo` of the calling thread's namespace up, if nothing can be reached by it.
pub fn raise_loopback() {
    // While another thread sets it up, there is a moment in which not even a socket can be bound.
    let socket = UdpSocket::bind("127.0.0.1:0");
    if socket.and_then(|it| it.connect("127.0.0.1:9")).is_err() {
        let up = LinkUnspec::new_with_index(LOOPBACK).up().build();
        // The caller may run in an event loop, which must not block; a new thread does not.
        let raise = || talk(async |handle| handle.link().set(up).execute().await);
        thread::scope(|scope| scope.spawn(raise).join()).expect("the loopback can be set up");
    }
}

async fn add_address(
    handle: &Handle,
    index: u32,
    (address, prefix): (IpAddr, u8),
) -> Result<(), Error> {
    let mut request = handle.address().add(index, address, prefix);
    if address.is_ipv6() {
        // Without this the address is tentative for a second, and nothing answers from it.
        let nodad = AddressAttribute::Flags(AddressFlags::Nodad);
        request.message_mut().attributes.push(nodad);
    }
    request.execute().await
}

/// Takes an address with this prefix from interface `index`.
pub fn remove_address(namespace: &Namespace, index: u32, (address, prefix): (IpAddr, u8)) {
    namespace.run(|| {
        talk(async |handle| {
            // The kernel finds it by these fields alone.
            let mut message = AddressMessage::default();
            message.header.family = match address {
                IpAddr::V4(_) => AddressFamily::Inet,
                IpAddr::V6(_) => AddressFamily::Inet6,
            };
            message.header.index = index;
            message.header.prefix_len = prefix;
            message.attributes.push(AddressAttribute::Local(address));
            handle.address().del(message).execute().await
        });
    });
}

async fn add_route(handle: &Handle, index: u32, route: &Route) -> Result<(), Error> {
    let builder = RouteMessageBuilder::<IpAddr>::new().output_interface(index);
    let (builder, neighbour, hardware) = match *route {
        Route::Via((to, prefix), gateway) => {
            let builder = builder.destination_prefix(to, prefix);
            let builder = builder.and_then(|builder| builder.gateway(gateway));
            let message = builder.expect("addresses of one family").onlink().build();
            return handle.route().add(message).replace().execute().await;
        }
        Route::OnLink(to, at) => (builder.destination_prefix(to, host_prefix(to)), to, at),
        Route::DefaultVia(gateway, at) => {
            let builder = builder.destination_prefix(unspecified(gateway), 0);
            let builder = builder.and_then(|builder| builder.gateway(gateway));
            (builder.map(RouteMessageBuilder::onlink), gateway, at)
        }
    };
    let message = builder.expect("addresses of one family").build();
    handle.route().add(message).execute().await?;
    let neighbour =
        handle.neighbours().add(index, neighbour).link_layer_address(&hardware).replace();
    neighbour.execute().await
}

/// Returns the length of the prefix of one address.
pub fn host_prefix(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

pub(crate) fn set_up(link: &mut LinkMessage) {
    link.header.flags |= LinkFlags::Up;
    link.header.change_mask |= LinkFlags::Up;
}

/// Runs `requests` on a route socket of the calling thread's namespace.
pub(crate) fn talk(requests: impl AsyncFnOnce(Handle) -> Result<(), Error>) {
    let done = try_talk(requests);
    done.unwrap_or_else(|error| panic!("the kernel refused a link, address or route: {error}"));
}

/// The same, with the error of the kernel.
pub(crate) fn try_talk(
    requests: impl AsyncFnOnce(Handle) -> Result<(), Error>,
) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.expect("an event loop for one socket").block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().expect("a route socket");
        tokio::spawn(connection);
        requests(handle).await
    })
}
