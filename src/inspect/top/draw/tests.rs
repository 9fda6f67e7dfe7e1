//! Tests of the drawn screen.

use std::fmt::Write;
use std::num::NonZeroU64;
use std::time::Duration;

use nft::kernel::Generation;
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;

use super::*;
use crate::show::{BusyService, Counts, DrainingEndpoint, Top};
use crate::top::{ConnectionsSample, History, KernelSample, Key, Report, Sample, Scrape, Status};

const STATUS: &str = r#"{
  "version": "0.1.0", "node": "node1", "source": "API server of /etc/kubeconfig",
  "started_ms": 1000000, "now_ms": 8500000, "ready": true, "healthy": true,
  "condition": "ready, but IPv6 is not programmed\u001b", "good": false,
  "families": [
    {"family": "IPv4", "programmed": true, "blocked": null, "synced_ms": 8497000},
    {"family": "IPv6", "programmed": false, "blocked": "table ip6 kube-proxy has another owner"}
  ],
  "watches": [
    {"resource": "services", "connected": true, "heard_ms": 8499000},
    {"resource": "endpointslices.discovery.k8s.io", "connected": true, "heard_ms": 8498000},
    {"resource": "nodes", "connected": true, "heard_ms": 8490000},
    {"resource": "servicecidrs.networking.k8s.io", "connected": false, "reason": "unreachable",
     "failures": 3, "heard_ms": 8200000}
  ],
  "problems": [
    {"kind": "invalid", "object": "Service default/bad\u001b[2J", "field": "spec.clusterIP",
     "message": "\"10.96.0.300\" is no address", "present": true, "at_ms": 8438000,
     "count": 4}
  ]
}"#;

/// Returns metrics after `changes` changes: 90 % take up to 200 µs, the others up to 1 ms.
fn metrics(changes: u32) -> String {
    let mut text = format!(
        "deltaproxy_events_total {changes}\n\
         deltaproxy_transactions_total{{result=\"committed\"}} {}\n\
         deltaproxy_transaction_elements_sum {}\n\
         deltaproxy_transaction_size_bytes_sum {}\n",
        changes / 10,
        changes * 3,
        changes * 200,
    );
    for (at, (_, name, stage)) in TIMES.iter().enumerate() {
        let stage = match *stage {
            "" => String::new(),
            stage => format!(",stage=\"{stage}\""),
        };
        for (bound, percent) in [("1e-05", 0), ("0.0002", 90), ("0.001", 100), ("+Inf", 100)] {
            let count = if at == 2 { 0 } else { changes * percent / 100 };
            writeln!(text, "{name}_bucket{{le=\"{bound}\"{stage}}} {count}").unwrap();
        }
    }
    text
}

fn report(changes: u32) -> Report {
    let status = Status::parse(STATUS.as_bytes()).unwrap();
    Report { status, metrics: Scrape::parse(&metrics(changes)) }
}

/// Returns services in descending order of connections.
fn kernel(services: u32) -> KernelSample {
    let rows = (0..services).map(|n| BusyService {
        label: format!("default/web-{n}:http"),
        address: format!("10.96.0.{n}:80/tcp"),
        counts: Counts {
            active: 10 + n,
            new: 1,
            ended: 7,
            offloaded: 0,
            began: (services - n) * 5,
            oldest: None,
        },
        endpoints: 3,
        draining: 2,
    });
    let oldest = NonZeroU64::new(7_570_000_000_000);
    let draining = DrainingEndpoint {
        label: "default/web-0:http".to_owned(),
        address: "10.96.0.0:80/tcp".to_owned(),
        endpoint: "10.244.1.6:8080".to_owned(),
        counts: Counts { active: 2, oldest, ..Counts::default() },
    };
    KernelSample {
        generation: Generation(7 + services),
        frontends: 1_234,
        notes: Vec::new(),
        connections: Some(ConnectionsSample {
            services: Top { rows: rows.collect(), count: services as usize },
            draining: Top { rows: vec![draining], count: 1 },
            since: Some(Duration::from_secs(1)),
        }),
    }
}

fn sample(second: u64, daemon: Result<Report, &str>, kernel: Result<KernelSample, &str>) -> Sample {
    let (at, now) = (Duration::from_secs(second), Duration::from_secs(8_000 + second));
    Sample { at, now, daemon: daemon.map_err(str::to_owned), kernel: kernel.map_err(str::to_owned) }
}

/// Returns a daemon with 100 changes in 2 seconds, and some services with connections.
fn busy(services: u32) -> TopView {
    let mut history = History::default();
    history.add(sample(0, Ok(report(200)), Ok(kernel(0))));
    history.add(sample(2, Ok(report(300)), Ok(kernel(services))))
}

fn without_daemon() -> TopView {
    let why = "127.0.0.1:10249: Connection refused";
    let mut history = History::default();
    history.add(sample(0, Err(why), Ok(kernel(0))));
    history.add(sample(2, Err(why), Ok(kernel(2))))
}

/// Returns the lines of a terminal of this size, without trailing spaces.
fn screen((width, height): (u16, u16), view: &TopView, state: &mut ScreenState) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let lines = (0..height).map(|y| line(y).trim_end().to_owned() + "\n");
    lines.collect()
}

#[test]
fn a_wide_screen_has_everything() {
    let expected = "\
deltaproxy top  ready, but IPv6 is not programmed\\u{1b}  node node1  up 2h5m  version 0.1.0  API server of /etc/kubeconf
per second, last 2s:  changes 50.0  transactions 5.0  refused 0  elements 150  bytes 10k  failed syncs 0  problems 0

LAST 2s           COUNT     P50     P99     ALL     P50     P99    WATCH OR TABLE  STATE                             AGO
event to commit     100   116µs   920µs     300   116µs   920µs    services        connected                          1s
  parse             100   116µs   920µs     300   116µs   920µs    endpointslices  connected                          2s
  queue               0       -       -       0       -       -    nodes           connected                         10s
  compare           100   116µs   920µs     300   116µs   920µs    servicecidrs    lost: unreachable                5m0s
  encode            100   116µs   920µs     300   116µs   920µs    IPv4            programmed                         3s
  commit            100   116µs   920µs     300   116µs   920µs    IPv6            table ip6 kube-proxy has ano…   never
  acknowledge       100   116µs   920µs     300   116µs   920µs

SERVICE (2)         ADDRESS           BEGAN/S  ACTIVE     NEW   ENDED  ENDPOINTS  DRAINING
default/web-0:http  10.96.0.0:80/tcp     10.0      10       1       7          3         2
default/web-1:http  10.96.0.1:80/tcp      5.0      11       1       7          3         2

DRAINING ENDPOINT (1)  SERVICE             ADDRESS           CONNECTIONS  OLDEST
10.244.1.6:8080        default/web-0:http  10.96.0.0:80/tcp            2   7m12s

PROBLEM (1)                   STATE       AGO   TIMES  FIELD           WHY
Service default/bad\\u{1b}[2J  present    1m2s       4  spec.clusterIP  \"10.96.0.300\" is no address


q quit  Tab list: services  Up/Down scroll  s sort: began/s
";
    assert_eq!(screen((120, 24), &busy(2), &mut ScreenState::default()), expected);
}

#[test]
fn a_narrow_screen_has_fewer_columns() {
    let expected = "\
deltaproxy top  ready, but IPv6 is not programmed\\u{1b}  node node1  up 2h5m  ve
per second, last 2s:  changes 50.0  transactions 5.0  refused 0  elements 150  b

LAST 2s           COUNT     P50     P99    WATCH OR TABLE  STATE             AGO
event to commit     100   116µs   920µs    services        connected          1s
  parse             100   116µs   920µs    endpointslices  connected          2s
  queue               0       -       -    nodes           connected         10s
  compare           100   116µs   920µs    servicecidrs    lost: unreac…    5m0s
  encode            100   116µs   920µs    IPv4            programmed         3s
  commit            100   116µs   920µs    IPv6            table ip6 ku…   never
  acknowledge       100   116µs   920µs

SERVICE (1-4 of 30)  BEGAN/S  ACTIVE     NEW  ENDPOINTS  DRAINING
default/web-0:http       150      10       1          3         2
default/web-1:http       145      11       1          3         2
default/web-2:http       140      12       1          3         2
default/web-3:http       135      13       1          3         2

DRAINING ENDPOINT (1)  SERVICE             CONNECTIONS  OLDEST
10.244.1.6:8080        default/web-0:http            2   7m12s

PROBLEM (1)         STATE       AGO   TIMES  FIELD           WHY
Service default/b…  present    1m2s       4  spec.clusterIP  \"10.96.0.300\" is n…
q quit  Tab list: services  Up/Down scroll  s sort: began/s
";
    assert_eq!(screen((80, 24), &busy(30), &mut ScreenState::default()), expected);
}

#[test]
fn without_a_daemon_the_kernel_is_shown() {
    let expected = "\
deltaproxy top  1234 addresses of services in the tables
no daemon: 127.0.0.1:10249: Connection refused; the screen has what the kernel holds
per second, last 2s:  commits of all programs 1.0

SERVICE (2)         ADDRESS           BEGAN/S  ACTIVE     NEW   ENDED  ENDPOINTS  DRAINING
default/web-0:http  10.96.0.0:80/tcp     10.0      10       1       7          3         2
default/web-1:http  10.96.0.1:80/tcp      5.0      11       1       7          3         2

DRAINING ENDPOINT (1)  SERVICE             ADDRESS           CONNECTIONS  OLDEST
10.244.1.6:8080        default/web-0:http  10.96.0.0:80/tcp            2   7m12s

q quit  Tab list: services  Up/Down scroll  s sort: began/s
";
    assert_eq!(screen((100, 12), &without_daemon(), &mut ScreenState::default()), expected);
}

#[test]
fn a_lost_daemon_is_shown_without_its_values_and_starts_anew() {
    let mut history = History::default();
    history.add(sample(0, Ok(report(200)), Ok(kernel(1))));
    let lost = history.add(sample(2, Err("gone"), Ok(kernel(1))));
    assert!(lost.daemon.is_err() && rates(&lost).is_some());
    let back = history.add(sample(4, Ok(report(300)), Ok(kernel(1))));
    assert_eq!(back.daemon.as_ref().unwrap().rates, None, "nothing is known of the time between");
    let next = history.add(sample(6, Ok(report(320)), Ok(kernel(1))));
    assert_eq!(next.daemon.as_ref().unwrap().rates.unwrap()[0], 10.0);
    let restarted = history.add(sample(8, Ok(report(10)), Ok(kernel(1))));
    assert_eq!(restarted.daemon.as_ref().unwrap().rates, None);
    let next = history.add(sample(10, Ok(report(30)), Ok(kernel(1))));
    assert_eq!(next.daemon.as_ref().unwrap().rates.unwrap()[0], 10.0);
}

#[test]
fn plain_text_has_the_first_rows_and_no_keys() {
    let text = plain(&busy(30));
    let services = text.lines().filter(|line| line.starts_with("default/web-")).count();
    assert_eq!(services, PLAIN.1);
    assert!(text.contains("\nSERVICE (1-20 of 30) "), "{text}");
    assert!(!text.contains("Tab") && !text.contains('\u{1b}'), "{text}");
    assert!(text.contains("Service default/bad\\u{1b}[2J "), "{text}");
    assert!(text.ends_with("\"10.96.0.300\" is no address\n"), "{text}");
}

/// Sizes around each change of the layout.
const SIZES: [u16; 9] = [0, 1, 2, 5, 9, 14, 23, 60, 101];

#[test]
fn every_size_is_drawn_and_every_list_can_be_scrolled_to_its_end() {
    let views = [busy(300), busy(0), without_daemon()];
    for view in &views {
        for (width, height) in SIZES.into_iter().flat_map(|w| SIZES.map(|h| (w, h))) {
            let mut state = ScreenState::default();
            for key in [Key::End, Key::Next, Key::PageDown, Key::Next, Key::Down, Key::Sort] {
                screen((width, height), view, &mut state);
                state.press(key);
            }
        }
    }
    let mut state = ScreenState::default();
    state.press(Key::End);
    let text = screen((120, 40), &views[0], &mut state);
    assert!(text.contains("-200 of 300)"), "{text}");
    assert!(text.contains("default/web-199:http"), "{text}");
    state.press(Key::Home);
    assert!(screen((120, 40), &views[0], &mut state).contains("SERVICE (1-"));
}

#[test]
fn lists_share_what_is_left_and_the_focus_has_the_most() {
    for (left, lengths, focus, expected) in [
        (40, [Some(100), Some(1), Some(2)], 0, [31, 1, 2]),
        (40, [Some(100), Some(50), Some(50)], 1, [3, 28, 3]),
        (40, [Some(2), Some(3), Some(4)], 2, [2, 3, 4]),
        (14, [Some(100), Some(50), Some(50)], 2, [3, 2, 3]),
        (8, [Some(100), None, None], 0, [6, 0, 0]),
        (3, [Some(100), Some(9), Some(9)], 0, [0, 0, 0]),
    ] {
        assert_eq!(heights(left, lengths, focus), expected, "{left} {lengths:?}");
    }
}
