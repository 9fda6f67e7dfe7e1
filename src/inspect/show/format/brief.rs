//! Frontends for the status page: a line each, without their endpoints.

use serde_json::{Value, json};

use crate::show::view::View;

/// Returns an entry for each frontend of a view. A node port has the address that
/// [`Services::address`](crate::show::Services) formats; the policy is `null` if the tables are
/// equal with both.
pub fn brief(view: View<'_>) -> Vec<Value> {
    let brief = view.rows().map(|row| {
        let (service, port_name) = row.entry.name();
        json!({
            "service": service,
            "port_name": port_name,
            "frontend": view.address(&row.entry.frontend),
            "kind": row.kind.name(),
            "policy": row.policy.map(|policy| policy.name()),
            "scheduler": row.scheduler.to_string(),
            "direct_return": row.entry.is_direct,
            "endpoints": row.serving(),
            "local": row.local(),
        })
    });
    brief.collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample::SampleServices;
    use super::*;

    #[test]
    fn a_search_finds_parts_of_names_and_addresses() {
        let sample = SampleServices::new();
        let view = sample.view();
        let found = |text: &str, most| {
            let matches = view.services.search(text, most);
            let lines = brief(View { places: &matches.rows, ..view });
            (matches.count, lines.into_iter().map(|it| it["frontend"].clone()).collect::<Vec<_>>())
        };
        let web = ["10.96.0.10:80/tcp", "*:30080/tcp"].map(Value::from);
        assert_eq!(found("lt/WEB:h", 9), (2, web.to_vec()));
        assert_eq!(found("web", 1), (2, web[..1].to_vec()));
        assert_eq!(found("*:30080/", 9), (1, web[1..].to_vec()));
        assert_eq!(found("10.96.0.", 0).0, 3);
        assert_eq!(found("other", 9), (0, vec![]));
    }

    #[test]
    fn a_node_port_is_listed_and_found_at_the_addresses_that_serve_it() {
        let addresses = ["192.168.60.2", "192.168.50.2"];
        for (served, listed) in
            [(&addresses[1..], "192.168.50.2:30080/tcp"), (&addresses, "192.168.50.2+1:30080/tcp")]
        {
            let sample = SampleServices::new().with_node_port_addresses(served);
            let view = sample.view();
            let texts = served.iter().map(|address| format!("{address}:30080/tcp"));
            for text in texts.chain(["192.168.".to_owned(), listed.to_owned()]) {
                let matches = view.services.search(&text, 9);
                let lines = brief(View { places: &matches.rows, ..view });
                let found: Vec<_> = lines.iter().map(|line| &line["frontend"]).collect();
                assert_eq!(found, [listed], "{text}");
            }
            assert_eq!(view.services.search("192.168.70.2:", 9).count, 0);
            assert_eq!(view.services.search("*:30080", 9).count, 0);
        }
    }

    #[test]
    fn a_line_counts_the_endpoints_of_new_connections() {
        let sample = SampleServices::new();
        let lines = brief(sample.view());
        let line = lines.iter().find(|it| it["frontend"] == "10.96.0.10:80/tcp").unwrap();
        let expected = json!({
            "service": "default/web",
            "port_name": "http",
            "frontend": "10.96.0.10:80/tcp",
            "kind": "cluster-ip",
            "policy": line["policy"],
            "scheduler": "random",
            "direct_return": false,
            // One more is draining.
            "endpoints": 2,
            "local": 1,
        });
        assert_eq!(*line, expected);
    }
}
