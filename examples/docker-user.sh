#!/bin/sh
# Accepts what Docker's policy DROP drops: connections to services, which were translated on this node,
# and their answers. Run it at each boot, after Docker.
iptables -I DOCKER-USER -m conntrack --ctstate DNAT -j ACCEPT
