//! Frontends for the status page: a line each, without their endpoints.

use serde::Serialize;

use crate::show::view::View;

/// A frontend.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Brief {
    /// `namespace/name`; empty if the tables have none.
    pub service: String,
    /// Name of the port.
    pub port_name: String,
    /// As `10.96.0.1:443/tcp`; a node port as [`Services::address`](crate::show::Services)
    /// formats it.
    pub frontend: String,
    /// Kind of the address.
    pub kind: &'static str,
    /// `None` if the tables are equal with both policies.
    pub policy: Option<&'static str>,
    /// Treatment of a new connection from outside.
    pub scheduler: String,
    /// Nodes hand packets to this address to each other.
    pub direct_return: bool,
    /// Number of endpoints that get new connections.
    pub endpoints: usize,
    /// Number of those on this node.
    pub local: usize,
}

/// Returns an entry for each frontend of a view.
pub fn brief(view: View<'_>) -> Vec<Brief> {
    let brief = view.rows().map(|row| {
        let (service, port_name) = row.entry.name();
        Brief {
            service: service.to_owned(),
            port_name: port_name.to_owned(),
            frontend: view.address(&row.entry.frontend),
            kind: row.kind.word(),
            policy: row.policy.map(|policy| policy.word()),
            scheduler: row.scheduler.to_string(),
            direct_return: row.entry.is_direct,
            endpoints: row.serving(),
            local: row.local(),
        }
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
            let lines = brief(View { places: &matches.places, ..view });
            (matches.count, lines.into_iter().map(|it| it.frontend).collect::<Vec<_>>())
        };
        let web = ["10.96.0.10:80/tcp", "*:30080/tcp"].map(str::to_owned);
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
                let lines = brief(View { places: &matches.places, ..view });
                let found: Vec<_> = lines.iter().map(|line| &*line.frontend).collect();
                assert_eq!(found, [listed], "{text}");
            }
            assert_eq!(view.services.search("192.168.70.2:", 9).count, 0);
            assert_eq!(view.services.search("*:30080", 9).count, 0);
        }
    }

    #[test]
    fn a_line_counts_the_endpoints_of_new_connections() {
        let sample = SampleServices::new();
        let line = brief(sample.view()).into_iter().find(|it| it.frontend == "10.96.0.10:80/tcp");
        let line = line.unwrap();
        assert_eq!((&*line.service, &*line.port_name), ("default/web", "http"));
        assert_eq!((line.endpoints, line.local), (2, 1), "one more is draining");
        assert_eq!((line.kind, &*line.scheduler), ("cluster-ip", "random"));
    }
}
