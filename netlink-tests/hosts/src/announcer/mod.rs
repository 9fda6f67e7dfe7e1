//! Announces an address on a link as the speakers of MetalLB do (its `internal/layer2`): a program
//! answers the questions for its hardware address, and no interface has the address.

mod arp;
mod ndp;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::LinkAddr;

use self::arp::Arp;
use self::ndp::Ndp;
use crate::deadline::Deadline;
use crate::host::Host;
use crate::link::HardwareAddress;

/// Answers questions until it is dropped.
#[derive(Debug)]
pub struct Announcer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The protocol that finds the hardware address of one address.
trait Protocol: Send {
    /// The socket with the questions.
    fn socket(&self) -> BorrowedFd<'_>;
    /// Tells everybody on the link that the address is here.
    fn tell(&self);
    /// Receives a packet, and answers it if it asks for the address.
    fn answer(&self);
}

impl Announcer {
    /// Answers questions for `address` on the link of the host's `eth0`, and tells everybody there
    /// again and again that it moved to this host. Linux believes that of an IPv4 address a second
    /// after the last answer of another host (sysctl `locktime`), and of an IPv6 address at once.
    ///
    /// # Panics
    /// Without `eth0` or raw sockets.
    #[must_use]
    #[track_caller]
    pub fn start(host: &Host, address: IpAddr) -> Self {
        let protocol: Box<dyn Protocol> = host.run(|| match address {
            IpAddr::V4(address) => Box::new(Arp::open(eth0(), address)) as Box<dyn Protocol>,
            IpAddr::V6(address) => Box::new(Ndp::open(eth0(), address)),
        });
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let announce = move || {
            let mut told: Option<Deadline> = None;
            while !seen.load(Ordering::Relaxed) {
                if told.as_ref().is_none_or(|deadline| deadline.left().is_none()) {
                    protocol.tell();
                    told = Some(Deadline::after(AGAIN));
                }
                let mut fds = [PollFd::new(protocol.socket(), PollFlags::POLLIN)];
                if poll(&mut fds, WAIT).is_ok_and(|ready| ready > 0) {
                    protocol.answer();
                }
            }
        };
        Self { is_over, thread: Some(thread::spawn(announce)) }
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The `eth0` of the calling thread's namespace.
fn eth0() -> LinkAddr {
    let mut devices =
        getifaddrs().expect("the interfaces").filter(|it| it.interface_name == "eth0");
    devices.find_map(|it| it.address?.as_link_addr().copied()).expect("an eth0")
}

fn hardware_address(device: &LinkAddr) -> HardwareAddress {
    device.addr().expect("an Ethernet device")
}

/// Time after which everybody is told again.
const AGAIN: Duration = Duration::from_millis(300);

/// Milliseconds after which a dropped announcer is noticed.
const WAIT: u8 = 20;
