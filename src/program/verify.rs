//! `verify`: compares the kernel's tables with the objects, without changes.

mod differences;

use std::thread;
use std::time::Duration;

use engine::Engine;
use engine::routing::Routing;
use nft::TableFlags;
use nft::kernel::Nftables;
use serde_json::json;

use self::differences::Differences;
use super::api_server::Followed;
use super::comparison::Comparison;
use super::failure::Failure;
use super::localhost;
use super::objects::load_objects;
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
    let config = &settings.config;
    let mut kernel = Nftables::open().map_err(Failure::new)?;
    let mut engine = Engine::new(config.routing.clone(), TableFlags::default());
    engine.suit_kernel(kernel.release());
    let (mut followed, mut problems) = load_objects(&mut engine, config, false)?;
    settings.report(&engine);
    problems.extend(localhost::check(&mut engine).err());
    let routing = &config.routing;
    let mut differences = collect(&mut engine, &mut kernel, routing)?;
    if !differences.is_empty() {
        thread::sleep(SECOND_COMPARISON_AFTER);
        if let Some(followed) = &mut followed {
            followed.catch_up(&mut engine);
        }
        differences.retain(&collect(&mut engine, &mut kernel, routing)?);
    }
    problems.extend(followed.into_iter().flat_map(Followed::left_out));
    problems.extend(engine.take_problems().iter().map(ToString::to_string));
    problems.sort_unstable();
    problems.dedup();
    show(&differences, (settings, &engine), &problems, output);
    Ok(Found::if_any(!differences.is_empty()))
}

/// Reads the tables, and collects the changes that a daemon would send.
fn collect(
    engine: &mut Engine,
    kernel: &mut Nftables,
    routing: &Routing,
) -> Result<Differences, Failure> {
    let direct_return = routing.direct_return.as_ref();
    let accept = |engine: &mut Engine, found: &_| engine.accept_missing_flowtables(found);
    let mut differences = Differences::default();
    let mut comparison = Comparison { engine, kernel, direct_return, accept };
    comparison.changes(&mut |change| differences.add(change))?;
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
