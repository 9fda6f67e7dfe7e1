//! Pages about the running daemon: `/configz`, `/flagz`, `/statusz`, in the formats of Kubernetes
//! components (KEP-4827, KEP-4828; `k8s.io/apiserver/pkg/server/flagz` and `statusz` of 1.36).

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue, WARNING};
use hyper::{HeaderMap, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::accept::{Accepted, accepted};
use super::response::{JSON, PLAIN, text};

/// Configuration and flags of the daemon's start.
#[derive(Debug, Default)]
pub struct Startup {
    /// The effective KubeProxyConfiguration.
    pub configuration: Value,
    /// All flags, by name without dashes; empty value if the flag is absent and has no default.
    pub flags: Vec<(String, String)>,
}

/// A page for people and for programs.
pub(super) struct ZPage {
    /// Its kind in [`GROUP`].
    kind: &'static str,
    lines: String,
    /// An object with the fields of its kind.
    fields: Value,
}

/// A format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageForm {
    Text,
    /// An object of this media type and version.
    Object(&'static str, &'static str),
}

/// Paths of the metrics port.
const PATHS: [&str; 6] = ["/configz", "/flagz", "/healthz", "/metrics", "/proxyMode", "/statusz"];

const COMPONENT: &str = "deltaproxy";

const GROUP: &str = "config.k8s.io";

/// Versions of both kinds. The first is deprecated.
const VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];

const DEPRECATED: &str =
    "299 - \"This version of the endpoint is deprecated. Please use a newer version.\"";

const YAML: &str = "application/yaml";

impl Startup {
    pub(super) fn configz(&self) -> String {
        json!({ "kubeproxy.config.k8s.io": self.configuration }).to_string()
    }

    /// Returns the document for commands.
    pub(super) fn document(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        json!({ "version": version, "configuration": self.configuration }).to_string()
    }

    pub(super) fn flagz(&self) -> ZPage {
        let flags: BTreeMap<_, _> = self.flags.iter().map(|(name, value)| (name, value)).collect();
        let lines = flags.iter().map(|(name, value)| format!("{name}={}\n", value.escape_debug()));
        ZPage { kind: "Flagz", lines: lines.collect(), fields: json!({ "flags": flags }) }
    }
}

/// Returns the page of a daemon that was started at `started`.
pub(super) fn statusz(started: SystemTime, now: SystemTime) -> ZPage {
    let seconds =
        |time: SystemTime, since| time.duration_since(since).unwrap_or_default().as_secs();
    let since_1970 = i64::try_from(seconds(started, UNIX_EPOCH)).unwrap_or(i64::MAX);
    let started = Timestamp::from_second(since_1970).unwrap_or_default();
    let up = seconds(now, started.into());
    let version = env!("CARGO_PKG_VERSION");
    let lines = format!(
        "\nStarted: {}\n\
         Up: {} hr {:02} min {:02} sec\n\
         Binary version: {version}\n\
         Paths: {}\n",
        started.strftime("%a %b %e %H:%M:%S UTC %Y"),
        up / 3600,
        up / 60 % 60,
        up % 60,
        PATHS.join(" "),
    );
    // `goVersion` is required; this program has none.
    let fields = json!({
        "startTime": started.to_string(),
        "uptimeSeconds": up,
        "goVersion": "",
        "binaryVersion": version,
        "paths": PATHS,
    });
    ZPage { kind: "Statusz", lines, fields }
}

impl ZPage {
    /// Returns the page in the format that `headers` prefer.
    pub(super) fn answer(self, headers: &HeaderMap) -> Response<Full<Bytes>> {
        match PageForm::accepted(headers, self.kind) {
            None => not_acceptable(),
            Some(PageForm::Text) => text(StatusCode::OK, PLAIN, self.text()),
            Some(PageForm::Object(media, version)) => self.object(media, version),
        }
    }

    fn text(&self) -> String {
        format!(
            "\n{COMPONENT} {}\nWarning: This endpoint is not meant to be machine parseable, has no \
             formatting compatibility guarantees and is for debugging purposes only.\n{}",
            self.kind.to_ascii_lowercase(),
            self.lines
        )
    }

    fn object(mut self, media: &'static str, version: &str) -> Response<Full<Bytes>> {
        self.fields["kind"] = self.kind.into();
        self.fields["apiVersion"] = format!("{GROUP}/{version}").into();
        self.fields["metadata"] = json!({ "name": COMPONENT });
        let json = self.fields.to_string();
        // JSON is YAML too.
        let body = match media {
            YAML => serde_saphyr::to_string(&self.fields).unwrap_or(json),
            _ => json,
        };
        let mut response = text(StatusCode::OK, media, body);
        let content_type = format!("{media};g={GROUP};v={version};as={}", self.kind);
        // Its characters are visible ASCII.
        if let Ok(content_type) = HeaderValue::try_from(content_type) {
            response.headers_mut().insert(CONTENT_TYPE, content_type);
        }
        if version == VERSIONS[0] {
            response.headers_mut().insert(WARNING, HeaderValue::from_static(DEPRECATED));
        }
        response
    }
}

impl PageForm {
    /// Returns the format that a client prefers; text if it names none.
    fn accepted(headers: &HeaderMap, kind: &str) -> Option<Self> {
        if headers.get(ACCEPT).is_none_or(|it| it.as_bytes().trim_ascii().is_empty()) {
            return Some(Self::Text);
        }
        accepted(headers, ACCEPT).iter().find_map(|range| Self::of_range(range, kind))
    }

    /// Returns the format for a media range. Objects need kind, group and version as parameters,
    /// and text has none of them.
    fn of_range(range: &Accepted<'_>, kind: &str) -> Option<Self> {
        let (class, subclass) = range.value.split_once('/').unwrap_or((&range.value, "*"));
        let admits = |media: &str| {
            let (of, sub) = media.split_once('/').unwrap_or_default();
            [of, "*"].contains(&class)
                && [sub, "*"].contains(&subclass)
                && (class != "*" || subclass == "*")
        };
        let target = ["as", "g", "v"].map(|name| range.parameter(name));
        let version =
            VERSIONS.into_iter().find(|it| target == [Some(kind), Some(GROUP), Some(*it)]);
        let object = version.and_then(|version| {
            let media = [JSON, YAML].into_iter().find(|media| admits(media))?;
            Some(Self::Object(media, version))
        });
        object.or((target == [None; 3] && admits("text/plain")).then_some(Self::Text))
    }
}

fn not_acceptable() -> Response<Full<Bytes>> {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": format!("only the following media types are accepted: {JSON}, {YAML}, text/plain"),
        "reason": "NotAcceptable",
        "code": StatusCode::NOT_ACCEPTABLE.as_u16(),
    });
    text(StatusCode::NOT_ACCEPTABLE, JSON, status.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use http_body_util::BodyExt;

    use super::*;

    /// Returns status, content type, warning and body for a value of `Accept`.
    fn ask(page: ZPage, accept: &str) -> (u16, String, Option<String>, String) {
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_str(accept).unwrap())]);
        let response = page.answer(&headers);
        let header = |name| response.headers().get(name).map(|it| it.to_str().unwrap().to_owned());
        let (status, media) = (response.status().as_u16(), header(CONTENT_TYPE).unwrap());
        let warning = header(WARNING);
        let body = response.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
        (status, media, warning, String::from_utf8(body.to_vec()).unwrap())
    }

    fn page() -> ZPage {
        let started = UNIX_EPOCH + Duration::from_millis(1_767_323_045_900);
        statusz(started, started + Duration::from_secs(3_600 * 30 + 61))
    }

    #[test]
    fn statusz_has_start_and_up_time() {
        let text = page().text();
        assert!(text.starts_with("\ndeltaproxy statusz\nWarning: "), "{text}");
        let version = concat!("Binary version: ", env!("CARGO_PKG_VERSION"));
        for line in ["Started: Fri Jan  2 03:04:05 UTC 2026", "Up: 30 hr 01 min 01 sec", version] {
            assert!(text.lines().any(|it| it == line), "no {line} in {text}");
        }
        let started = UNIX_EPOCH + Duration::from_secs(9);
        let text = statusz(started, started - Duration::from_secs(1)).text();
        assert!(text.contains("Up: 0 hr 00 min 00 sec"), "the clock was set back: {text}");
    }

    #[test]
    fn flagz_is_sorted_and_each_flag_is_a_line() {
        let flag = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let flags = vec![flag("v", "2"), flag("config", "a\nb"), flag("master", "")];
        let startup = Startup { flags, ..Startup::default() };
        let text = startup.flagz().text();
        assert!(text.starts_with("\ndeltaproxy flagz\nWarning: "), "{text}");
        assert!(text.ends_with("\nconfig=a\\nb\nmaster=\nv=2\n"), "{text}");
        let accept = "application/yaml;v=v1beta1;g=config.k8s.io;as=Flagz";
        let (status, _, _, yaml) = ask(startup.flagz(), accept);
        let object: Value = serde_saphyr::from_str(&yaml).unwrap();
        let expected = json!({
            "kind": "Flagz",
            "apiVersion": "config.k8s.io/v1beta1",
            "metadata": { "name": "deltaproxy" },
            "flags": { "config": "a\nb", "master": "", "v": "2" },
        });
        assert_eq!((status, object), (200, expected), "{yaml}");
    }

    #[test]
    fn programs_get_statusz_as_an_object_of_the_version_that_they_accept() {
        let accept = "application/json;v=v1alpha1;g=config.k8s.io;as=Statusz";
        let (status, media, warning, body) = ask(page(), accept);
        assert_eq!(status, 200);
        assert_eq!(media, "application/json;g=config.k8s.io;v=v1alpha1;as=Statusz");
        assert!(warning.unwrap().contains("deprecated"));
        let expected = json!({
            "kind": "Statusz",
            "apiVersion": "config.k8s.io/v1alpha1",
            "metadata": { "name": "deltaproxy" },
            "startTime": "2026-01-02T03:04:05Z",
            "uptimeSeconds": 108_061,
            "goVersion": "",
            "binaryVersion": env!("CARGO_PKG_VERSION"),
            "paths": PATHS,
        });
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expected);
        let (_, media, warning, _) = ask(page(), &accept.replace("alpha", "beta"));
        assert_eq!(media, "application/json;g=config.k8s.io;v=v1beta1;as=Statusz");
        assert_eq!(warning, None);
    }

    /// The table of Kubernetes' own test of statusz, and other headers of clients.
    #[test]
    fn a_page_is_text_an_object_or_406_by_the_accept_header() {
        const OBJECT: &str = ";v=v1beta1;g=config.k8s.io;as=Statusz";
        let json = Some(PageForm::Object(JSON, "v1beta1"));
        let yaml = Some(PageForm::Object(YAML, "v1beta1"));
        for (accept, expected) in [
            ("", Some(PageForm::Text)),
            ("  ", Some(PageForm::Text)),
            ("text/plain", Some(PageForm::Text)),
            ("text/plain;charset=utf-8", Some(PageForm::Text)),
            ("text/*", Some(PageForm::Text)),
            ("*/*", Some(PageForm::Text)),
            ("*", Some(PageForm::Text)),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Some(PageForm::Text)),
            ("application/xml", None),
            ("application/json", None),
            ("application/yaml", None),
            ("application/json;v=v1beta1;g=config.k8s.io", None),
            ("application/json;v=v1;g=config.k8s.io;as=Statusz", None),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Flagz", None),
            ("application/json;v=foo;g=config.k8s.io;as=Statusz,*/*", Some(PageForm::Text)),
            (&format!("application/json{OBJECT}"), json),
            (&format!("application/yaml{OBJECT}"), yaml),
            (&format!("application/*{OBJECT}"), json),
            (&format!("*/*{OBJECT}"), json),
            (&format!("*/json{OBJECT}"), None),
            (&format!("text/plain{OBJECT}"), None),
            (&format!("application/cbor{OBJECT}"), None),
            (&format!("text/plain;q=0.5, application/yaml{OBJECT};q=0.6"), yaml),
            (&format!("application/json{OBJECT};q=0, text/plain;q=0.1"), Some(PageForm::Text)),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_str(accept).unwrap())]);
            assert_eq!(PageForm::accepted(&headers, "Statusz"), expected, "{accept:?}");
        }
        let (status, media, _, body) = ask(page(), "application/xml");
        assert_eq!((status, &*media), (406, JSON));
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&body["reason"], &body["code"]), (&json!("NotAcceptable"), &json!(406)));
    }

    #[test]
    fn configz_has_the_configuration_under_its_group() {
        let startup = Startup { configuration: json!({"mode": "nftables"}), ..Startup::default() };
        assert_eq!(startup.configz(), r#"{"kubeproxy.config.k8s.io":{"mode":"nftables"}}"#);
    }
}
