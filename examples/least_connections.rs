//! How evenly long connections spread over endpoints that join empty: the figures in
//! docs/schedulers.md.
//!
//! Nodes choose among ten endpoints, the last two of which join late. Each node knows its own
//! connections only, as IPVS does.
#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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

/// Between two looks at connections, in seconds.
const LOOK: f64 = 5.0;

/// How a node chooses.
#[derive(Clone, Copy)]
enum Chooser {
    Random,
    LeastConnections,
    /// By weights that change by this factor at most with each look, to the ratio of mean and own
    /// connections to this power.
    Weights(f64, f64),
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

/// The connections and weights of a node, by endpoint.
#[derive(Clone)]
struct Node {
    live: [f64; ALL],
    weights: [f64; ALL],
}

impl Node {
    fn choose(&self, chooser: Chooser, endpoints: usize, random: &mut Random) -> usize {
        match chooser {
            Chooser::Random => random.below(endpoints),
            Chooser::LeastConnections => {
                let fewest = (0..endpoints).min_by(|a, b| self.live[*a].total_cmp(&self.live[*b]));
                fewest.unwrap_or(0)
            }
            Chooser::Weights(..) => {
                // Slots are whole: eight for an endpoint like the others.
                let slots = |weight: &f64| (weight * 8.0).round().max(1.0);
                let all: f64 = self.weights[..endpoints].iter().map(slots).sum();
                let mut left = random.part() * all;
                let hit = self.weights[..endpoints].iter().position(|weight| {
                    left -= slots(weight);
                    left < 0.0
                });
                hit.unwrap_or(0)
            }
        }
    }

    fn look(&mut self, bound: f64, power: f64, endpoints: usize) {
        let mean = self.live[..endpoints].iter().sum::<f64>() / endpoints as f64;
        for (live, weight) in self.live.iter().zip(&mut self.weights).take(endpoints) {
            let wanted = ((mean + 2.0) / (live + 2.0)).powf(power).clamp(0.125, 8.0);
            *weight *= (wanted / *weight).clamp(1.0 / bound, bound);
        }
    }
}

/// Deviation on average, largest part of one newcomer in a look, and when both newcomers had 80 %.
fn simulate(chooser: Chooser) -> (f64, f64, f64) {
    let mut random = Random(7);
    let mut nodes = vec![Node { live: [0.0; ALL], weights: [1.0; ALL] }; NODES];
    let mut ends = BinaryHeap::new();
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
            let node: &mut Node = &mut nodes[node];
            node.live[endpoint] -= 1.0;
        }
        let endpoints = if time < JOIN { OLD } else { ALL };
        while next_look <= time {
            next_look += LOOK;
            if let Chooser::Weights(bound, power) = chooser {
                nodes.iter_mut().for_each(|node| node.look(bound, power, endpoints));
            }
            if time >= JOIN {
                let sum = |i: usize| nodes.iter().map(|node| node.live[i]).sum::<f64>();
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
        nodes[node].live[endpoint] += 1.0;
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
        ("weights, a quarter", Chooser::Weights(1.25, 1.0)),
        ("weights, half", Chooser::Weights(1.5, 2.0)),
        ("lc", Chooser::LeastConnections),
    ] {
        let (deviation, peak, reached) = simulate(chooser);
        println!(
            "{name:20} deviation {:4.1} %  peak {:2.0} %  80 % after {reached:4.0} s",
            100.0 * deviation,
            100.0 * peak
        );
    }
}
