//! Parses the command, builds the parts, runs.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, FromArgMatches};
use deltaproxy::cli::{
    self, Cli, Command, ConfigCommand, End, Failure, Input, Log, Outcome, Output, Planned,
};
use deltaproxy::config::Config;
use deltaproxy::config::flags::{OnceFlags, RunFlags};
use deltaproxy::observe::Startup;

/// `.cargo/config.toml` has its settings.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut log = Log::Direct;
    let Outcome { mut code, failure, restart } = match kube_proxy_arguments() {
        Some(arguments) => cli::kube_proxy(arguments, &mut log).into(),
        None => {
            let matches = Cli::command().get_matches();
            let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
            execute(cli.command, cli::listed_flags(&Cli::command(), &matches), &mut log)
        }
    };
    log.end(failure);
    if restart {
        code = 1;
        Log::Direct.end(Some(cli::restart()));
    }
    code.into()
}

/// Returns the arguments if they are kube-proxy's: the program has that name, or the first argument
/// is a flag.
fn kube_proxy_arguments() -> Option<Vec<String>> {
    let mut arguments = std::env::args_os().map(|it| it.to_string_lossy().into_owned());
    let program = arguments.next().unwrap_or_default();
    let arguments: Vec<_> = arguments.collect();
    let named = Path::new(&program).file_name().is_some_and(|name| name == "kube-proxy");
    let ours = ["-h", "--help", "-V", "--version"];
    let flags = arguments.first().is_some_and(|it| it.starts_with('-') && !ours.contains(&&**it));
    (named || flags).then_some(arguments)
}

fn execute(command: Command, listed: Vec<(String, String)>, log: &mut Log) -> Outcome {
    match command {
        Command::Run(flags) => run(flags, listed, log).into(),
        Command::Apply { flags, output } => apply(&flags, output, log).into(),
        Command::Plan { flags, output } => plan(&flags, output, log).into(),
        Command::Cleanup => cli::cleanup().into(),
        Command::Config(ConfigCommand::Check { file }) => cli::check_config(file).into(),
        Command::Bench(flags) => cli::bench(&flags).into(),
    }
}

fn run(flags: RunFlags, listed: Vec<(String, String)>, log: &mut Log) -> Result<End, Failure> {
    let flags = Arc::new(flags);
    let own = Arc::clone(&flags);
    let startup =
        |config: &Config| Ok(Startup { configuration: flags.effective(config)?, flags: listed });
    cli::run(Box::new(move || own.load()), flags.has_file(), startup, log)
}

fn apply(flags: &OnceFlags, output: Output, log: &mut Log) -> Result<(), Failure> {
    let config = once(flags, log)?;
    cli::apply(&input(flags, &config), config.routing.clone(), output)
}

fn plan(flags: &OnceFlags, output: Output, log: &mut Log) -> Result<Planned, Failure> {
    let config = once(flags, log)?;
    cli::plan(&input(flags, &config), config.routing.clone(), output)
}

/// The configuration of a command that ends by itself, and its log.
fn once(flags: &OnceFlags, log: &mut Log) -> Result<Config, Failure> {
    let loaded = flags.load().map_err(Failure::new)?;
    *log = Log::start(loaded.config.log);
    Ok(cli::noted(loaded))
}

fn input<'a>(flags: &'a OnceFlags, config: &'a Config) -> Input<'a> {
    Input { path: &flags.manifests, node: &config.node_name, allow_empty: flags.allow_empty }
}
