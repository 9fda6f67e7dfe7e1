//! What a client of the API server needs: address, certificates, headers, credential plugin, proxy.
//!
//! Made from a kubeconfig, the service account of a pod or an address, by the rules of client-go.
//! What cannot be used is refused, with the field.

use std::path::Path;

use hyper::Uri;
use hyper::header::{AUTHORIZATION, HeaderMap};
use rustls::pki_types::ServerName;

use super::headers::{basic, bearer, impersonate};
use super::kubeconfig::{Base64, Cluster, Fault, Selected, User};
use super::plugin::Plugin;
use super::tls::Tls;
use super::url::Address;
use super::{route, tls};
use crate::named_file::{self, LONGEST};

/// Token and certificate authority of a pod's service account.
pub(super) const IN_CLUSTER: [&str; 2] = [
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
    "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
];

/// Environment variables that the kubelet sets in every container.
pub(super) const SERVICE: [&str; 2] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];

/// What a client needs.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) server: Uri,
    pub(super) tls: Tls,
    /// Headers of each request.
    pub(super) headers: HeaderMap,
    pub(super) plugin: Option<Plugin>,
    pub(super) proxy: Option<Address>,
}

impl Settings {
    /// The settings for an address, without credentials.
    ///
    /// # Errors
    /// The address, or a proxy of the environment, cannot be used.
    pub(super) fn anonymous(address: &str) -> Result<Self, Fault> {
        let address = Address::parse(address).map_err(|problem| Fault::new("address", problem))?;
        Self::at("address", &address)
    }

    /// The settings of a pod's service account.
    ///
    /// # Errors
    /// A variable, the token, the certificate authority or a proxy cannot be used.
    pub(super) fn in_cluster() -> Result<Self, Fault> {
        let [host, port] = SERVICE.map(|name| {
            let value = std::env::var(name).ok().filter(|value| !value.is_empty());
            value.ok_or_else(|| Fault::new(format!("environment variable {name}"), "it is not set"))
        });
        let (host, port) = (host?, port?);
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let address = Address::parse(&format!("https://{host}:{port}"))
            .map_err(|problem| Fault::new(SERVICE.join(" and "), problem))?;
        let mut settings = Self::at(SERVICE[0], &address)?;
        let [token, authority] = IN_CLUSTER;
        settings.headers.insert(AUTHORIZATION, bearer(token, &token_in(token)?)?);
        settings.tls.roots = Some(tls::roots(authority, &contents(authority)?)?);
        Ok(settings)
    }

    /// The settings of a kubeconfig; `master` replaces the address in it.
    ///
    /// # Errors
    /// A field, a file that it names, or a proxy cannot be used.
    pub(super) fn of_kubeconfig(file: Selected, master: Option<&str>) -> Result<Self, Fault> {
        let Selected { cluster_name, cluster, user_name, user } = file;
        let of_user = |field: &str| format!("{field} of user {user_name:?}");
        check_user(&user, &of_user)?;
        if cluster.is_none() && master.is_none() {
            if is_in_pod() {
                return Self::in_cluster();
            }
            let problem = format!("it selects no cluster: clusters has no {cluster_name:?}");
            return Err(Fault::new("current-context", problem));
        }
        let mut cluster = cluster.unwrap_or_default();
        let of_cluster = |field: &str| format!("{field} of cluster {cluster_name:?}");
        if let Some(master) = master {
            // As in client-go: the name belongs to the address of the file.
            cluster = Cluster { server: master.into(), tls_server_name: String::new(), ..cluster };
        }
        let what = master.map_or_else(|| of_cluster("server"), |_| "--master".to_owned());
        let address =
            Address::parse(&cluster.server).map_err(|problem| Fault::new(&what, problem))?;
        let proxy =
            (!cluster.proxy_url.is_empty()).then(|| route::of_kubeconfig(&cluster.proxy_url));
        let proxy = proxy.transpose().map_err(|it| Fault::new(of_cluster("proxy-url"), it))?;
        let mut settings = match proxy {
            Some(_) => Self { proxy, ..Self::without_proxy(&what, &address)? },
            None => Self::at(&what, &address)?,
        };
        impersonate(&mut settings.headers, &user.impersonated, &of_user)?;
        let authority = content(
            &cluster.certificate_authority_data,
            &cluster.certificate_authority,
            &of_cluster("certificate-authority"),
        )?;
        let identity = identity_of(&user, &of_user)?;
        // client-go sends credentials over TLS only, and reads no other settings of it either.
        if settings.server.scheme_str() == Some("https") {
            settings.tls = tls_of(&cluster, authority.as_deref(), &of_cluster)?;
            let identity = identity.map(|[certificate, key]| {
                tls::identity(&of_user("client-certificate"), &certificate, &key)
            });
            settings.tls.identity = identity.transpose()?;
            settings.authorize(&cluster, &user, authority, &of_user)?;
        }
        Ok(settings)
    }

    /// The settings for an address, through the proxy of the environment.
    fn at(what: &str, address: &Address) -> Result<Self, Fault> {
        let proxy = route::of_environment(address, |name| std::env::var(name).ok())?;
        Ok(Self { proxy, ..Self::without_proxy(what, address)? })
    }

    fn without_proxy(what: &str, address: &Address) -> Result<Self, Fault> {
        let server = address.url().map_err(|problem| Fault::new(what, problem))?;
        let user = address.authorization().map(|value| (AUTHORIZATION, value));
        let headers = user.into_iter().collect();
        Ok(Self { server, tls: Tls::default(), headers, plugin: None, proxy: None })
    }

    /// Adds the credentials of a user that are no certificate.
    fn authorize(
        &mut self,
        cluster: &Cluster,
        user: &User,
        authority: Option<Vec<u8>>,
        of_user: &dyn Fn(&str) -> String,
    ) -> Result<(), Fault> {
        if user.auth_provider.is_some() {
            return Err(Fault::new(of_user("auth-provider"), "it is not supported: use exec"));
        }
        let has_token = !user.token.is_empty() || !user.token_file.is_empty();
        if has_token && !user.username.is_empty() {
            return Err(Fault::new(of_user("tokenFile"), "beside username, which is not allowed"));
        }
        let authorization = if has_token {
            let what = of_user(if user.token_file.is_empty() { "token" } else { "tokenFile" });
            let in_file = (!user.token_file.is_empty()).then(|| token_in(&user.token_file));
            let token = match in_file {
                Some(Err(fault)) if user.token.is_empty() => return Err(Fault::new(what, fault)),
                Some(Ok(token)) => token,
                Some(Err(_)) | None => user.token.clone(),
            };
            Some(bearer(&what, &token)?)
        } else {
            (!user.username.is_empty()).then(|| basic(&user.username, &user.password))
        };
        if let Some(exec) = &user.exec {
            let plugin = Plugin::new(exec, cluster, authority, &of_user("exec"))?;
            let is_used = authorization.is_none() && self.tls.identity.is_none();
            self.plugin = is_used.then_some(plugin);
        }
        // A user in the address comes first.
        if let Some(value) = authorization {
            self.headers.entry(AUTHORIZATION).or_insert(value);
        }
        Ok(())
    }
}

/// Returns whether a pod's service account can be used.
fn is_in_pod() -> bool {
    SERVICE.iter().all(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
        && Path::new(IN_CLUSTER[0]).is_file()
}

fn check_user(user: &User, of_user: &dyn Fn(&str) -> String) -> Result<(), Fault> {
    let fault = |field: &str, problem: &str| Err(Fault::new(of_user(field), problem));
    let is_basic = !user.username.is_empty() || !user.password.is_empty();
    if is_basic && !user.token.is_empty() {
        return fault("token", "beside username or password, which is not allowed");
    }
    let impersonated = &user.impersonated;
    let has_more = !(impersonated.uid.is_empty()
        && impersonated.groups.is_empty()
        && impersonated.extra.is_empty());
    if impersonated.name.is_empty() && has_more {
        return fault("as", "as-uid, as-groups and as-user-extra need it");
    }
    if user.exec.is_some() && user.auth_provider.is_some() {
        return fault("exec", "beside auth-provider, which is not allowed");
    }
    user.exec.as_ref().map_or(Ok(()), |exec| exec.check(&of_user("exec")))
}

/// Returns certificate and key of a user.
fn identity_of(
    user: &User,
    of_user: &dyn Fn(&str) -> String,
) -> Result<Option<[Vec<u8>; 2]>, Fault> {
    let what = of_user("client-certificate");
    let certificate = content(&user.client_certificate_data, &user.client_certificate, &what)?;
    let Some(certificate) = certificate else { return Ok(None) };
    let what = of_user("client-key");
    let key = content(&user.client_key_data, &user.client_key, &what)?;
    let key = key.ok_or_else(|| Fault::new(what, "client-certificate needs it"))?;
    Ok(Some([certificate, key]))
}

fn tls_of(
    cluster: &Cluster,
    authority: Option<&[u8]>,
    of_cluster: &dyn Fn(&str) -> String,
) -> Result<Tls, Fault> {
    let is_insecure = cluster.insecure_skip_tls_verify;
    if is_insecure && authority.is_some() {
        let problem = "beside certificate-authority, which is not allowed";
        return Err(Fault::new(of_cluster("insecure-skip-tls-verify"), problem));
    }
    let what = of_cluster("certificate-authority");
    let roots = authority.map(|pem| tls::roots(&what, pem)).transpose()?;
    let name = Some(&cluster.tls_server_name).filter(|name| !name.is_empty());
    let name = name.map(|name| ServerName::try_from(name.clone())).transpose();
    let name = name.map_err(|error| Fault::new(of_cluster("tls-server-name"), error))?;
    Ok(Tls { roots, is_insecure, name, identity: None })
}

/// Returns the content of a field with data, or of the file that another field names.
fn content(data: &Base64, file: &str, what: &str) -> Result<Option<Vec<u8>>, Fault> {
    match (data.0.is_empty(), file.is_empty()) {
        (true, true) => Ok(None),
        (false, true) => Ok(Some(data.0.clone())),
        (true, false) => contents(file).map(Some).map_err(|fault| Fault::new(what, fault)),
        (false, false) => Err(Fault::new(what, "beside data of the same, which is not allowed")),
    }
}

/// Reads a file that settings name.
fn contents(path: &str) -> Result<Vec<u8>, Fault> {
    let file = Path::new(path);
    let bytes = named_file::check(file).and_then(|()| named_file::read(file, LONGEST));
    bytes.map_err(|error| Fault::new(path, error))
}

/// Reads a token, without blanks and newlines around it.
fn token_in(path: &str) -> Result<String, Fault> {
    let token = String::from_utf8_lossy(&contents(path)?).trim().to_owned();
    if token.is_empty() { Err(Fault::new(path, "it has no token")) } else { Ok(token) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use tempfile::TempDir;

    use super::super::p521::tests::{CERTIFICATE, KEY};
    use super::*;

    /// Files that kubeconfigs of tests name.
    fn files() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("ca.crt", CERTIFICATE),
            ("client.crt", CERTIFICATE),
            ("client.key", KEY),
            ("token", " of-file\t\r\n\n"),
            ("blank", " \n"),
            ("empty", ""),
            ("binary", "\x01\n"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn loaded(text: &str, master: Option<&str>) -> Result<Settings, Fault> {
        let folder = files();
        let selected = Selected::parse(text.as_bytes(), folder.path())?;
        Settings::of_kubeconfig(selected, master)
    }

    fn text(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\npreferences: {{}}\ncurrent-context: c\n\
             clusters: [{{name: a, cluster: {{{cluster}}}}}]\n\
             users: [{{name: b, user: {{{user}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: a, user: b}}}}]\n"
        )
    }

    /// Returns what a client would use, in short.
    fn summary(settings: &Settings) -> String {
        let headers = settings
            .headers
            .iter()
            .map(|(name, value)| format!(" {name}={}", String::from_utf8_lossy(value.as_bytes())));
        let tls = &settings.tls;
        let parts = [
            ("ca", tls.roots.is_some()),
            ("insecure", tls.is_insecure),
            ("certificate", tls.identity.is_some()),
            ("plugin", settings.plugin.is_some()),
        ];
        let parts = parts.iter().filter(|it| it.1).map(|it| format!(" {}", it.0));
        let name = tls.name.iter().map(|name| format!(" name={}", name.to_str()));
        let proxy = settings.proxy.iter().map(|it| format!(" {}@{}", it.scheme, it.authority));
        let all = headers.chain(parts).chain(name).chain(proxy).collect::<String>();
        format!("{}{all}", settings.server)
    }

    fn in_lines(text: &str, width: usize, end: &str) -> String {
        let encoded = STANDARD.encode(text);
        let lines = encoded.as_bytes().chunks(width).map(|it| str::from_utf8(it).unwrap());
        format!("\"{}\"", lines.map(|line| format!("{line}{end}")).collect::<String>())
    }

    const EXEC: &str =
        "apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never";

    /// `server: https://[::1]:1` is loopback, so that no proxy of the environment is in use.
    #[test]
    #[allow(clippy::too_many_lines)] // A row for each form.
    fn each_form_of_a_kubeconfig_has_the_meaning_that_client_go_gives_it() {
        let (crt, key) = (STANDARD.encode(CERTIFICATE), STANDARD.encode(KEY));
        let url = "server: \"https://[::1]:1\"";
        let https = |rest: &str| format!("{url}, {rest}");
        let data = |lines: &str| https(&format!("certificate-authority-data: {lines}"));
        let pair =
            |rest: &str| format!("client-certificate: client.crt, client-key: client.key{rest}");
        let exec = |rest: &str| format!("exec: {{{EXEC}}}{rest}");
        let (a, bearer) = ("https://[::1]:1/", " authorization=Bearer ");
        let token = |token: &str| format!("{a}{bearer}{token}");
        let mut differ = Vec::new();
        for (cluster, user, expected) in [
            // Empty strings, lists and null are absent.
            (https("certificate-authority: ''"), "token: t", token("t")),
            (https("tls-server-name: ''"), "token: t", token("t")),
            (https("proxy-url: ''"), "token: t", token("t")),
            (data("''"), "token: t", token("t")),
            (https("extensions: null, insecure-skip-tls-verify: null"), "token: t", token("t")),
            (url.into(), "username: '', password: '', token: t", token("t")),
            (url.into(), "client-certificate: '', client-key: '', token: t", token("t")),
            (url.into(), "client-certificate-data: '', client-key-data: '', token: t", token("t")),
            (url.into(), "token: '', tokenFile: token", token("of-file")),
            (url.into(), "tokenFile: '', token: t", token("t")),
            (url.into(), "as: '', as-uid: '', as-groups: [], as-user-extra: {}", a.into()),
            (url.into(), "exec: null, auth-provider: null, token: t", token("t")),
            (url.into(), "", a.into()),
            (url.into(), "password: p", a.into()),
            // The file wins, unless it has no token.
            (url.into(), "token: t, tokenFile: token", token("of-file")),
            (url.into(), "token: t, tokenFile: blank", token("t")),
            (url.into(), "token: t, tokenFile: missing", token("t")),
            (url.into(), "username: u, password: p", format!("{a} authorization=Basic dTpw")),
            // Credentials are sent over TLS only.
            ("server: 'http://[::1]:1'".into(), "token: t", "http://[::1]:1/".into()),
            ("server: 'http://[::1]:1'".into(), "username: u", "http://[::1]:1/".into()),
            ("server: 'http://[::1]:1'".into(), "tokenFile: missing", "http://[::1]:1/".into()),
            ("server: 'http://[::1]:1'".into(), &*pair(""), "http://[::1]:1/".into()),
            ("server: 'http://[::1]:1'".into(), &*exec(""), "http://[::1]:1/".into()),
            ("server: '[::1]:1'".into(), "token: t", "http://[::1]:1/".into()),
            ("server: 'localhost:1'".into(), "token: t", "http://localhost:1/".into()),
            ("server: 127.0.0.1".into(), "as: x", "http://127.0.0.1/ impersonate-user=x".into()),
            (
                "server: 127.0.0.1, insecure-skip-tls-verify: true, certificate-authority: ca.crt"
                    .into(),
                "",
                "http://127.0.0.1/".into(),
            ),
            (
                "server: 'HTTPS://[::1]:1/p/?q#f'".into(),
                "token: t",
                format!("https://[::1]:1/p{bearer}t"),
            ),
            (
                "server: 'https://u:p@[::1]:1'".into(),
                "token: t",
                format!("{a} authorization=Basic dTpw"),
            ),
            // Base64 in base64.
            (data(&crt), "", format!("{a} ca")),
            (data(&in_lines(CERTIFICATE, 64, "\\n")), "", format!("{a} ca")),
            (data(&in_lines(CERTIFICATE, 76, "\\r\\n")), "", format!("{a} ca")),
            (https("certificate-authority: ca.crt"), "", format!("{a} ca")),
            (
                url.into(),
                &*format!(
                    "client-certificate-data: {}, client-key-data: {}",
                    in_lines(CERTIFICATE, 64, "\\n"),
                    in_lines(KEY, 76, "\\n")
                ),
                format!("{a} certificate"),
            ),
            (
                url.into(),
                &*format!("client-certificate: client.crt, client-key-data: {key}"),
                format!("{a} certificate"),
            ),
            (url.into(), &*pair(", token: t"), format!("{a}{bearer}t certificate")),
            (url.into(), "client-key: missing", a.into()),
            (https("insecure-skip-tls-verify: true"), "", format!("{a} insecure")),
            (https("tls-server-name: x.y"), "", format!("{a} name=x.y")),
            (https("tls-server-name: 10.0.0.1"), "", format!("{a} name=10.0.0.1")),
            (https("disable-compression: true, other: 1"), "", a.into()),
            // The proxy of the kubeconfig is for loopback too.
            (https("proxy-url: 'http://p:3128'"), "", format!("{a} http@p:3128")),
            (https("proxy-url: 'HTTPS://u:p@p'"), "", format!("{a} https@p")),
            (https("proxy-url: 'socks5://p'"), "", format!("{a} socks5@p")),
            // Plugins.
            (url.into(), &*exec(""), format!("{a} plugin")),
            (url.into(), &*exec(", token: t"), token("t")),
            (url.into(), &*exec(", username: u"), format!("{a} authorization=Basic dTo=")),
            (url.into(), &*pair(&format!(", {}", exec(""))), format!("{a} certificate")),
            (
                url.into(),
                "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: x, args: null, env: [], installHint: ''}",
                format!("{a} plugin"),
            ),
            (
                url.into(),
                "as: u, as-uid: i, as-groups: [g, h], as-user-extra: {'a.b/C%': [v, w]}",
                format!(
                    "{a} impersonate-user=u impersonate-uid=i impersonate-group=g impersonate-group=h \
                     impersonate-extra-a.b%2fc%25=v impersonate-extra-a.b%2fc%25=w"
                ),
            ),
        ] {
            let actual = loaded(&text(&cluster, user), None);
            let actual = actual.map_or_else(|fault| fault.to_string(), |it| summary(&it));
            if actual != expected {
                differ.push(format!("{{{cluster}}} {{{user}}}: {actual}, expected {expected}"));
            }
        }
        assert!(differ.is_empty(), "{differ:#?}");
    }

    #[test]
    #[allow(clippy::too_many_lines)] // A row for each form.
    fn what_client_go_refuses_is_refused_with_its_field() {
        let url = "server: 'https://[::1]:1'";
        let https = |rest: &str| format!("{url}, {rest}");
        let exec = |rest: &str| format!("exec: {{{EXEC}, {rest}}}");
        let v1 = "client.authentication.k8s.io/v1";
        let mut differ = Vec::new();
        for (cluster, user, expected) in [
            (
                https("insecure-skip-tls-verify: true, certificate-authority: ca.crt"),
                String::new(),
                "insecure-skip-tls-verify of cluster \"a\": beside certificate-authority",
            ),
            (
                https(&format!(
                    "certificate-authority: ca.crt, certificate-authority-data: {}",
                    STANDARD.encode(CERTIFICATE)
                )),
                String::new(),
                "certificate-authority of cluster \"a\": beside data",
            ),
            (https("certificate-authority: missing"), String::new(), "/missing: No such file"),
            (https("certificate-authority: empty"), String::new(), "expected a certificate in PEM"),
            (https("certificate-authority: client.key"), String::new(), "expected a certificate"),
            (
                "server: 'http://[::1]:1', certificate-authority: missing".into(),
                String::new(),
                "/missing: No such file",
            ),
            (
                https("certificate-authority-data: 'a b'"),
                String::new(),
                "clusters[0].cluster.certificate-authority-data: expected base64",
            ),
            (https("tls-server-name: a b"), String::new(), "tls-server-name of cluster \"a\""),
            (
                https("proxy-url: 'ftp://p'"),
                String::new(),
                "proxy-url of cluster \"a\": its scheme",
            ),
            (https("proxy-url: 'p:3128'"), String::new(), "proxy-url of cluster \"a\": its scheme"),
            (https("proxy-url: 'socks5h://p'"), String::new(), "proxy-url of cluster \"a\""),
            (
                https("proxy-url: 'http://'"),
                String::new(),
                "proxy-url of cluster \"a\": it has no host",
            ),
            ("server: 'ftp://a'".into(), String::new(), "server of cluster \"a\": its scheme"),
            (
                "server: 'a/b'".into(),
                String::new(),
                "server of cluster \"a\": an address with a path",
            ),
            ("server: ''".into(), String::new(), "server of cluster \"a\": it has no host"),
            ("server: 1".into(), String::new(), "clusters[0].cluster.server: expected a string"),
            (url.into(), "token: 12345".into(), "users[0].user.token: expected a string"),
            (url.into(), "token: \"a\\nb\"".into(), "token of user \"b\": it has a character"),
            (url.into(), "token: t, username: u".into(), "token of user \"b\": beside username"),
            (url.into(), "token: t, password: p".into(), "token of user \"b\": beside username"),
            (url.into(), "tokenFile: token, username: u".into(), "tokenFile of user \"b\": beside"),
            (url.into(), "tokenFile: missing".into(), "tokenFile of user \"b\": /"),
            (url.into(), "tokenFile: empty".into(), "/empty: it has no token"),
            (url.into(), "tokenFile: blank".into(), "/blank: it has no token"),
            (url.into(), "tokenFile: binary".into(), "tokenFile of user \"b\": it has a character"),
            (url.into(), "client-certificate: client.crt".into(), "client-key of user \"b\""),
            (
                url.into(),
                "client-certificate: client.crt, client-key: ca.crt".into(),
                "client-certificate of user \"b\": its key is no private key",
            ),
            (
                url.into(),
                format!(
                    "client-certificate: client.crt, client-key: client.key, client-key-data: {}",
                    STANDARD.encode(KEY)
                ),
                "client-key of user \"b\": beside data",
            ),
            (url.into(), "as-groups: [g]".into(), "as of user \"b\": as-uid, as-groups"),
            (url.into(), "as-uid: u".into(), "as of user \"b\""),
            (
                url.into(),
                "auth-provider: {name: gcp}".into(),
                "auth-provider of user \"b\": it is not",
            ),
            (url.into(), "exec: {}".into(), "command in exec of user \"b\""),
            (url.into(), "exec: {command: x, interactiveMode: Never}".into(), "apiVersion in exec"),
            (
                url.into(),
                "exec: {command: x, interactiveMode: Never, apiVersion: v1}".into(),
                "apiVersion in exec of user \"b\": expected client.authentication",
            ),
            (
                url.into(),
                format!("exec: {{command: x, apiVersion: {v1}}}"),
                "interactiveMode in exec",
            ),
            (
                url.into(),
                format!("exec: {{command: x, apiVersion: {v1}, interactiveMode: never}}"),
                "interactiveMode in exec of user \"b\": expected Never, IfAvailable or Always",
            ),
            (url.into(), exec("env: [{value: v}]"), "env in exec of user \"b\""),
            ("server: 'http://[::1]:1'".into(), "exec: {}".into(), "command in exec of user \"b\""),
        ] {
            let actual = loaded(&text(&cluster, &user), None);
            let actual = actual.map_or_else(|fault| fault.to_string(), |it| summary(&it));
            if !actual.contains(expected) {
                differ.push(format!("{{{cluster}}} {{{user}}}: {actual}, expected {expected}"));
            }
        }
        assert!(differ.is_empty(), "{differ:#?}");
    }

    #[test]
    fn contexts_lists_and_documents_are_read_as_by_client_go() {
        let (a, b) =
            ("{name: a, cluster: {server: 'https://[::1]:1'}}", "{name: b, user: {token: t}}");
        let c = "{name: c, context: {cluster: a, user: b}}";
        let all = format!("clusters: [{a}]\nusers: [{b}]\ncontexts: [{c}]\n");
        let used = |text: &str, master| loaded(text, master).map(|it| summary(&it));
        let full = "https://[::1]:1/ authorization=Bearer t";
        let json = "{\"current-context\": \"c\", \"clusters\": [{\"name\": \"a\", \"cluster\": \
                    {\"server\": \"https://[::1]:1\"}}], \"users\": [{\"name\": \"b\", \"user\": \
                    {\"token\": \"t\"}}], \"contexts\": [{\"name\": \"c\", \"context\": \
                    {\"cluster\": \"a\", \"user\": \"b\"}}]}";
        for (text, master, expected) in [
            (format!("{all}current-context: c"), None, full),
            (format!("\u{feff}---\n{all}current-context: c\n---\nkind: Other"), None, full),
            (json.to_owned(), None, full),
            (format!("{all}current-context: c\nkind: ''\napiVersion: ''"), None, full),
            (format!("{all}current-context: c\nextensions: null\nother: [1]"), None, full),
            (all.replace("name: c", "name: ''"), None, full),
            // Fields of other kinds of entries.
            (
                all.replace("name: a,", "name: a, user: 1, context: [2],") + "current-context: c",
                None,
                full,
            ),
            (all.replace("user: b}", "user: x}") + "current-context: c", None, "https://[::1]:1/"),
            // --master takes the place of the address, without its scheme and its name.
            (format!("{all}current-context: c"), Some("localhost:2"), "http://localhost:2/"),
            (
                all.replace("server:", "tls-server-name: x, server:") + "current-context: c",
                Some("https://localhost:2"),
                "https://localhost:2/ authorization=Bearer t",
            ),
            (all.clone(), Some("localhost:2"), "http://localhost:2/"),
            (String::new(), Some("https://localhost:2/p"), "https://localhost:2/p"),
        ] {
            assert_eq!(used(&text, master).unwrap(), expected, "{text}");
        }
        for (text, expected) in [
            (format!("{all}current-context: x"), "current-context: contexts has no \"x\""),
            (all.clone(), "it selects no cluster"),
            (String::new(), "it selects no cluster"),
            ("---\n# nothing\n".to_owned(), "it selects no cluster"),
            (
                all.replace("cluster: a,", "cluster: x,") + "current-context: c",
                "clusters has no \"x\"",
            ),
            (format!("{all}current-context: c\nkind: config"), "kind: expected Config"),
            (format!("{all}current-context: c\nkind: Pod"), "kind: expected Config"),
            (format!("{all}current-context: c\napiVersion: v2"), "apiVersion: expected v1"),
            (all.replace(a, &format!("{a}, {a}")), "clusters: two have the name \"a\""),
            (all.replace(b, &format!("{b}, {b}")), "users: two have the name \"b\""),
            (all.replace(c, &format!("{c}, {c}")), "contexts: two have the name \"c\""),
            ("clusters: 1".to_owned(), "clusters: expected a sequence"),
            ("[".to_owned(), "its text: line "),
        ] {
            let fault = used(&text, None).unwrap_err().to_string();
            assert!(fault.contains(expected), "{text}\n{fault}");
        }
        let error = used(&all, Some("a/b")).unwrap_err().to_string();
        assert!(error.starts_with("--master: "), "{error}");
    }
}
