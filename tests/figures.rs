//! Figures of the documents: each stands in a row of docs/performance.md, and others repeat it.

#![allow(clippy::unwrap_used)] // An unreadable page is a failed test.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The sizes that the tables compare, in services.
const SIZES: [&str; 2] = ["1,000", "50,000"];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)).unwrap()
}

/// The rows of the first table below a heading: their cells.
fn table<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, below) = page.split_once(&format!("\n{heading}\n")).unwrap();
    let lines = below.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// What was measured, as written: the median, 99 of 100 and the longest, or one number.
#[derive(Debug)]
struct Figure<'a> {
    numbers: Vec<&'a str>,
    unit: &'a str,
}

impl Figure<'_> {
    /// The first numbers with the unit, as the documents repeat them.
    fn shown(&self, count: usize) -> String {
        let numbers = self.numbers[..count].join(" / ");
        format!("{numbers} {}", self.unit).trim_end().to_owned()
    }

    fn number(&self, place: usize) -> f64 {
        number(self.numbers[place])
    }
}

fn number(text: &str) -> f64 {
    text.replace(',', "").parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

/// The figures of the results, for each of [`SIZES`].
fn all_rows(page: &str) -> HashMap<&str, [Figure<'_>; 2]> {
    let rows = table(page, "## Results").into_iter();
    let rows = rows.map(|row| {
        let unit = if row[1] == "us" { "µs" } else { row[1] };
        let figure = |cell: usize| Figure { numbers: row[cell].split(" / ").collect(), unit };
        (row[0], [figure(2), figure(3)])
    });
    rows.collect()
}

/// Where figures miss a goal such as `median < 150 µs, growth < 2` or `0`, in words.
fn missed(goal: &str, figures: &[Figure<'_>; 2]) -> Vec<String> {
    let mut missed: [Vec<&str>; 2] = Default::default();
    let mut grows = false;
    for condition in goal.split(", ") {
        // A goal without `<` is the number itself.
        let (what, limit) = condition.split_once("< ").unwrap_or(("", condition));
        let is_exact = !condition.contains('<');
        let (limit, unit) = limit.split_once(' ').unwrap_or((limit, ""));
        let place = match what.trim_end() {
            "" | "median" => 0,
            "p99" => 1,
            "growth" => {
                grows = figures[1].number(0) / figures[0].number(0) >= number(limit);
                continue;
            }
            other => panic!("{other} is no figure"),
        };
        for (size, figure) in figures.iter().enumerate() {
            assert_eq!(figure.unit, unit, "{goal}");
            let (figure, limit) = (figure.number(place), number(limit));
            let is_missed = if is_exact { figure != limit } else { figure >= limit };
            if is_missed {
                missed[size].push(what.trim_end());
            }
        }
    }
    let at_sizes = missed.iter().zip(SIZES).filter(|(missed, _)| !missed.is_empty());
    let mut words: Vec<_> = at_sizes
        .map(|(missed, size)| format!("{} at {size}", missed.join(" and ")).trim_start().to_owned())
        .collect();
    words.extend(grows.then(|| "growth".to_owned()));
    words
}

#[test]
fn the_goals_missed_are_those_that_the_results_miss() {
    let page = read("docs/performance.md");
    let rows = all_rows(&page);
    let mut goals = 0;
    let mut expected = Vec::new();
    for cells in table(&page, "## Results") {
        let (row, goal) = (cells[0], cells[5]);
        if goal == "-" {
            continue;
        }
        goals += 1;
        let missed = missed(goal, &rows[row]).join(", ");
        if !missed.is_empty() {
            expected.push((row, goal, missed));
        }
    }
    assert!(goals > 10, "{goals} goals");
    let named = table(&page, "## Goals missed").into_iter();
    // Goals of other measurements are in their sections.
    let named = named.filter(|cells| rows.contains_key(cells[0]));
    let named: Vec<_> = named.map(|cells| (cells[0], cells[1], cells[2].to_owned())).collect();
    assert_eq!(named, expected);
}

#[test]
fn a_goal_is_missed_where_a_figure_reaches_its_limit() {
    let figure = |numbers: [&'static str; 2]| Figure { numbers: numbers.to_vec(), unit: "µs" };
    let figures = [figure(["100", "500"]), figure(["1,000", "400"])];
    assert_eq!(missed("median < 200 µs, p99 < 501 µs", &figures), ["median at 50,000"]);
    let goal = "median < 100 µs, p99 < 500 µs, growth < 10";
    let words = ["median and p99 at 1,000", "median at 50,000", "growth"];
    assert_eq!(missed(goal, &figures), words);
    assert!(missed("< 1,001 µs, growth < 10.1", &figures).is_empty());
    assert_eq!(missed("100 µs", &figures), ["at 50,000"]);
}

#[test]
fn the_readme_repeats_the_rows() {
    let (page, readme) = (read("docs/performance.md"), read("README.md"));
    let rows = all_rows(&page);
    let shown = table(&readme, "## Measured");
    assert!(shown.len() > 3, "{shown:?}");
    for cells in shown {
        let [row, small, large] = cells[..] else { panic!("{cells:?}") };
        let figures = rows.get(row).unwrap_or_else(|| panic!("there is no row {row}"));
        assert_eq!([small, large], [figures[0].shown(1), figures[1].shown(1)], "{row}");
    }
}

/// The first number of a row in the output of the run beside kube-proxy's layout.
fn beside(page: &str, row: &str) -> f64 {
    let (_, below) = page.split_once("\n## Beside kube-proxy's layout\n").unwrap();
    let line = below.lines().find_map(|line| line.strip_prefix(row)?.strip_prefix(", "));
    let line = line.unwrap_or_else(|| panic!("there is no row {row}"));
    number(line.split_whitespace().nth(1).unwrap())
}

#[test]
fn the_readme_compares_rows_of_one_run_with_kube_proxys_layout() {
    let (page, readme) = (read("docs/performance.md"), read("README.md"));
    let ratio = |theirs: &str, ours: &str| beside(&page, theirs) / beside(&page, ours);
    let change =
        ratio("endpoint change: kube-proxy's layout by nft", "endpoint change: all stages");
    let load = ratio("kube-proxy's layout: all loaded", "empty table: all loaded");
    let packet = ratio(
        "UDP through kube-proxy's layout: first packet",
        "UDP through services: first packet",
    );
    for words in [
        format!("{change:.0} times as long for a change of one endpoint"),
        format!("{load:.0} times as long for all services"),
        format!("the same time within {:.0} %", ((packet - 1.0).abs() * 100.0).ceil()),
    ] {
        assert!(readme.contains(&words), "{words}");
    }
}
