//! Packets a second that come through entry and serving node.
//!
//! One thread sends as fast as it can, and another one receives. Only packets that arrive count.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Flows;

/// Duration of one measurement.
const TURN: Duration = Duration::from_millis(300);

/// Packets between two looks at the clock.
const BURST: usize = 64;

/// What a second's packets are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Requests that come to the server.
    Requests,
    /// Answers that come to the clients. The server answers each request.
    Answers,
}

impl Load {
    pub(crate) const ALL: [Self; 2] = [Self::Requests, Self::Answers];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests that another node serves",
            Self::Answers => "answers to such requests",
        }
    }
}

impl Flows<'_> {
    /// Sends for a while; returns the packets that came in a second.
    pub(crate) fn rate(&self, load: Load) -> f64 {
        let is_over = AtomicBool::new(false);
        let start = Instant::now();
        let count = thread::scope(|scope| {
            let server = scope.spawn(|| self.serve(load, &is_over));
            let mut answers = 0;
            while start.elapsed() < TURN {
                for number in 0..BURST {
                    let (client, _) = &self.there[number % self.there.len()];
                    // A full queue drops it.
                    let _ = client.send(b"bench");
                }
                answers += self.receive();
            }
            is_over.store(true, Ordering::Relaxed);
            let requests = server.join().unwrap();
            match load {
                Load::Requests => requests,
                Load::Answers => answers,
            }
        });
        let time = start.elapsed();
        self.way.drain();
        self.receive();
        f64::from(count) / time.as_secs_f64()
    }

    /// Receives requests, and answers them if answers count; returns their number.
    fn serve(&self, load: Load, is_over: &AtomicBool) -> u32 {
        let server = &self.way.servers[1];
        let mut count = 0;
        while !is_over.load(Ordering::Relaxed) {
            let Ok((_, client)) = server.recv_from(&mut [0; 8]) else {
                thread::yield_now();
                continue;
            };
            count += 1;
            if matches!(load, Load::Answers) {
                let _ = server.send_to(b"bench", client);
            }
        }
        count
    }

    /// Receives the answers that wait; returns their number.
    fn receive(&self) -> u32 {
        let received = |(client, _): &(std::net::UdpSocket, _)| client.recv(&mut [0; 8]).is_ok();
        let mut count = 0;
        for flow in &self.there {
            while received(flow) {
                count += 1;
            }
        }
        count
    }
}
