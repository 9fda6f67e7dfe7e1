//! Follows a file or directory until the receiver of its events is dropped.
//!
//! A notification only triggers a scan, and every scan reads the actual state. A lost notification,
//! or a file system without notifications, therefore costs time and never correctness.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ahash::AHashSet;
use engine::model::Arrival;
use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc::Sender;

use super::folder;
use super::ignored::Ignored;
use super::problem::{FileProblem, FilesError, FoundProblems};
use super::reader::ManifestReader;
use crate::source::Wanted;

/// Sends the events of the manifests at `path`, and of every change, from a thread of its own.
///
/// The first arrival lists everything. Problems are logged and sent when they appear. The thread
/// ends within seconds after the receiver of `events` is dropped. The receiver of `problems` may be
/// dropped.
///
/// # Errors
/// The path does not exist. If it vanishes later, its last content stays in force until it exists
/// again.
pub fn follow(
    path: &Path,
    wanted: Wanted<'_>,
    events: Sender<Arrival>,
    problems: Sender<FoundProblems>,
) -> Result<JoinHandle<()>, FilesError> {
    folder::scan(path)?;
    let mut follower = FolderFollower {
        path: path.to_owned(),
        reader: ManifestReader::of(wanted),
        reported: AHashSet::default(),
        ignored: Ignored::default(),
        vanished: false,
        events,
        problems,
    };
    let named = thread::Builder::new().name("manifests".into());
    let spawned = named.spawn(move || follower.run());
    spawned.map_err(|source| FilesError::Unreadable { path: path.to_owned(), source })
}

/// Time between a notification and the read: editors write and rename in several steps.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// Most extensions of that time while files still change.
const MAX_DEBOUNCES: usize = 10;
/// Interval of checks whether the receiver of the events is dropped.
const TICK: Duration = Duration::from_secs(1);
/// Ticks between scans without a notification; one tick if notifications do not work.
const RESCAN_TICKS: u32 = 10;

struct FolderFollower {
    path: PathBuf,
    reader: ManifestReader,
    reported: AHashSet<FileProblem>,
    /// Ignored objects in the last log line.
    ignored: Ignored,
    vanished: bool,
    events: Sender<Arrival>,
    problems: Sender<FoundProblems>,
}

impl FolderFollower {
    fn run(&mut self) {
        // Capacity 1: a wake-up carries no data, and one scan finds all changes.
        let (wake, woken) = sync_channel(1);
        let mut folders = Folders::new(&self.path, wake);
        while self.read(&mut folders) && self.wait(&woken, &mut folders) {}
    }

    /// Reads the files and sends the changes. Returns false if the receiver of the events is
    /// dropped.
    fn read(&mut self, folders: &mut Folders) -> bool {
        // Watched before the read, so that no change is missed between them.
        let found = folder::scan(&self.path).map(|scan| scan.folders).unwrap_or_default();
        folders.watch(found.into_iter());
        let received = now();
        match self.reader.load(&self.path) {
            Ok(update) => {
                self.vanished = false;
                self.report(update.problems);
                self.log_ignored(update.ignored);
                let arrival = Arrival { received, ..Arrival::new(update.events, now()) };
                arrival.events.is_empty() || self.events.blocking_send(arrival).is_ok()
            }
            Err(error) => {
                if !std::mem::replace(&mut self.vanished, true) {
                    tracing::warn!(%error, "cannot read the manifests: their last content stays in force");
                }
                true
            }
        }
    }

    /// Logs the ignored objects if they changed.
    fn log_ignored(&mut self, ignored: Ignored) {
        if !ignored.is_empty() && ignored != self.ignored {
            tracing::info!("{ignored}");
        }
        self.ignored = ignored;
    }

    /// Waits until files may have changed. Returns false if the receiver of the events is dropped.
    fn wait(&self, woken: &Receiver<()>, folders: &mut Folders) -> bool {
        let patience = if folders.are_watched() { RESCAN_TICKS } else { 1 };
        for _ in 0..patience {
            match woken.recv_timeout(TICK) {
                Ok(()) => {
                    settle(woken);
                    break;
                }
                Err(RecvTimeoutError::Timeout) if self.events.is_closed() => return false,
                Err(RecvTimeoutError::Timeout) => {}
                // No watcher holds the sender: notifications do not work here.
                Err(RecvTimeoutError::Disconnected) => thread::sleep(TICK),
            }
        }
        !self.events.is_closed()
    }

    /// Logs the problems that are new since the last call, and sends all if they changed.
    fn report(&mut self, problems: Vec<FileProblem>) {
        let new: Vec<FileProblem> =
            problems.iter().filter(|problem| !self.reported.contains(problem)).cloned().collect();
        let has_changed = !new.is_empty() || problems.len() != self.reported.len();
        self.reported = problems.iter().cloned().collect();
        for problem in &new {
            tracing::error!("{problem}");
        }
        if has_changed {
            // A full or closed channel must not block events; the log has the problems.
            let _ = self.problems.try_send(FoundProblems { new, present: problems });
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "files change at times of their own")]
fn now() -> Instant {
    Instant::now()
}

/// Waits until notifications pause, up to a limit.
fn settle(woken: &Receiver<()>) {
    for _ in 0..MAX_DEBOUNCES {
        thread::sleep(DEBOUNCE);
        if woken.try_recv().is_err() {
            return;
        }
    }
}

/// Directories whose notifications wake the follower.
struct Folders {
    /// `None` if the kernel provides no notifications; ticks replace them.
    watcher: Option<RecommendedWatcher>,
    /// Directory that contains the path itself, which may be replaced.
    parent: Option<PathBuf>,
    watched: BTreeSet<PathBuf>,
}

impl Folders {
    fn new(path: &Path, wake: SyncSender<()>) -> Self {
        let parent = path.parent().map(|parent| {
            if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent.to_owned() }
        });
        let filter = Filter::new(path, parent.as_deref());
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An error such as a full queue means that a notification was lost.
            if event.map_or(true, |event| filter.concerns(&event)) {
                // A full channel already has a wake-up.
                let _ = wake.try_send(());
            }
        });
        let watcher = watcher
            .inspect_err(
                |error| tracing::warn!(%error, "no file notifications: checking the files every second"),
            )
            .ok();
        Self { watcher, parent, watched: BTreeSet::new() }
    }

    fn are_watched(&self) -> bool {
        self.watcher.is_some() && !self.watched.is_empty()
    }

    /// Watches only the parent and `found`. Adds each watch again: the name may now belong to
    /// another directory; for the same one this has no effect.
    fn watch(&mut self, found: impl Iterator<Item = PathBuf>) {
        let Some(watcher) = &mut self.watcher else { return };
        let wanted: BTreeSet<PathBuf> = self.parent.iter().cloned().chain(found).collect();
        for folder in self.watched.difference(&wanted) {
            // The directory may be deleted, and its watch with it.
            let _ = watcher.unwatch(folder);
        }
        let watch = |folder: &PathBuf| watcher.watch(folder, RecursiveMode::NonRecursive).is_ok();
        self.watched = wanted.into_iter().filter(watch).collect();
    }
}

/// Selects the relevant notifications.
struct Filter {
    /// Directory in which only some names are relevant: the parent of a directory of manifests.
    around: Option<PathBuf>,
    name: Option<OsString>,
}

impl Filter {
    fn new(path: &Path, parent: Option<&Path>) -> Self {
        // In the parent of a single file every name is relevant: the file may link to a sibling
        // that changes.
        let around = parent.filter(|parent| path.is_dir() && *parent != path).map(Path::to_owned);
        Self { around, name: path.file_name().map(OsStr::to_owned) }
    }

    fn concerns(&self, event: &notify::Event) -> bool {
        match event.kind {
            // Our own reads also open files.
            EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
            EventKind::Any
            | EventKind::Create(_)
            | EventKind::Modify(_)
            | EventKind::Remove(_)
            | EventKind::Other => {
                event.paths.is_empty() || event.paths.iter().any(|path| self.is_ours(path))
            }
        }
    }

    fn is_ours(&self, path: &Path) -> bool {
        if self.around.is_none() || path.parent() != self.around.as_deref() {
            return true;
        }
        // `..data` is the link that is replaced when a mounted ConfigMap changes.
        let linked = path.file_name().is_some_and(|it| it.as_encoded_bytes().starts_with(b".."));
        linked || path.file_name() == self.name.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use engine::model::{Change, Event, ServiceCidr};
    use engine::routing::Routing;
    use tempfile::TempDir;
    use tokio::sync::mpsc::{Receiver, channel};

    use super::*;

    /// A directory of manifests.
    struct Folder(TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str, cidr: &str) {
            fs::write(self.path(name), manifest(name, cidr)).unwrap();
        }
    }

    /// Returns a ServiceCIDR with the name of its file, without the extension.
    fn manifest(name: &str, cidr: &str) -> String {
        let name = name.split('.').next().unwrap();
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {{name: {name}}}\nspec: {{cidrs: [{cidr}]}}\n"
        )
    }

    /// Events of a follower, received with a time limit.
    struct Followed {
        events: Receiver<Arrival>,
        problems: Receiver<FoundProblems>,
        thread: JoinHandle<()>,
    }

    impl Followed {
        fn start(path: &Path) -> Self {
            let (send_events, events) = channel(16);
            let (send_problems, problems) = channel(16);
            let routing = Routing::default();
            let wanted = Wanted::new("node", &routing);
            let thread = follow(path, wanted, send_events, send_problems).unwrap();
            Self { events, problems, thread }
        }

        /// Receives until the last events equal `expected`: `+name range` and `-name`.
        #[track_caller]
        fn expect(&mut self, expected: &[&str]) {
            let mut seen: Vec<String> = Vec::new();
            while !expected.iter().all(|one| seen.iter().any(|it| it == one)) {
                let Some(arrival) = within_limit(&mut self.events) else {
                    panic!("expected {expected:?}, saw {seen:?}");
                };
                seen.extend(arrival.events.iter().filter_map(short));
            }
        }
    }

    #[track_caller]
    fn within_limit<T>(receiver: &mut Receiver<T>) -> Option<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let limit = Duration::from_secs(20);
        runtime
            .block_on(async { tokio::time::timeout(limit, receiver.recv()).await.ok().flatten() })
    }

    fn short(event: &Event) -> Option<String> {
        let Event::ServiceCidr(change) = event else { return None };
        match change {
            Change::Is(ServiceCidr { name, cidrs }) => Some(format!("+{name} {}", cidrs.first()?)),
            Change::Gone(name) => Some(format!("-{name}")),
            Change::Invalid(name) => Some(format!("!{name}")),
        }
    }

    #[test]
    fn files_are_followed_when_written_renamed_onto_and_removed() {
        let folder = Folder::new();
        folder.write("a.yaml", "10.0.0.0/8");
        folder.write("ignored.txt", "10.0.0.0/8");
        let mut followed = Followed::start(folder.0.path());
        followed.expect(&["+a 10.0.0.0/8"]);
        folder.write("b.json", "11.0.0.0/8");
        followed.expect(&["+b 11.0.0.0/8"]);
        fs::write(folder.path("a.tmp"), manifest("a.yaml", "12.0.0.0/8")).unwrap();
        fs::rename(folder.path("a.tmp"), folder.path("a.yaml")).unwrap();
        followed.expect(&["+a 12.0.0.0/8"]);
        fs::remove_file(folder.path("b.json")).unwrap();
        followed.expect(&["-b"]);
    }

    #[test]
    fn a_single_file_is_followed_through_a_rename_and_an_absence() {
        let folder = Folder::new();
        folder.write("a.yaml", "10.0.0.0/8");
        let path = folder.path("a.yaml");
        let mut followed = Followed::start(&path);
        followed.expect(&["+a 10.0.0.0/8"]);
        fs::write(folder.path("new"), manifest("a.yaml", "11.0.0.0/8")).unwrap();
        fs::rename(folder.path("new"), &path).unwrap();
        followed.expect(&["+a 11.0.0.0/8"]);
        fs::remove_file(&path).unwrap();
        folder.write("a.yaml", "12.0.0.0/8");
        followed.expect(&["+a 12.0.0.0/8"]);
    }

    #[test]
    fn an_empty_folder_and_its_replacement_are_followed() {
        let folder = Folder::new();
        let path = folder.path("manifests");
        fs::create_dir(&path).unwrap();
        let mut followed = Followed::start(&path);
        fs::write(path.join("a.yaml"), manifest("a", "10.0.0.0/8")).unwrap();
        followed.expect(&["+a 10.0.0.0/8"]);
        fs::create_dir(folder.path("next")).unwrap();
        fs::write(folder.path("next/a.yaml"), manifest("a", "11.0.0.0/8")).unwrap();
        fs::remove_dir_all(&path).unwrap();
        fs::rename(folder.path("next"), &path).unwrap();
        followed.expect(&["+a 11.0.0.0/8"]);
        fs::write(path.join("b.yaml"), manifest("b", "12.0.0.0/8")).unwrap();
        followed.expect(&["+b 12.0.0.0/8"]);
    }

    /// A mounted ConfigMap: files link to `..data/FILE`, and a rename replaces `..data`.
    #[test]
    fn a_config_map_is_followed_as_a_folder_and_as_a_file() {
        for name in ["", "a.yaml"] {
            let folder = Folder::new();
            for (version, cidr) in [("..1", "10.0.0.0/8"), ("..2", "11.0.0.0/8")] {
                fs::create_dir(folder.path(version)).unwrap();
                fs::write(folder.path(version).join("a.yaml"), manifest("a", cidr)).unwrap();
            }
            symlink("..1", folder.path("..data")).unwrap();
            symlink("..data/a.yaml", folder.path("a.yaml")).unwrap();
            let mut followed = Followed::start(&folder.path(name));
            followed.expect(&["+a 10.0.0.0/8"]);
            symlink("..2", folder.path("..data_tmp")).unwrap();
            fs::rename(folder.path("..data_tmp"), folder.path("..data")).unwrap();
            followed.expect(&["+a 11.0.0.0/8"]);
        }
    }

    #[test]
    fn a_problem_is_reported_once_and_the_thread_ends_without_a_receiver() {
        let folder = Folder::new();
        folder.write("a.yaml", "10.0.0.0/8");
        let mut followed = Followed::start(folder.0.path());
        followed.expect(&["+a 10.0.0.0/8"]);
        fs::write(folder.path("bad.yaml"), "kind: [\n").unwrap();
        let problems = within_limit(&mut followed.problems).expect("a problem");
        assert_eq!((problems.new.len(), problems.present.len()), (1, 1));
        assert_eq!(problems.new[0].file, folder.path("bad.yaml"));
        folder.write("a.yaml", "11.0.0.0/8");
        followed.expect(&["+a 11.0.0.0/8"]);
        assert!(followed.problems.try_recv().is_err(), "the problem was sent twice");
        drop(followed.events);
        followed.thread.join().unwrap();
    }

    #[test]
    fn a_missing_path_is_an_immediate_error() {
        let (events, problems) = (channel(1).0, channel(1).0);
        let routing = Routing::default();
        let wanted = Wanted::new("node", &routing);
        let error = follow(Path::new("/nonexistent"), wanted, events, problems).unwrap_err();
        assert!(matches!(error, FilesError::Missing(_)));
    }
}
