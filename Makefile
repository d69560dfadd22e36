# The few commands people need. Everything else is cargo's, or `symphony help`.

.DEFAULT_GOAL := help
.PHONY: help setup setup-tests build demo test test-rdma cuda-kit sim-soak bench fmt

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what the build and the demo need beyond a Rust toolchain
	deploy/setup/setup.sh

setup-tests: ## also the clients that the integration tests use
	deploy/setup/setup.sh --tests

build: ## build the release binary, target/release/symphony
	cargo build --release --locked --package symphony

demo: setup build ## run the whole system on this machine on real input; ends with a report
	target/release/symphony demo

test: setup-tests ## everything CI runs: format, lints, checks, documentation, tests
	cargo xtask verify

test-rdma: ## run the RDMA transport over Soft-RoCE in a small virtual machine: PULLS=pulls that are measured
	tests/rdma/test.sh $(PULLS)

cuda-kit: ## build what a machine with a GPU needs to run the device tests and record figures: docs/cuda.md
	deploy/cuda/kit.sh

sim-soak: ## simulate cluster after cluster until one breaks a promise: FROM=first seed, JOBS=at a time, SECONDS_EACH
	cargo run --locked --package symphony-netsim -- soak --from $(or $(FROM),1) --jobs $(or $(JOBS),2) --trouble-s $(or $(SECONDS_EACH),30)

bench: ## run the benchmarks of the hot structures
	cargo bench --locked --package symphony-benches

fmt: ## format, and apply what clippy can apply by itself
	cargo xtask fix
