//! Follows the network devices of this namespace on a thread.

use std::time::Duration;
use std::{io, thread};

use engine::LinkNews;
use network::{LinkListener, list_links};
use tokio::sync::mpsc::Sender;

/// Time between a failure and the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Starts a thread in the network namespace of the calling thread. It sends all devices and then
/// their changes to `news`, until the receiver is dropped.
///
/// # Errors
/// The error of the system if it cannot start a thread.
pub fn follow_links(news: Sender<LinkNews>) -> io::Result<()> {
    thread::Builder::new().name("devices".into()).spawn(move || {
        while !news.is_closed() {
            if let Err(error) = follow(&news) {
                tracing::warn!("cannot follow the network devices: {error}; trying again");
                thread::sleep(RETRY_AFTER);
            }
        }
    })?;
    Ok(())
}

/// Sends devices until the receiver is dropped.
fn follow(news: &Sender<LinkNews>) -> io::Result<()> {
    let mut listener = LinkListener::open()?;
    let mut sent = news.blocking_send(LinkNews::All(list_links()?));
    while sent.is_ok() && !news.is_closed() {
        // Without changes it returns now and then, to detect that the receiver is dropped.
        if let Some(changes) = listener.next_news()? {
            sent = news.blocking_send(changes);
        }
    }
    Ok(())
}
