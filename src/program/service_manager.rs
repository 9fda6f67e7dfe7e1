//! The service manager that started the daemon, such as systemd: it gets the daemon's state by the
//! protocol of sd_notify(3).
//!
//! Without the variable `NOTIFY_SOCKET` there is none, and nothing is sent. A message never blocks.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use std::{env, io, process};

use daemon::observe::Observe;
use tokio::time::sleep;

/// Environment variable with the address of the service manager's socket.
const ADDRESS: &str = "NOTIFY_SOCKET";

/// Environment variables with the longest time between two signs of life, in microseconds, and with
/// the number of the process that sends them.
const WATCHDOG: [&str; 2] = ["WATCHDOG_USEC", "WATCHDOG_PID"];

engine::named! {
    /// State of the daemon, with its message (sd_notify(3)).
    pub(super) enum State {
        /// The tables are complete, also after a reload.
        Ready = "READY=1\n",
        /// The program executes itself again, with another configuration.
        Reloading = "RELOADING=1\n",
        /// A signal ends the daemon.
        Stopping = "STOPPING=1\n",
        /// The daemon makes progress.
        Alive = "WATCHDOG=1\n",
    }
}

/// Where the daemon sends its state. Without an address it sends nothing.
#[derive(Clone, Debug)]
pub(super) struct ServiceManager {
    address: Option<SocketAddr>,
}

impl ServiceManager {
    /// Returns the service manager that the environment names.
    pub(super) fn of_environment() -> Self {
        Self::at(&env::var_os(ADDRESS).unwrap_or_default())
    }

    fn at(address: &OsStr) -> Self {
        let warn = |error: &io::Error| tracing::warn!("{ADDRESS}: {}: {error}", address.display());
        let given = (!address.is_empty()).then(|| parse(address));
        Self { address: given.and_then(|it| it.inspect_err(warn).ok()) }
    }

    /// Sends the state.
    pub(super) fn notify(&self, state: State) {
        let Some(address) = &self.address else { return };
        if let Err(error) = send(address, state) {
            tracing::warn!("the service manager is not notified: {ADDRESS}: {error}");
        }
    }

    /// Sends that the daemon is ready once its tables are complete.
    pub(super) async fn notify_ready(self, observe: Observe) {
        observe.tables_complete().await;
        self.notify(State::Ready);
    }

    /// Sends signs of life while the daemon makes progress, twice as often as they are expected.
    pub(super) async fn notify_alive(self, observe: Observe) {
        let values = WATCHDOG.map(|name| env::var(name).ok());
        let Some(expected) = watchdog(values.each_ref().map(Option::as_deref)) else { return };
        loop {
            if observe.is_alive() {
                self.notify(State::Alive);
            }
            sleep(expected / 2).await;
        }
    }
}

/// Returns the longest time between two signs of life; `None` if none are expected of this process.
fn watchdog([time, process]: [Option<&str>; 2]) -> Option<Duration> {
    let is_ours = process.is_none_or(|it| it.parse() == Ok(process::id()));
    let time = time?.parse().ok().map(Duration::from_micros);
    time.filter(|time| is_ours && !time.is_zero())
}

/// Returns the address of a path, or of an abstract socket that `@` begins.
fn parse(address: &OsStr) -> io::Result<SocketAddr> {
    match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(address),
        _ => Err(io::Error::other("neither an absolute path nor an abstract socket")),
    }
}

fn send(address: &SocketAddr, state: State) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // Otherwise a full queue of the receiver would block the loop.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.name().as_bytes(), address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use nft::family::Family;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 64];
        socket.set_read_timeout(Some(SOON)).unwrap();
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn states_arrive_at_a_path_and_at_an_abstract_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let of_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("deltaproxy-test-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        let of_name = UnixDatagram::bind_addr(&abstract_address).unwrap();
        let name = format!("@{name}");
        for (socket, address) in [(of_path, path.as_os_str()), (of_name, OsStr::new(&name))] {
            let manager = ServiceManager::at(address);
            let states = [
                (State::Ready, "READY=1\n"),
                (State::Reloading, "RELOADING=1\n"),
                (State::Stopping, "STOPPING=1\n"),
                (State::Alive, "WATCHDOG=1\n"),
            ];
            for (state, message) in states {
                manager.notify(state);
                assert_eq!(received(&socket), message, "{address:?}");
            }
        }
    }

    #[test]
    fn without_an_address_or_a_receiver_nothing_happens() {
        for address in ["", "vsock:2:1234", "relative", "/no/such/folder/socket"] {
            ServiceManager::at(OsStr::new(address)).notify(State::Ready);
        }
        let long = "x".repeat(200);
        assert!(ServiceManager::at(OsStr::new(&format!("@{long}"))).address.is_none());
    }

    #[test]
    fn signs_of_life_are_sent_if_this_process_is_asked_for_them() {
        let own = process::id().to_string();
        let second = Some(Duration::from_secs(1));
        for (values, expected) in [
            ([Some("1000000"), None], second),
            ([Some("1000000"), Some(&*own)], second),
            ([Some("1000000"), Some("1")], None),
            ([Some("0"), None], None),
            ([Some("-1"), None], None),
            ([None, Some(&*own)], None),
        ] {
            assert_eq!(watchdog(values), expected, "{values:?}");
        }
    }

    #[test]
    fn a_receiver_that_does_not_read_never_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::at(path.as_os_str());
        // More than net.unix.max_dgram_qlen on any node.
        (0..5000).for_each(|_| manager.notify(State::Ready));
        assert_eq!(received(&socket), "READY=1\n");
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a test reads the clock as the run loop does")]
    async fn ready_is_sent_when_both_families_are_in_the_kernel() {
        let synced = |observe: &Observe| observe.synced(Family::Ip6, Instant::now());
        let blocked = |observe: &Observe| observe.sync_failed(Family::Ip6, true, Instant::now());
        for last in [synced as fn(&Observe), blocked] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("notify");
            let socket = UnixDatagram::bind(&path).unwrap();
            socket.set_nonblocking(true).unwrap();
            let (manager, observe) = (ServiceManager::at(path.as_os_str()), Observe::new());
            let task = tokio::spawn(manager.notify_ready(observe.clone()));
            observe.synced(Family::Ip, Instant::now());
            tokio::task::yield_now().await;
            assert!(!task.is_finished() && socket.recv(&mut [0; 8]).is_err());
            last(&observe);
            let ended = tokio::time::timeout(SOON, task).await;
            ended.expect("the last family ends the wait").unwrap();
            socket.set_nonblocking(false).unwrap();
            assert_eq!(received(&socket), "READY=1\n");
        }
    }
}
