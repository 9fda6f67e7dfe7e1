//! `verify`: compares the kernel's tables with the objects, without changes.

mod differences;

use std::thread;
use std::time::Duration;

use engine::Engine;
use serde_json::json;

use self::differences::Differences;
use super::comparison::changes;
use super::failure::Failure;
use super::objects::Loaded;
use super::outcome::Found;
use super::output::{Output, print};
use super::settings::Settings;

/// Time before a second comparison: a daemon may commit the difference soon.
const SECOND_COMPARISON_AFTER: Duration = Duration::from_secs(1);

/// Prints the differences by service. Parts of objects that were left out are logged and are no
/// difference.
///
/// # Errors
/// The objects or the tables cannot be read.
pub fn verify(settings: &Settings, output: Output) -> Result<Found, Failure> {
    let mut loaded = Loaded::new(settings, false)?;
    settings.report(&loaded.engine);
    let mut differences = collect(&mut loaded, settings)?;
    if !differences.is_empty() {
        thread::sleep(SECOND_COMPARISON_AFTER);
        if let Some(followed) = &mut loaded.followed {
            followed.catch_up(&mut loaded.engine);
        }
        differences.retain(&collect(&mut loaded, settings)?);
    }
    let mut problems = loaded.left_out();
    problems.sort_unstable();
    problems.dedup();
    show(&differences, (settings, &loaded.engine), &problems, output);
    Ok(Found::if_any(!differences.is_empty()))
}

/// Reads the tables, and collects the changes that a daemon would send.
fn collect(loaded: &mut Loaded, settings: &Settings) -> Result<Differences, Failure> {
    let mut differences = Differences::default();
    let accept = Engine::accept_missing_flowtables;
    changes(loaded, settings, accept, &mut |change| differences.add(change))?;
    Ok(differences)
}

fn show(
    differences: &Differences,
    (settings, engine): (&Settings, &Engine),
    problems: &[String],
    output: Output,
) {
    let services = engine.cluster().service_count();
    match output {
        Output::Text => {
            problems.iter().for_each(|problem| tracing::warn!("left out: {problem}"));
            let differing = differences.services();
            print(&differences);
            print(&if differences.is_empty() {
                format!("the tables are as desired: {services} services\n")
            } else {
                format!("{differing} of {services} services differ\n")
            });
        }
        Output::Json => {
            let mut document = differences.json();
            document["count"] = services.into();
            document["problems"] = json!(problems);
            document["settings"] = settings.json(engine);
            print(&format_args!("{document}\n"));
        }
    }
}
