//! Parses the command, builds the parts, runs.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, FromArgMatches};
use daemon::config::command_flags::{OnceFlags, PlanFlags, RunFlags, VerifyFlags};
use daemon::config::{Config, Loaded};
use daemon::observe::Startup;
use deltaproxy::{
    Cli, Command, ConfigCommand, End, Exit, Failure, Found, Log, Origin, Output, PlanView, Settings,
};

/// `.cargo/config.toml` has its settings.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut log = Log::Direct;
    let Exit { mut code, failure, restart } = match (plugin_arguments(), kube_proxy_arguments()) {
        (Some(arguments), _) => deltaproxy::kubectl(arguments),
        (None, Some(arguments)) => deltaproxy::kube_proxy(arguments, &mut log).into(),
        (None, None) => match Cli::command().try_get_matches() {
            Ok(matches) => {
                let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
                let listed = deltaproxy::listed_flags(&Cli::command(), &matches);
                // A daemon would keep them.
                drop(matches);
                execute(cli.command, listed, &mut log)
            }
            Err(error) if error.use_stderr() => error.exit(),
            Err(help) => {
                deltaproxy::print_help(&help);
                Ok::<_, Failure>(()).into()
            }
        },
    };
    log.end(failure);
    if restart {
        code = 1;
        Log::Direct.end(Some(deltaproxy::restart()));
    }
    code.into()
}

/// Returns the arguments if kubectl runs the program as its plugin.
fn plugin_arguments() -> Option<Vec<String>> {
    let mut arguments = std::env::args_os().map(|it| it.to_string_lossy().into_owned());
    is_named(&arguments.next()?, "kubectl-deltaproxy").then(|| arguments.collect())
}

fn is_named(program: &str, name: &str) -> bool {
    Path::new(program).file_name().is_some_and(|it| it == name)
}

/// Returns the arguments if they are kube-proxy's: the program has that name, the first argument is
/// a flag, or a pod starts it without any.
fn kube_proxy_arguments() -> Option<Vec<String>> {
    let mut arguments = std::env::args_os().map(|it| it.to_string_lossy().into_owned());
    let program = arguments.next().unwrap_or_default();
    let arguments: Vec<_> = arguments.collect();
    let named = is_named(&program, "kube-proxy");
    let ours = ["-h", "--help", "-V", "--version"];
    let flags = arguments.first().is_some_and(|it| it.starts_with('-') && !ours.contains(&&**it));
    let in_pod = arguments.is_empty() && deltaproxy::is_in_pod();
    (named || flags || in_pod).then_some(arguments)
}

fn execute(command: Command, listed: Vec<(String, String)>, log: &mut Log) -> Exit {
    match command {
        Command::Run(flags) => run(flags, listed, log).into(),
        Command::Apply { flags, output } => apply(&flags, output, log).into(),
        Command::Plan { flags, output } => plan(&flags, output, log).into(),
        Command::Verify { flags, output } => verify(&flags, output, log).into(),
        #[cfg(feature = "inspect")]
        Command::Explain(flags) => deltaproxy::explain(&flags).into(),
        Command::Cleanup(flags) => deltaproxy::cleanup(flags).into(),
        #[cfg(feature = "inspect")]
        Command::Show(flags) => deltaproxy::show(&flags).into(),
        #[cfg(feature = "inspect")]
        Command::Top(flags) => deltaproxy::top(&flags).into(),
        #[cfg(feature = "inspect")]
        Command::History(flags) => deltaproxy::history(&flags).into(),
        #[cfg(feature = "inspect")]
        Command::Problems(flags) => deltaproxy::problems(&flags).into(),
        Command::Config(ConfigCommand::Check(flags)) => deltaproxy::check_config(flags).into(),
        #[cfg(feature = "measure")]
        Command::Bench(flags) => deltaproxy::bench(&flags).into(),
        #[cfg(feature = "measure")]
        Command::Probe(flags) => deltaproxy::probe(&flags).into(),
    }
}

fn run(flags: RunFlags, listed: Vec<(String, String)>, log: &mut Log) -> Result<End, Failure> {
    let flags = Arc::new(flags);
    let own = Arc::clone(&flags);
    let startup =
        |config: &Config| Ok(Startup { configuration: flags.effective(config)?, flags: listed });
    deltaproxy::run(Box::new(move || own.load()), flags.file_path(), startup, log)
}

fn apply(flags: &OnceFlags, output: Output, log: &mut Log) -> Result<(), Failure> {
    let settings = settings(Settings::of_once(flags)?, log);
    deltaproxy::apply(&settings, flags.allow_empty, output)
}

fn plan(flags: &PlanFlags, output: Output, log: &mut Log) -> Result<Found, Failure> {
    let (loaded, origin, fields) = Settings::of_plan(flags)?;
    let settings = settings((loaded, origin), log);
    let commands = flags.commands || flags.compared.source.manifests.is_some();
    let view = PlanView { output, commands };
    deltaproxy::plan(&settings, fields.as_deref(), flags.allow_empty, view)
}

fn verify(flags: &VerifyFlags, output: Output, log: &mut Log) -> Result<Found, Failure> {
    deltaproxy::verify(&settings(Settings::of_verify(flags)?, log), output)
}

/// Starts the log of a command that ends by itself, and returns its settings.
fn settings((loaded, origin): (Loaded, Origin), log: &mut Log) -> Settings {
    *log = Log::start(loaded.config.log);
    Settings { config: deltaproxy::noted(loaded), origin }
}
