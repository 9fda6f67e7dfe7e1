//! Virtual servers of IPVS, the link that has their addresses, and ipsets.

use std::{fs, io};

use network::{IFINFOMSG_LENGTH, Rtnetlink};
use nix::libc::{IFLA_IFNAME, RTM_DELLINK};
use nix::net::if_::if_nametoindex;

use super::names::{LINK, is_ipset_of_kube_proxy};
use super::programs::NodeFiles;
use super::removal::{RemovalError, Removed};

/// Removes all virtual servers, then the link.
///
/// The link marks a node on which kube-proxy ran in mode ipvs. In that mode, kube-proxy itself
/// deletes virtual servers of other programs. Without the link, they belong to another program and
/// are kept.
pub(super) fn remove(node: &NodeFiles) -> Result<Option<Removed>, RemovalError> {
    if if_nametoindex(LINK).is_err() {
        return Ok(None);
    }
    let services = services(node);
    let ipvsadm = node.programs.find("ipvsadm");
    if let Some(ipvsadm) = &ipvsadm
        && services > 0
    {
        node.programs.run(ipvsadm, &["--clear"], String::new())?;
    }
    delete_link(LINK)?;
    Ok(Some(match ipvsadm {
        None if services > 0 => Removed::LinkAlone { services },
        Some(_) | None => Removed::Link { services },
    }))
}

/// Returns the number of virtual servers.
fn services(node: &NodeFiles) -> usize {
    // The line of a service begins with its protocol, that of a server with an arrow.
    let text = fs::read_to_string(node.net.join("ip_vs")).unwrap_or_default();
    let protocols = ["TCP ", "UDP ", "SCTP ", "FWM "];
    text.lines().filter(|line| protocols.iter().any(|it| line.starts_with(it))).count()
}

/// Removes kube-proxy's ipsets, to which no rule may refer any more. Does nothing without the
/// program, or if the kernel has not loaded ip_set, because the program would load it.
pub(super) fn remove_ipsets(node: &NodeFiles) -> Result<Option<Removed>, RemovalError> {
    let Some(ipset) = node.programs.find("ipset") else { return Ok(None) };
    if !node.modules.join("ip_set").exists() {
        return Ok(None);
    }
    let listed = node.programs.run(&ipset, &["list", "-name"], String::new())?;
    let sets: Vec<_> = listed.lines().filter(|name| is_ipset_of_kube_proxy(name)).collect();
    if sets.is_empty() {
        return Ok(None);
    }
    let script = sets.iter().map(|name| format!("destroy {name}\n")).collect();
    node.programs.run(&ipset, &["restore"], script)?;
    Ok(Some(Removed::Ipsets(sets.len())))
}

/// Deletes the link of this name in the network namespace of this thread: `RTM_DELLINK` of
/// `<linux/rtnetlink.h>`.
fn delete_link(name: &str) -> io::Result<()> {
    // With family and index 0, the kernel finds the link by its name.
    let fixed = [0; IFINFOMSG_LENGTH];
    Rtnetlink::open()?.change(RTM_DELLINK, 0, &fixed, |w| w.str(IFLA_IFNAME, name))
}

#[cfg(test)]
mod tests {
    use super::super::programs::tests::Scripts;
    use super::*;

    #[test]
    fn services_are_counted_without_their_servers() {
        let scripts = Scripts::new(&[]);
        let text = "IP Virtual Server version 1.2.1 (size=4096)\n\
                    Prot LocalAddress:Port Scheduler Flags\n  \
                      -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n\
                    TCP  0A600001:01BB rr\n  \
                      -> C0A83202:192B      Masq    1      0          0\n\
                    UDP  0A60000A:0035 rr\n";
        let node = NodeFiles::at(scripts.0.path(), scripts.programs());
        assert_eq!(services(&node), 0);
        fs::write(scripts.0.path().join("ip_vs"), text).unwrap();
        assert_eq!(services(&node), 2);
    }

    #[test]
    fn ipsets_of_kube_proxy_are_destroyed_and_others_are_kept() {
        let list = "printf 'KUBE-CLUSTER-IP\\ncali40all\\nKUBE-6-LOOP-BACK\\n'";
        let body = format!("case $1 in list) {list};; restore) cat > script;; esac");
        let scripts = Scripts::new(&[("ipset", &body)]);
        let node = NodeFiles::at(scripts.0.path(), scripts.programs());
        assert_eq!(remove_ipsets(&node).unwrap(), None);
        fs::create_dir(scripts.0.path().join("ip_set")).unwrap();
        assert_eq!(remove_ipsets(&node).unwrap(), Some(Removed::Ipsets(2)));
        let script = scripts.file("script");
        assert_eq!(script.as_deref(), Some("destroy KUBE-CLUSTER-IP\ndestroy KUBE-6-LOOP-BACK\n"));
    }
}
