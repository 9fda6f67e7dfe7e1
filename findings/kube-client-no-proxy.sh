#!/bin/sh
# Which servers kube-client reaches without the proxy.
#
# Guess: those that NO_PROXY lists, as in kubectl. `proxy-url` of the kubeconfig is used for any server.
# Truth: NO_PROXY is compared with the address of the proxy. If it lists the API server, the proxy is
#   used all the same. If it has a range such as 10.0.0.0/8 that the proxy is in, no server is reached
#   through the proxy, also if `proxy-url` names it. A list that ends with a comma is an error.
# Version: the crate kube-client 5.0.0 with its feature `http-proxy`.
# Who meets it: controllers in Rust that run outside of the cluster, where the same variables
#   work for kubectl: they hang or get an error of the proxy, or connect where only the proxy may.
#
# Fetches the crates into a temporary folder and builds them, which takes more than a minute. Asks for
# the settings of a client alone: nothing connects. Needs cargo of Rust 1.89.
# Exits with 1 if the version behaves otherwise.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
mkdir "$folder/src"
cat >"$folder/Cargo.toml" <<'END'
[package]
name = "settings"
version = "0.0.0"
edition = "2024"

[dependencies]
kube-client = { version = "=5.0.0", default-features = false, features = ["config", "http-proxy"] }
k8s-openapi = { version = "=0.29.0", default-features = false, features = ["earliest"] }

[profile.dev]
debug = false
END
cat >"$folder/src/main.rs" <<'END'
//! Prints the proxy of the kubeconfig's cluster, by the variables of the environment.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use kube_client::config::{Config, KubeConfigOptions};

fn main() {
    let options = KubeConfigOptions::default();
    let settings = pin!(Config::from_kubeconfig(&options));
    match settings.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(settings)) => match settings.proxy_url {
            Some(proxy) => println!("{proxy}"),
            None => println!("none"),
        },
        Poll::Ready(Err(error)) => println!("error: {error}"),
        Poll::Pending => println!("waits"),
    }
}
END
CARGO_TARGET_DIR=$folder/target nice cargo build --quiet --jobs 1 --manifest-path "$folder/Cargo.toml"

# PROXY-URL: a kubeconfig.
kubeconfig() {
    cat <<END
apiVersion: v1
kind: Config
current-context: node
contexts: [{ name: node, context: { cluster: site, user: node } }]
clusters: [{ name: site, cluster: { server: "https://api.example:6443"$1 } }]
users: [{ name: node, user: {} }]
END
}
kubeconfig '' >"$folder/plain"
kubeconfig ', proxy-url: "http://10.0.0.9:3128"' >"$folder/with-proxy"

# KUBECONFIG HTTPS_PROXY NO_PROXY EXPECTED
wrong=0
trial() {
    proxy=$(env -u https_proxy -u no_proxy KUBECONFIG="$folder/$1" HTTPS_PROXY="$2" NO_PROXY="$3" \
        "$folder/target/debug/settings")
    echo "kubeconfig $1, HTTPS_PROXY=$2 NO_PROXY=$3: the proxy of https://api.example:6443 is $proxy"
    [ "$proxy" = "$4" ] || wrong=1
}
trial plain http://10.0.0.9:3128 '' http://10.0.0.9:3128/
trial plain http://10.0.0.9:3128 api.example http://10.0.0.9:3128/
trial plain http://10.0.0.9:3128 localhost,10.0.0.0/8 none
trial with-proxy '' 10.0.0.0/8 none
trial plain http://10.0.0.9:3128 localhost, 'error: failed to parse NO_PROXY/no_proxy env var'
exit $wrong
