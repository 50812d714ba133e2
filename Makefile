# The commands of this repository. CI uses the same ones.

SHELL := bash
PROFILE ?= dev
CHECK ?=
export PROFILE CHECK

.DEFAULT_GOAL := help
.PHONY: help build demo test test-kubectls informers soak bench profile lint

KUBECTLS := $(notdir $(patsubst %/go.mod,%,$(wildcard tests/kubernetes/kubectl/*/go.mod)))

help: ## Show this
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{ printf "  make %-13s %s\n", $$1, $$2 }'

build: ## Build the binary (PROFILE=release for an optimised one)
	cargo build --locked --profile $(PROFILE)

demo: ## Two local clusters, the service and an example platform, until Ctrl-C; CHECK=1 walks the main job and judges it
	@deploy/demo/demo.sh

test: ## All tests; those with a real Kubernetes build it the first time
	@echo "local Kubernetes: looking for the built one" >&2
	@tests/kubernetes/build.sh >/dev/null
	@tests/kubernetes/build.sh kubectl $(firstword $(KUBECTLS)) >/dev/null
	@tests/kubernetes/build.sh helm >/dev/null
	cargo test --locked --all-targets
	cd tests/kubernetes && CGO_ENABLED=0 go vet -trimpath ./... && CGO_ENABLED=0 go test -trimpath ./...
	cd tests/requestinfo && CGO_ENABLED=0 go vet -trimpath ./...
	cd tests/informers && CGO_ENABLED=0 go vet -trimpath ./...
	cd tests/network && CGO_ENABLED=0 go vet -trimpath ./... && CGO_ENABLED=0 go test -trimpath ./...

test-kubectls: ## kubectl 1.32 to 1.35, each in full; `make test` has 1.36 and 1.32 only
	@for version in $(KUBECTLS); do tests/kubernetes/build.sh kubectl $$version >/dev/null || exit; done
	BAILIWICK_KUBECTLS="$(KUBECTLS)" cargo test --locked --test service older_kubectls -- --nocapture

informers: ## Caches of real clients through 20 random schedules of outages and changes, and one with a client away for a minute
	BAILIWICK_SCHEDULES=20 BAILIWICK_LONG=1 cargo test --locked --test endurance caches_of_real_clients -- --nocapture

soak: ## Mixed load for 15 minutes (BAILIWICK_SOAK_SECONDS) while accounts are suspended and resumed at random
	BAILIWICK_SOAK_SECONDS=$${BAILIWICK_SOAK_SECONDS:-900} cargo test --locked --test endurance suspended_accounts -- --nocapture

bench: ## Compare with nginx and with no proxy at all, and the index at scale; writes target/bench/{proxy,scale}.json
	cargo bench --locked --bench scale
	cargo bench --locked --bench proxy

profile: ## A flame graph of the small GET in target/bench/small-get.svg; needs perf
	@command -v inferno-flamegraph >/dev/null || cargo install --locked --quiet inferno
	@mkdir -p target/bench
	BENCH_PROFILE=$(CURDIR)/target/bench/small-get.data cargo bench --locked --bench proxy
	perf script --no-inline --input target/bench/small-get.data 2>/dev/null | inferno-collapse-perf --quiet | inferno-flamegraph --title "small GET" > target/bench/small-get.svg
	@echo "written: target/bench/small-get.svg"

lint: ## Formatting, clippy, and the shell scripts where ShellCheck is installed
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	@if command -v shellcheck >/dev/null; then shellcheck -x .ci/run deploy/demo/*.sh; else echo "shellcheck is not installed; skipped"; fi
