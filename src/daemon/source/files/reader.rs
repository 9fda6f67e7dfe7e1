//! The combined contents of all manifest files, and their changes.
//!
//! If several files contain an object, the first one in the order of names wins. A file that does
//! not parse and an object that cannot be used leave the former content in force.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ahash::{AHashMap, AHashSet, RandomState};
use engine::model::{Event, ObjectRef, Resource};

use super::folder::{self, MAX_FILE, MAX_FILES, Stamp};
use super::ignored::Ignored;
use super::manifest::{self, Statement};
use super::problem::{FileProblem, FilesError};
use crate::named_file;
use crate::source::Wanted;
use crate::source::objects::Converter;

/// Reader of manifest files that returns the changes since its last read.
#[derive(Debug, Default)]
pub struct ManifestReader {
    converter: Converter,
    files: BTreeMap<PathBuf, FileState>,
    /// Last event of each object that exists.
    stated: AHashMap<ObjectRef, Event>,
    listed: bool,
    hasher: RandomState,
}

/// Result of one read of the files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// Changes since the last read. The first time, all objects between `Relist` and `Listed`.
    pub events: Vec<Event>,
    /// All present problems, including those reported before.
    pub problems: Vec<FileProblem>,
    /// All objects of kinds that routing does not use.
    pub ignored: Ignored,
    /// Number of objects that can be used at present, without other nodes.
    pub usable: usize,
}

/// Contents of a file, or its last contents before it became unreadable.
#[derive(Debug, Default)]
struct FileState {
    /// Stamp of the file when it was read, if another write would change it.
    stamp: Option<Stamp>,
    /// Hash of the bytes.
    fingerprint: Option<u64>,
    statements: Vec<Statement>,
    problems: Vec<FileProblem>,
    ignored: Ignored,
}

/// Reads one text as a manifest for a node called `node`; for tests and fuzzing.
pub fn read(text: &[u8]) -> Update {
    let mut reader = ManifestReader::new("node");
    reader.begin_file(Path::new("input"), Ok(text.to_vec()));
    reader.settle()
}

impl ManifestReader {
    /// Returns an empty reader for the node of that name.
    pub fn new(node_name: &str) -> Self {
        Self { converter: Converter::new(node_name), ..Self::default() }
    }

    /// Returns an empty reader that gives one node what it needs.
    pub fn of(wanted: Wanted<'_>) -> Self {
        Self { converter: Converter::of(wanted), ..Self::default() }
    }

    /// Reads a file or directory. Skips files that did not change since the last read.
    ///
    /// # Errors
    /// The path does not exist or cannot be listed. The reader is then unchanged.
    pub fn load(&mut self, path: &Path) -> Result<Update, FilesError> {
        let scan = folder::scan(path)?;
        self.files.retain(|file, _| scan.files.contains_key(file));
        for (file, stamp) in &scan.files {
            if stamp.is_some() && self.files.get(file).is_some_and(|known| known.stamp == *stamp) {
                continue;
            }
            let bytes = named_file::read(file, MAX_FILE);
            let readable = bytes.is_ok();
            let state = self.begin_file(file, bytes);
            state.stamp = stamp.filter(|it| readable && it.is_settled(SystemTime::now()));
        }
        let mut update = self.settle();
        if scan.too_many {
            let message =
                format!("holds more than {MAX_FILES} manifest files: others are not read");
            update.problems.push(FileProblem::of_file(path, None, message));
        }
        Ok(update)
    }

    /// Replaces the contents of all files. Files that are not in `files` no longer exist.
    pub fn update(
        &mut self,
        files: impl IntoIterator<Item = (PathBuf, io::Result<Vec<u8>>)>,
    ) -> Update {
        let mut named = AHashSet::default();
        for (file, bytes) in files {
            self.begin_file(&file, bytes);
            named.insert(file);
        }
        self.files.retain(|file, _| named.contains(file));
        self.settle()
    }

    /// Stores the contents of one file, or the error of its read.
    fn begin_file(&mut self, file: &Path, bytes: io::Result<Vec<u8>>) -> &mut FileState {
        let state = self.files.entry(file.to_owned()).or_default();
        match bytes {
            Err(error) => {
                state.fingerprint = None;
                state.problems =
                    vec![FileProblem::of_file(file, None, format!("cannot be read: {error}"))];
            }
            Ok(bytes) => {
                let fingerprint = Some(self.hasher.hash_one(&bytes));
                if state.fingerprint != fingerprint {
                    state.fingerprint = fingerprint;
                    state.parse(file, &bytes, &mut self.converter);
                }
            }
        }
        state
    }

    /// Returns the difference between the contents of all files and the last events, and stores the
    /// new events.
    fn settle(&mut self) -> Update {
        let mut update = Update::default();
        let mut owners: AHashMap<&ObjectRef, (&Path, usize)> = AHashMap::default();
        for (file, state) in &self.files {
            update.problems.extend_from_slice(&state.problems);
            update.ignored.extend(&state.ignored);
            for statement in &state.statements {
                let object = &statement.object;
                if let Some(first) = owners.get(object) {
                    update.problems.push(duplicate(file, statement, *first));
                    continue;
                }
                owners.insert(object, (file, statement.line));
                update.usable += usize::from(statement.is_usable());
                if self.stated.get(object) != Some(&statement.event) {
                    update.events.push(statement.event.clone());
                    self.stated.insert(object.clone(), statement.event.clone());
                }
            }
        }
        let mut absent: Vec<_> =
            self.stated.keys().filter(|object| !owners.contains_key(object)).cloned().collect();
        absent.sort_unstable_by(|one, other| {
            one.name.cmp(&other.name).then((one.resource as usize).cmp(&(other.resource as usize)))
        });
        for object in absent {
            self.stated.remove(&object);
            update.events.push(self.converter.gone(object));
        }
        if !std::mem::replace(&mut self.listed, true) {
            let relists = Resource::ALL.map(Event::Relist).into_iter();
            update.events =
                relists.chain(update.events).chain(Resource::ALL.map(Event::Listed)).collect();
        }
        update
    }
}

impl FileState {
    fn parse(&mut self, file: &Path, bytes: &[u8], converter: &mut Converter) {
        match manifest::parse(file, bytes, converter) {
            Err(problem) => self.problems = vec![*problem],
            Ok(contents) => {
                let former = std::mem::replace(&mut self.statements, contents.statements);
                self.problems = contents.problems;
                self.ignored = contents.ignored;
                if contents.unidentified {
                    self.keep(former);
                }
            }
        }
    }

    /// Keeps former statements about objects that the file no longer contains: one of them may be
    /// the unidentified object.
    fn keep(&mut self, former: Vec<Statement>) {
        let named: AHashSet<_> = self.statements.iter().map(|it| it.object.clone()).collect();
        let unnamed = |it: &Statement| !named.contains(&it.object);
        self.statements.extend(former.into_iter().filter(unnamed));
    }
}

fn duplicate(file: &Path, statement: &Statement, (first, line): (&Path, usize)) -> FileProblem {
    FileProblem {
        file: file.to_owned(),
        line: Some(statement.line),
        object: statement.object.to_string(),
        field: String::new(),
        message: format!("is already in {}:{line}, which wins", first.display()),
    }
}

#[cfg(test)]
mod tests {
    use engine::model::{Change, ObjectName};
    use engine::routing::ServedServices;

    use super::*;

    const NODE: &str = "demo-node";

    /// Returns the events and problems after an update with these files, given as (name, text).
    #[track_caller]
    fn update(reader: &mut ManifestReader, files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let files =
            files.iter().map(|(name, text)| (PathBuf::from(name), Ok(text.as_bytes().to_vec())));
        let Update { events, problems, .. } = reader.update(files);
        let events = events.iter().filter_map(short).collect();
        (events, problems.iter().map(ToString::to_string).collect())
    }

    /// Returns `+` for an object, `!` if invalid, `-` if gone; `None` for `Relist` and `Listed`.
    fn short(event: &Event) -> Option<String> {
        fn change<T>(change: &Change<T>, name: impl Fn(&T) -> &ObjectName) -> String {
            match change {
                Change::Is(object) => format!("+{}", name(object)),
                Change::Invalid(name) => format!("!{name}"),
                Change::Gone(name) => format!("-{name}"),
            }
        }
        match event {
            Event::Service(it) => Some(change(it, |it| &it.name)),
            Event::EndpointSlice(it) => Some(change(it, |it| &it.name)),
            Event::Node(it) => Some(change(it, |it| &it.name)),
            Event::Peer(it) => Some(change(it, |it| &it.name)),
            Event::ServiceCidr(it) => Some(change(it, |it| &it.name)),
            Event::Relist(_) | Event::Listed(_) => None,
        }
    }

    fn service(name: &str, port: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec:\n  clusterIP: 10.96.0.1\n  ports:\n  - port: {port}\n---\n"
        )
    }

    fn reader() -> ManifestReader {
        ManifestReader::new(NODE)
    }

    #[test]
    fn the_first_read_lists_everything_and_the_next_only_the_changes() {
        let mut reader = reader();
        let (a, b) = (service("a", "80"), service("b", "80"));
        let first =
            reader.update([(PathBuf::from("f"), Ok([a.as_bytes(), b.as_bytes()].concat()))]);
        assert_eq!(first.events[..4], Resource::ALL.map(Event::Relist));
        assert_eq!(first.events[6..], Resource::ALL.map(Event::Listed));
        let same = [a.clone(), b.clone()].concat();
        assert_eq!(update(&mut reader, &[("f", &same)]).0, [""; 0]);
        let changed = [a, service("b", "81")].concat();
        assert_eq!(update(&mut reader, &[("f", &changed)]).0, ["+default/b"]);
        assert_eq!(update(&mut reader, &[]).0, ["-default/a", "-default/b"]);
    }

    #[test]
    fn services_of_other_programs_are_gone() {
        let services = ServedServices {
            except: vec!["default/a".parse().unwrap()],
            labels: vec!["team!=b".parse().unwrap()],
            ..ServedServices::default()
        };
        let wanted = Wanted { node: NODE, services: &services, other_nodes: false };
        let mut reader = ManifestReader::of(wanted);
        let of_team = |team: &str| {
            let name = format!("b, labels: {{team: {team}}}");
            [service("a", "80"), service("c", "80"), service(&name, "80")].concat()
        };
        let stated = update(&mut reader, &[("f", &of_team("a"))]);
        assert_eq!(stated.0, ["-default/a", "+default/c", "+default/b"]);
        let stated = update(&mut reader, &[("f", &of_team("b"))]);
        assert_eq!(stated, (vec!["-default/b".to_owned()], vec![]));
    }

    #[test]
    fn other_nodes_are_read_while_they_are_followed_and_are_not_usable_objects() {
        let node = |name: &str, address: &str| {
            format!(
                "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, status: \
                 {{addresses: [{{type: InternalIP, address: {address}}}]}}}}\n---\n"
            )
        };
        let peers = |update: &Update| {
            let peers = update.events.iter().filter(|event| matches!(event, Event::Peer(_)));
            peers.filter_map(short).collect::<Vec<_>>()
        };
        let text = [node(NODE, "10.0.0.1"), node("b", "10.0.0.2"), node("c", "10.0.0.3")].concat();
        let files = |text: &str| [(PathBuf::from("f"), Ok(text.as_bytes().to_vec()))];
        let alone = reader().update(files(&text));
        assert_eq!((peers(&alone), alone.usable), (vec![], 1));
        let services = ServedServices::default();
        let wanted = Wanted { node: NODE, services: &services, other_nodes: true };
        let mut reader = ManifestReader::of(wanted);
        let all = reader.update(files(&text));
        assert_eq!((peers(&all), all.usable), (vec!["+b".to_owned(), "+c".to_owned()], 1));
        let relists = all.events.iter().position(|it| *it == Event::Relist(Resource::Nodes));
        let first = all.events.iter().position(|it| matches!(it, Event::Peer(_)));
        let listed = all.events.iter().position(|it| *it == Event::Listed(Resource::Nodes));
        assert!(relists < first && first < listed, "{:?}", all.events);
        assert_eq!(peers(&reader.update(files(&text))), [""; 0]);
        let wrong = node("b", "10.0.0.2").replace("InternalIP", "[]");
        let changed = reader.update(files(&[node(NODE, "10.0.0.1"), wrong].concat()));
        assert_eq!(peers(&changed), ["!b", "-c"]);
    }

    #[test]
    fn a_file_that_no_longer_parses_keeps_its_last_contents() {
        let mut reader = reader();
        update(&mut reader, &[("f", &service("a", "80"))]);
        let (events, problems) =
            update(&mut reader, &[("f", "kind: [Service\n"), ("g", &service("b", "1"))]);
        assert_eq!(events, ["+default/b"]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("f:"), "{problems:?}");
        assert_eq!(update(&mut reader, &[("g", &service("b", "1"))]).0, ["-default/a"]);
    }

    #[test]
    fn an_unreadable_file_keeps_its_last_contents() {
        let mut reader = reader();
        update(&mut reader, &[("f", &service("a", "80"))]);
        let unreadable = [(PathBuf::from("f"), Err(io::Error::other("denied")))];
        let update = reader.update(unreadable);
        assert_eq!(update.events, []);
        assert_eq!(update.problems[0].to_string(), "f: cannot be read: denied");
    }

    #[test]
    fn an_object_that_becomes_unusable_is_invalid_and_the_others_of_its_file_are_updated() {
        let mut reader = reader();
        update(&mut reader, &[("f", &[service("a", "80"), service("b", "80")].concat())]);
        let text = [service("a", "70000"), service("b", "81")].concat();
        let (events, problems) = update(&mut reader, &[("f", &text)]);
        assert_eq!(events, ["!default/a", "+default/b"]);
        let problem =
            "f:7: Service default/a: spec.ports[0].port: 70000 is not a port: expected 1 to 65535";
        assert_eq!(problems, [problem]);
        let text = [service("a", "80"), service("b", "81")].concat();
        assert_eq!(update(&mut reader, &[("f", &text)]).0, ["+default/a"]);
    }

    #[test]
    fn an_object_that_lost_its_kind_or_name_keeps_its_last_content() {
        let mut reader = reader();
        update(&mut reader, &[("f", &[service("a", "80"), service("b", "80")].concat())]);
        let broken = service("a", "80").replace("kind: Service", "kind: Servic");
        let (events, problems) =
            update(&mut reader, &[("f", &[broken, service("b", "81")].concat())]);
        assert_eq!(events, ["+default/b"]);
        assert_eq!(problems.len(), 1);
        assert_eq!(update(&mut reader, &[("f", &service("b", "81"))]).0, ["-default/a"]);
    }

    #[test]
    fn the_first_file_in_name_order_wins_and_the_problem_names_both() {
        let mut reader = reader();
        let files = [("b", service("a", "2")), ("a", service("a", "1"))];
        let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
        let (events, problems) = update(&mut reader, &files);
        assert_eq!(events, ["+default/a"]);
        assert_eq!(problems, ["b:1: Service default/a: is already in a:1, which wins"]);
        // The second file wins after the first is removed.
        let (events, problems) = update(&mut reader, &files[..1]);
        assert_eq!((events.len(), problems.len()), (1, 0));
    }

    #[test]
    fn only_the_node_object_of_this_node_is_read() {
        let node =
            |name| format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}\n---\n");
        let text = [node("other"), node("demo-node"), node("Demo-Node")].concat();
        assert_eq!(update(&mut reader(), &[("f", &text)]), (vec!["+demo-node".into()], vec![]));
    }

    #[test]
    fn every_problem_names_file_line_object_and_field() {
        let cases = [
            ("- a\n- b\n", "f:1: object without a name: is not an object with apiVersion and kind"),
            (
                "apiVersion: v1\n",
                "f:1: object without a name: kind: is missing: expected a string such as Service",
            ),
            (
                "apiVersion: v1\nmetadata: {name: x}\nkind: Servic\n",
                "f:3: Servic x: kind: unknown kind \"Servic\": expected Service, EndpointSlice, Node, ServiceCIDR or List",
            ),
            (
                "kind: Service\nmetadata: {name: x, namespace: z}",
                "f:1: Service z/x: apiVersion: is missing: expected v1 for Service",
            ),
            (
                "metadata: {name: x}\nkind: EndpointSlice\napiVersion: discovery.k8s.io/v1beta1\n",
                "f:3: EndpointSlice x: apiVersion: \"discovery.k8s.io/v1beta1\" is not supported: expected discovery.k8s.io/v1 for EndpointSlice",
            ),
            (
                "apiVersion: v1\nkind: Service\nmetadata:\n  labels: {}\n",
                "f:3: Service without a name: metadata.name: is missing: expected a name as a string",
            ),
            (
                "apiVersion: v1\nkind: List\nitems: 3\n",
                "f:3: List without a name: items: is not a list of objects",
            ),
            (
                "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec:\n  ports:\n  - port: http\n",
                "f:6: Service default/x: spec.ports[0].port: invalid type: string \"http\", expected i64",
            ),
            (
                "apiVersion: v1\nkind: ServiceList\nitems:\n- metadata: {name: x}\n  spec:\n    clusterIP: 1.2.3\n",
                "f:6: Service default/x: spec.clusterIP: \"1.2.3\" is not an IP address",
            ),
            ("a: 1\nb: [\n", "f:2: does not parse at column 4: unclosed bracket '['"),
        ];
        for (text, expected) in cases {
            assert_eq!(update(&mut reader(), &[("f", text)]).1, [expected], "{text}");
        }
        let (bytes, file) = (b"a: 1\nb: \xff\n".to_vec(), PathBuf::from("f"));
        let problems = reader().update([(file, Ok(bytes))]).problems;
        assert_eq!(problems[0].to_string(), "f:2: is not UTF-8 text");
    }

    #[test]
    fn objects_of_other_kinds_are_counted_and_are_no_problem() {
        let text = "{apiVersion: v1, kind: List, items: [\
            {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}},\
            {apiVersion: v1, kind: ConfigMapList, items: [{metadata: {name: b}}, {}]},\
            {apiVersion: v1, kind: SecretList, items: []},\
            {apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: c}}]}";
        let update = read(text.as_bytes());
        assert_eq!((update.problems, update.usable), (vec![], 0));
        let line = "ignored objects of other kinds: 2 ConfigMap, 1 Deployment.apps, \
                    1 Service.serving.knative.dev";
        assert_eq!(update.ignored.to_string(), line);
        let update = read([service("a", "80"), service("b", "0")].concat().as_bytes());
        assert_eq!((update.ignored.is_empty(), update.usable), (true, 1));
    }

    #[test]
    fn lists_of_every_kind_and_missing_namespaces_are_read() {
        let text = "{apiVersion: v1, kind: List, items: [\
            {apiVersion: v1, kind: ServiceList, items: [{metadata: {name: a}, spec: {clusterIP: 10.0.0.1}}]},\
            {apiVersion: discovery.k8s.io/v1, kind: EndpointSliceList, items: [\
              {metadata: {name: s, labels: {kubernetes.io/service-name: a}}, addressType: IPv4}]},\
            {apiVersion: v1, kind: NodeList, items: [{metadata: {name: demo-node, namespace: x}}]},\
            {apiVersion: networking.k8s.io/v1, kind: ServiceCIDRList, items: null},\
            {apiVersion: networking.k8s.io/v1beta1, kind: ServiceCIDR, metadata: {name: c}}]}";
        let (events, problems) = update(&mut reader(), &[("f", text)]);
        assert_eq!(events, ["+default/a", "+default/s", "+demo-node", "+c"]);
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn the_examples_have_no_problems() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/manifests");
        let update = reader().load(&folder).unwrap();
        assert_eq!(update.problems, []);
        assert_eq!(update.events.iter().filter_map(short).count(), 9);
    }

    #[test]
    fn a_missing_path_is_an_error_with_the_reason() {
        let error = reader().load(Path::new("/nonexistent/manifests")).unwrap_err();
        assert!(error.to_string().contains("no such file or folder"), "{error}");
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
            read(&bytes);
        }

        #[test]
        fn no_mutation_of_an_example_causes_a_panic(
            file in 0..EXAMPLES.len(),
            edits in proptest::collection::vec((proptest::prelude::any::<proptest::sample::Index>(), EDITS), 1..8),
        ) {
            let mut text = EXAMPLES[file].as_bytes().to_vec();
            for (at, edit) in edits {
                let at = at.index(text.len() + 1);
                let end = text.len().min(at + edit.len() / 2);
                text.splice(at..end, edit.into_bytes());
            }
            read(&text);
        }
    }

    const EDITS: &str = r#"[0-9a-z:{}\[\]&*"'\t\n -]{0,4}"#;
    const EXAMPLES: [&str; 4] = [
        include_str!("../../../../examples/manifests/cluster.yaml"),
        include_str!("../../../../examples/manifests/web.yaml"),
        include_str!("../../../../examples/manifests/dns.yaml"),
        include_str!("../../../../examples/manifests/dual.json"),
    ];
}
