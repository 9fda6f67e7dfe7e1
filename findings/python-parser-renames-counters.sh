#!/bin/sh
# Which names Prometheus's Python parser gives to counters of the text format.
#
# Guess: those of the text, and a page that is parsed and written again has the same series.
# Truth: the parser makes OpenMetrics of what it reads. A counter whose name does not end in `_total`
#   gets it, and a counter whose name does gives its family a name without it. If a page has
#   `kubelet_evictions` and `kubelet_evictions_total`, the program gets two families with one name and
#   the same series twice, and writes it twice. A series without a type keeps its name.
# Version: prometheus-client 0.26.0 of PyPI.
# Who meets it: programs in Python that read a kubelet's metrics. It has counters without `_total`, and
#   newer ones have both names while the old one is deprecated: a look for the old name finds nothing,
#   and a sum counts twice.
#
# Fetches the package into a temporary folder. Needs python3 with pip.
# Exits with 1 if the version behaves otherwise.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
    --target "$folder" prometheus-client==0.26.0
PYTHONPATH=$folder python3 - <<'END'
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

PAGE = """\
# TYPE kubelet_evictions counter
kubelet_evictions{eviction_signal="memory.available"} 3.0
# TYPE kubelet_evictions_total counter
kubelet_evictions_total{eviction_signal="memory.available"} 3.0
evictions_without_type 3.0
"""


class Page:
    def collect(self):
        return text_string_to_metric_families(PAGE)


registry = CollectorRegistry()
registry.register(Page())
names = [(family.name, family.samples[0].name) for family in Page().collect()]
written = [line for line in generate_latest(registry).decode().splitlines() if line[0] != "#"]
read = [line for line in PAGE.splitlines() if line[0] != "#"]
for line, (family, sample), again in zip(read, names, written, strict=True):
    print(f"{line}: family {family}, sample {sample}, written as {again}")
assert names == [
    ("kubelet_evictions", "kubelet_evictions_total"),
    ("kubelet_evictions", "kubelet_evictions_total"),
    ("evictions_without_type", "evictions_without_type"),
], names
assert written == [read[1], read[1], read[2]], written
END
