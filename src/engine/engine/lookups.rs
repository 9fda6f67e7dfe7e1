//! Rules that suit the running kernel.

use nft::kernel::Release;

use super::Engine;
use crate::ruleset::Lookups;

impl Engine {
    /// Makes the rules suit a kernel of this release; an unknown one may be old. Without this call
    /// they suit the newest.
    pub fn suit_kernel(&mut self, release: Option<Release>) {
        let is_new = release.is_some_and(|release| release >= Release::REPEATED_LOOKUPS);
        self.lookups = if is_new { Lookups::Repeated } else { Lookups::Once };
        self.render_tables();
    }
}

#[cfg(test)]
mod tests {
    use nft::TableFlags;

    use super::*;
    use crate::routing::Routing;

    /// The texts of all rules of both tables for a kernel.
    fn rules(everywhere: bool, release: Option<Release>) -> Vec<String> {
        let mut routing = Routing::default();
        if everywhere {
            routing.node_port_addresses = "all".parse().unwrap();
        }
        let mut engine = Engine::new(routing, TableFlags::default());
        engine.suit_kernel(release);
        let bases = engine.tables.iter().map(|table| (table.family, &table.desired));
        let rules = bases.flat_map(|(family, base)| {
            let rules = base.chains.iter().flat_map(|spec| &*spec.rules);
            rules.map(move |rule| format!("{}: {}", rule.chain, rule.text(family)))
        });
        rules.collect()
    }

    fn lookups_in(rules: &[String], set: &str) -> usize {
        let set = format!("map @{set}");
        let is_lookup =
            |rule: &&String| rule.split(' ').collect::<Vec<_>>().join(" ").contains(&set);
        rules.iter().filter(is_lookup).count()
    }

    #[test]
    fn kernels_before_6_17_look_up_each_frontend_twice() {
        let release = |minor| Some(Release { major: 6, minor });
        for everywhere in [false, true] {
            let [old, new] = [release(16), release(17)].map(|it| rules(everywhere, it));
            assert_eq!(rules(everywhere, None), old, "an unknown kernel may be old");
            for set in ["services", "nodeports", "unserved-services", "unserved-nodeports"] {
                let counts = [&old, &new].map(|rules| lookups_in(rules, &format!("{set} ")));
                assert_eq!(counts, [8, 4], "{set} by two chains of two tables: {everywhere}");
            }
            for set in ["internal-services", "internal-nodeports"] {
                assert_eq!([&old, &new].map(|rules| lookups_in(rules, set)), [4, 2], "{set}");
            }
        }
    }

    #[test]
    fn a_lookup_that_hits_is_followed_by_the_same_rules_on_every_kernel() {
        let [old, new] = [16, 17].map(|minor| rules(false, Some(Release { major: 6, minor })));
        let is_of_hit = |rule: &&String| {
            let misses = ["nat-prerouting", "nat-output", "internal-traffic"];
            !misses.iter().any(|chain| rule.starts_with(chain))
        };
        let of_hits =
            |rules: &[String]| rules.iter().filter(is_of_hit).cloned().collect::<Vec<_>>();
        assert_eq!(of_hits(&old), of_hits(&new));
    }
}
