//! How evenly long connections spread over endpoints that join empty: the figures in
//! docs/schedulers.md.
//!
//! Nodes choose among ten endpoints, the last two of which join late. Each node knows its own
//! connections only, as IPVS does. The shares of scheduler `lc` are adjusted by the function of the
//! daemon.
#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use engine::model::{EVEN, Load, adjust};

/// Endpoints from the start, and all of them.
const OLD: usize = 8;
const ALL: usize = 10;

/// When the newcomers join, and when the simulation ends, in seconds.
const JOIN: f64 = 3_000.0;
const END: f64 = 4_200.0;

/// Nodes, and connections that all of them begin in a second.
const NODES: usize = 3;
const RATE: f64 = 20.0;

/// Connections that last long, and the mean times of long and short ones.
const LONG: f64 = 0.2;
const LONG_TIME: f64 = 600.0;
const SHORT_TIME: f64 = 5.0;

/// Between two counts of connections, in seconds.
const LOOK: f64 = 5.0;

/// How a node chooses.
#[derive(Clone, Copy)]
enum Chooser {
    Random,
    LeastConnections,
    /// By shares that follow live connections.
    Shares,
}

/// Random numbers (splitmix64).
struct Random(u64);

impl Random {
    /// From 0 to below 1.
    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let upper = u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap_or(u32::MAX);
        f64::from(upper) / (f64::from(u32::MAX) + 1.0)
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
    fn below(&mut self, limit: usize) -> usize {
        (self.part() * limit as f64) as usize
    }
}

/// The connections and shares of a node, by endpoint.
#[derive(Clone)]
struct Node([Load; ALL]);

impl Node {
    fn choose(&self, chooser: Chooser, endpoints: usize, random: &mut Random) -> usize {
        match chooser {
            Chooser::Random => random.below(endpoints),
            Chooser::LeastConnections => {
                (0..endpoints).min_by_key(|i| self.0[*i].live).unwrap_or(0)
            }
            Chooser::Shares => {
                let usable = &self.0[..endpoints];
                let mut left = random.below(usable.iter().map(|it| usize::from(it.share)).sum());
                let hit = usable.iter().position(|load| {
                    let is_hit = left < usize::from(load.share);
                    left = left.saturating_sub(load.share.into());
                    is_hit
                });
                hit.unwrap_or(0)
            }
        }
    }
}

/// Deviation on average, largest part of one newcomer in an interval, time until both had 80 %.
fn simulate(chooser: Chooser) -> (f64, f64, f64) {
    let mut random = Random(7);
    let mut nodes: Vec<Node> = vec![Node([Load { live: 0, weight: 1, share: EVEN }; ALL]); NODES];
    let mut ends = BinaryHeap::<Reverse<(u32, usize, usize)>>::new();
    let (mut time, mut next_look) = (0.0, LOOK);
    let (mut deviations, mut peak, mut reached) = (Vec::new(), 0.0_f64, f64::NAN);
    let mut begun = [0.0; ALL];
    while time < END {
        time += lasting(1.0 / RATE, &mut random);
        while let Some(Reverse((end, node, endpoint))) = ends.peek().copied() {
            if f64::from(end) / 1_000.0 > time {
                break;
            }
            ends.pop();
            nodes[node].0[endpoint].live -= 1;
        }
        let endpoints = if time < JOIN { OLD } else { ALL };
        while next_look <= time {
            next_look += LOOK;
            if matches!(chooser, Chooser::Shares) {
                for node in &mut nodes {
                    adjust(&mut node.0[..endpoints], usize::MAX);
                }
            }
            if time >= JOIN {
                let sum =
                    |i: usize| nodes.iter().map(|node| f64::from(node.0[i].live)).sum::<f64>();
                let mean = (0..ALL).map(sum).sum::<f64>() / ALL as f64;
                let squares: f64 = (0..ALL).map(|i| (sum(i) - mean).powi(2)).sum();
                deviations.push((squares / ALL as f64).sqrt() / mean);
                if reached.is_nan() && (OLD..ALL).all(|i| sum(i) >= 0.8 * mean) {
                    reached = time - JOIN;
                }
                let all: f64 = begun.iter().sum();
                peak = begun[OLD..].iter().map(|it| it / all.max(1.0)).fold(peak, f64::max);
            }
            begun = [0.0; ALL];
        }
        let node = random.below(NODES);
        let endpoint = nodes[node].choose(chooser, endpoints, &mut random);
        nodes[node].0[endpoint].live += 1;
        begun[endpoint] += 1.0;
        let mean = if random.part() < LONG { LONG_TIME } else { SHORT_TIME };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds")]
        let end = ((time + lasting(mean, &mut random)) * 1_000.0) as u32;
        ends.push(Reverse((end, node, endpoint)));
    }
    (deviations.iter().sum::<f64>() / deviations.len() as f64, peak, reached)
}

/// A time with this mean, exponentially distributed.
fn lasting(mean: f64, random: &mut Random) -> f64 {
    -mean * (1.0 - random.part()).ln()
}

fn main() {
    for (name, chooser) in [
        ("random", Chooser::Random),
        ("lc, every 5 s", Chooser::Shares),
        ("lc of IPVS", Chooser::LeastConnections),
    ] {
        let (deviation, peak, reached) = simulate(chooser);
        println!(
            "{name:20} deviation {:4.1} %  peak {:2.0} %  80 % after {reached:4.0} s",
            100.0 * deviation,
            100.0 * peak
        );
    }
}
