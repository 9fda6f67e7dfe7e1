//! `top`: shows the state of this node, live in the terminal or once as text.

mod sampler;
mod terminal;

use std::future::pending;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::sync::mpsc::{self as commands, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::Args;
use daemon::config::listen_address;
use inspect::show::Order;
use inspect::top::{Action, ScreenState, TopView, plain};
use ratatui_crossterm::crossterm::event::{self, Event};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::sampler::Sampler;
use self::terminal::{RawTerminal, pressed};
use super::clock::now;
use super::failure::Failure;
use super::output::print;
use super::run::stop_signal;
use super::show::interval;

/// Exit codes and examples of `top`, for `--help`.
pub const TOP_HELP: &str = "\
Keys:
  q, Esc, Ctrl-C        end
  Tab, Shift-Tab        the next list, the list before: services, draining endpoints, problems
  Up, Down, PageUp, PageDown, Home, End, Space
                        scroll the list
  s                     sort services by the next column
  Ctrl-Z                stop; `fg` goes on

Columns:
  COUNT, P50, P99  times from events to their commit, and of its stages: how many, the median, and
                   the time that 99 % do not exceed; ALL is since the start of the daemon
  BEGAN/S          connections that began, per second since the last reading
  ACTIVE           answered connections that at most one side has closed
  NEW              connections without an answer yet
  ENDED            closed connections that conntrack still keeps
  ENDPOINTS        those that get new connections
  DRAINING         live connections to former endpoints
  OLDEST           age of the oldest of them; - if conntrack keeps no times

Exit codes:
  0  done
  1  there is neither a daemon nor tables that can be read, or the terminal fails

Examples:
  deltaproxy top
  deltaproxy top --once --sort active
  deltaproxy top --daemon 127.0.0.1:20249";

/// The flags of `deltaproxy top`.
#[derive(Debug, Clone, Args)]
pub struct TopFlags {
    /// Metrics port of the daemon; "" reads only the kernel
    #[arg(long, value_name = "ADDRESS", default_value = DAEMON, value_parser = daemon)]
    pub daemon: Daemon,
    /// Print one screen as text, after two reads; the default without a terminal
    #[arg(long, visible_alias = "batch")]
    pub once: bool,
    /// Time between two reads
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Sort key of services
    #[arg(long, value_name = "COLUMN", default_value = "began")]
    pub sort: Order,
}

/// The metrics port of the daemon, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Daemon(Option<SocketAddr>);

/// Default of the configuration of `run`.
const DAEMON: &str = "127.0.0.1:10249";

/// Pause after a read, in multiples of its duration: conntrack may be large, and tables are read
/// again after each commit.
const PAUSE: u32 = 3;

/// Most queued events of the terminal.
const EVENTS: usize = 16;

fn daemon(text: &str) -> Result<Daemon, String> {
    if text.is_empty() {
        return Ok(Daemon(None));
    }
    let address = listen_address::parse(text, listen_address::METRICS_PORT);
    let expected = |_| format!("expected an address such as {DAEMON}, or \"\" for no daemon");
    address.map(|address| Daemon(Some(address))).map_err(expected)
}

/// Shows the state, once or until a key or signal ends it.
///
/// # Errors
/// The first read finds neither a daemon nor tables, or the terminal fails.
pub fn top(flags: &TopFlags) -> Result<(), Failure> {
    let mut sampler = Sampler::new(flags.daemon.0);
    let order = flags.sort;
    let view = sampler.sample(order);
    if let (Err(daemon), Err(kernel)) = (&view.daemon, &view.kernel) {
        return Err(Failure::of_lines(vec![format!("no daemon: {daemon}"), kernel.clone()]));
    }
    if flags.once || !io::stdout().is_terminal() {
        thread::sleep(flags.interval);
        print(&plain(&sampler.sample(order)));
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let state = ScreenState::new(order);
    runtime.map_err(Failure::new)?.block_on(live(sampler, flags.interval, (view, state)))
}

/// Draws views as they arrive, until a key or a signal ends it.
async fn live(
    sampler: Sampler,
    interval: Duration,
    (mut view, mut state): (TopView, ScreenState),
) -> Result<(), Failure> {
    let mut stop = Box::pin(stop_signal()?);
    let mut hang_up = signal(SignalKind::hangup()).map_err(Failure::new)?;
    let (orders, wanted) = commands::channel();
    let mut views = sample(sampler, interval, (state.order, wanted))?;
    let mut screen = RawTerminal::open().map_err(Failure::new)?;
    let mut events = read_events()?;
    loop {
        screen.draw(&view, &mut state).map_err(Failure::new)?;
        let event = tokio::select! {
            _ = &mut stop => return Ok(()),
            _ = hang_up.recv() => return Ok(()),
            next = views.recv() => {
                let ended = || Failure::new("reading has ended");
                view = next.ok_or_else(ended)?;
                continue;
            }
            event = next_event(&mut events) => event,
        };
        // Without a key it is a resize.
        let Some(key) = pressed(&event) else { continue };
        match state.press(key) {
            Action::Quit => return Ok(()),
            Action::Suspend => screen.suspend().map_err(Failure::new)?,
            Action::Draw => {}
            // If the sampler has ended, the branch above detects it.
            Action::Sort(order) => drop(orders.send(order)),
        }
    }
}

/// Reads repeatedly in a thread, so that keys have an effect meanwhile.
fn sample(
    mut sampler: Sampler,
    interval: Duration,
    (mut order, wanted): (Order, commands::Receiver<Order>),
) -> Result<mpsc::Receiver<TopView>, Failure> {
    let (views, seen) = mpsc::channel(1);
    let mut next = now() + interval;
    let work = move || {
        loop {
            let view = match wanted.recv_timeout(next.saturating_duration_since(now())) {
                Ok(other) => {
                    order = other;
                    sampler.sorted(order)
                }
                Err(RecvTimeoutError::Timeout) => {
                    let start = now();
                    let view = sampler.sample(order);
                    next = now() + interval.max(start.elapsed() * PAUSE);
                    view
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if views.blocking_send(view).is_err() {
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("sampler".to_owned()).spawn(work);
    thread.map(|_| seen).map_err(Failure::new)
}

/// Starts a thread that reads events of the terminal until the program ends.
fn read_events() -> Result<mpsc::Receiver<Event>, Failure> {
    let (events, seen) = mpsc::channel(EVENTS);
    let work = move || {
        while let Ok(event) = event::read() {
            if events.blocking_send(event).is_err() {
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("events".to_owned()).spawn(work);
    thread.map(|_| seen).map_err(Failure::new)
}

/// Returns the next event; never completes if the terminal can no longer be read.
async fn next_event(events: &mut mpsc::Receiver<Event>) -> Event {
    match events.recv().await {
        Some(event) => event,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_is_where_run_serves_metrics() {
        assert_eq!(daemon(DAEMON), Ok(Daemon(Some(listen_address::DEFAULT_METRICS))));
        assert_eq!(daemon("127.0.0.1"), daemon(DAEMON));
        assert_eq!(daemon(""), Ok(Daemon(None)));
        assert!(daemon("localhost:1").unwrap_err().contains("expected an address such as"));
    }

    #[test]
    fn an_interval_is_a_tenth_of_a_second_at_least() {
        assert_eq!(interval("100ms"), Ok(Duration::from_millis(100)));
        assert!(interval("99ms").is_err() && interval("x").is_err());
    }
}
