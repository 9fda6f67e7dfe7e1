#!/bin/sh
# Which strings survive from one YAML library to another.
#
# Guess: each writes quotes where another could read something else than a string.
# Truth: each quotes what itself would read otherwise. PyYAML reads YAML 1.1 and writes `7183e10`,
#   `0o17` and `030080` without quotes, which the readers of YAML 1.2 take for numbers: a label with
#   the short hash of a commit becomes 71830000000000. `yaml` of npm and ruamel.yaml write `no`,
#   `10:20` and `52:54:00:12:34:56` without quotes, which PyYAML takes for false, 620 and 41135085296.
#   `yaml` writes `=` without quotes, which is an error for both of Python's. js-yaml quotes all.
# Version: PyYAML 6.0.3 and ruamel.yaml 0.19.1 of PyPI, js-yaml 4.1.0 and yaml 2.8.1 of npm.
# Who meets it: who writes manifests with one and reads them with another: labels, annotations and
#   values of environment variables are strings, and a Kubernetes server refuses numbers there.
#
# Fetches the packages into a temporary folder. Needs python3 with pip, node and npm.
# Exits with 1 if the versions behave otherwise.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
    --target python PyYAML==6.0.3 ruamel.yaml==0.19.1
npm install --silent --no-audit --no-fund --ignore-scripts --prefix . js-yaml@4.1.0 yaml@2.8.1 >&2
cat >javascript.js <<'END'
// Writes or reads a list of documents: LIBRARY dump|load JSON.
const [library, task, json] = process.argv.slice(2);
const yaml = require(library);
const dump = yaml.dump ?? yaml.stringify;
const load = yaml.load ?? yaml.parse;
console.log(JSON.stringify(JSON.parse(json).map(task === "dump" ? (value) => dump(value) : (text) => load(text))));
END
PYTHONPATH=python python3 - <<'END'
import io
import json
import subprocess

import ruamel.yaml
import yaml

STRINGS = ["7183e10", "0o17", "030080", "no", "10:20", "52:54:00:12:34:56", "="]
NAMES = ["PyYAML", "ruamel.yaml", "js-yaml", "yaml"]


def ruamel_dump(value):
    text = io.StringIO()
    ruamel.yaml.YAML().dump(value, text)
    return text.getvalue()


def load(library, text):
    if library == "PyYAML":
        return yaml.safe_load(text)
    return ruamel.yaml.YAML(typ="safe", pure=True).load(text)


def read(library, text):
    try:
        return load(library, text)["a"]
    except (yaml.YAMLError, ruamel.yaml.error.YAMLError):
        return "an error"


def javascript(library, task, documents):
    command = ["node", "javascript.js", library, task, json.dumps(documents)]
    return json.loads(subprocess.check_output(command))


documents = [{"a": string} for string in STRINGS]
written = {
    "PyYAML": [yaml.safe_dump(document) for document in documents],
    "ruamel.yaml": [ruamel_dump(document) for document in documents],
    "js-yaml": javascript("js-yaml", "dump", documents),
    "yaml": javascript("yaml", "dump", documents),
}
found = {}
for writer, texts in written.items():
    for reader in NAMES:
        if reader in ("PyYAML", "ruamel.yaml"):
            values = [read(reader, text) for text in texts]
        else:
            values = [document["a"] for document in javascript(reader, "load", texts)]
        differ = {s: v for s, v in zip(STRINGS, values, strict=True) if s != v}
        print(f"{writer} writes, {reader} reads: {differ or 'the same strings'}")
        if differ:
            found[writer, reader] = differ
numbers = {"7183e10": 71830000000000, "0o17": 15, "030080": 30080}
of_1_1 = {"no": False, "10:20": 620, "52:54:00:12:34:56": 41135085296}
assert found == {
    ("PyYAML", "ruamel.yaml"): numbers,
    ("PyYAML", "js-yaml"): numbers,
    ("PyYAML", "yaml"): numbers,
    ("ruamel.yaml", "PyYAML"): of_1_1,
    ("yaml", "PyYAML"): of_1_1 | {"=": "an error"},
    ("yaml", "ruamel.yaml"): {"=": "an error"},
}, found
END
