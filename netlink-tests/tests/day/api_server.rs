//! The API server is lost and found, and its certificate authority and tokens are replaced.

use netlink_tests::apiserver::Authority;

use crate::node::{Day, SOON, web_endpoints};
use crate::signs::{FINE, Signs};

/// The condition without a watch, without the time.
const LOST: &str = "ready, but out of date: no watch of endpointslices, nodes, servicecidrs, \
                    services for";

/// The server is down, and an endpoint changes meanwhile.
pub(crate) fn lose(day: &mut Day) {
    day.begin("the API server is lost");
    day.api.stop();
    day.api.push(web_endpoints(&["10.244.1.6"]));
    let lost = Signs { condition: Some(LOST), alerts: &["DeltaproxyWatchDisconnected"], ..FINE };
    day.expect(&lost);
    let verified = day.verify();
    assert_eq!(verified.code(), Some(2), "{}", verified.stdout);
    assert!(verified.stderr.contains("the API server cannot be reached"), "{}", verified.stderr);
    day.daemon().wait_for_line("the API server cannot be reached", SOON);
    day.expect_no_failure();

    day.begin("the API server is back");
    day.api.reopen();
    let changed = Signs { causes: Some(&["event"]), endpoints: Some(&["10.244.1.6"]), ..FINE };
    day.expect(&changed);
    day.daemon().wait_for_line(" again after ", SOON);
    day.api.push(web_endpoints(&["10.244.1.5"]));
    day.expect(&Signs { causes: Some(&["event"]), ..FINE });
    day.expect_no_failure();
}

/// The server gets another authority and demands another token before the files have them.
pub(crate) fn rotate_credentials(day: &mut Day) {
    day.begin("the certificate authority is replaced");
    let other = Authority::new();
    day.api.use_tls(&other, None);
    let lost = Signs { condition: Some(LOST), alerts: &["DeltaproxyWatchDisconnected"], ..FINE };
    day.expect(&lost);
    day.daemon().wait_for_line("no TLS connection to the API server", SOON);
    day.credentials.replace(&[("ca.crt", &other.pem())]);
    day.expect(&FINE);
    day.expect_no_failure();

    day.begin("the token is replaced");
    day.api.demand_token("second");
    day.expect(&lost);
    day.daemon().wait_for_line("does not accept the credentials (401)", SOON);
    day.credentials.replace(&[("token", "second")]);
    day.expect(&FINE);
    day.expect_no_failure();
    assert!(day.verify().ok().starts_with("the tables are as desired: "));
}
