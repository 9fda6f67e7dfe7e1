//! `verify`: compares the kernel's tables with the objects, without changes.

mod differences;

use std::thread;
use std::time::Duration;

use engine::Engine;
use nft::TableFlags;
use nft::kernel::{Kernel, Nftables};
use serde_json::json;

use self::differences::Differences;
use super::api_server::Followed;
use super::failure::Failure;
use super::localhost;
use super::objects::load_objects;
use super::outcome::Compared;
use super::output::{Output, print};
use super::read_tables::read_tables;
use super::settings::Settings;

/// Time before a second comparison: a daemon may commit the difference soon.
const SECOND_COMPARISON_AFTER: Duration = Duration::from_secs(1);

/// Prints the differences by service. Parts of objects that were left out are logged and are no
/// difference.
///
/// # Errors
/// The objects or the tables cannot be read.
pub fn verify(settings: &Settings, output: Output) -> Result<Compared, Failure> {
    let config = &settings.config;
    let mut kernel = Nftables::open().map_err(Failure::new)?;
    let mut engine = Engine::new(config.routing.clone(), TableFlags::default());
    engine.suit_kernel(kernel.release());
    let (mut followed, mut problems) = load_objects(&mut engine, config, false)?;
    settings.report(&engine);
    problems.extend(localhost::check(&mut engine).err());
    let max_batch = kernel.max_batch();
    observe(&mut engine, &mut kernel)?;
    let mut differences = Differences::collect(&mut engine, max_batch);
    if !differences.is_empty() {
        thread::sleep(SECOND_COMPARISON_AFTER);
        if let Some(followed) = &mut followed {
            followed.catch_up(&mut engine);
        }
        observe(&mut engine, &mut kernel)?;
        differences.retain(&Differences::collect(&mut engine, max_batch));
    }
    problems.extend(followed.into_iter().flat_map(Followed::left_out));
    problems.extend(engine.take_problems().iter().map(ToString::to_string));
    problems.sort_unstable();
    problems.dedup();
    show(&differences, (settings, &engine), &problems, output);
    Ok(if differences.is_empty() { Compared::Equal } else { Compared::Different })
}

/// Reads the tables into the engine.
fn observe(engine: &mut Engine, kernel: &mut Nftables) -> Result<(), Failure> {
    let found = read_tables(engine, kernel)?;
    engine.accept_missing_flowtables(&found);
    engine.replace_installed_state(found);
    Ok(())
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
