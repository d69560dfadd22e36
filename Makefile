# The few commands people need. Everything else is cargo's, or `symphony help`.

.DEFAULT_GOAL := help
.PHONY: help setup setup-tests setup-packages build demo image deb tarball manifests-check test-packages test upgrade test-random test-rdma cuda-kit sim-soak bench bench-frames bench-grpc bench-door bench-executor bench-prediction bench-payloads bench-early bench-prefix bench-pipeline bench-live fmt

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what the build and the demo need beyond a Rust toolchain
	deploy/setup/setup.sh

setup-tests: ## also the clients that the integration tests use
	deploy/setup/setup.sh --tests

build: ## build the release binary, target/release/symphony
	cargo build --release --locked --package symphony

# Without what the demo does not need (the features of crates/programs/symphony). `top` stays: without it dependencies have other features,
# and the next build would make nearly everything again.
demo: setup ## run the whole system on this machine on real input; ends with a report
	cargo build --release --locked --package symphony --no-default-features --features top
	target/release/symphony demo

setup-packages: ## what makes and tries the packages: mmdebstrap, buildah, podman
	deploy/setup/packages.sh --tests

image: setup build ## make the OCI image localhost/symphony:VERSION, and an archive of it in target/packages
	deploy/setup/packages.sh
	deploy/image/build.sh --archive

deb: setup build ## make target/packages/symphony_VERSION_MACHINE.deb: program, ONNX Runtime, systemd units
	deploy/setup/packages.sh
	deploy/packages/deb.sh

tarball: setup build ## make target/packages/symphony-VERSION-linux-MACHINE.tar.xz, its SBOM and SHA256SUMS
	deploy/setup/packages.sh
	deploy/packages/tarball.sh

manifests-check: ## check deploy/kubernetes against the API's schemas and against what the program takes
	deploy/setup/setup.sh --tests
	cargo build --locked --package symphony
	.cache/venv/bin/python deploy/kubernetes/check.py target/debug/symphony

test-packages: setup-packages image deb tarball ## try image, package and manual as users would: containers, a Debian, three machines
# 3, and nothing else, says that this machine runs no containers, or makes no network namespaces.
	tests/packages/image.sh || test $$? = 3
	tests/packages/deb.sh
	tests/packages/three_machines.sh || test $$? = 3

# What the set-up has installed may not be passed over.
test: setup-tests ## everything CI runs: format, lints, checks, documentation, tests
	SYMPHONY_TEST_REQUIRE=onnxruntime,highs,promtool,prometheus cargo xtask verify

upgrade: setup build ## upgrade a loaded cluster, process by process, from FROM=tag, commit or program; before each release
	benches/upgrade.py $(or $(FROM),$(error FROM= is to name the release before: a tag, a commit or a program)) target/release/symphony

test-random: ## the property tests with other random inputs: SEED=first seed (the clock's seconds), ROUNDS=seeds
	cargo xtask random $(if $(SEED),--seed $(SEED)) --rounds $(or $(ROUNDS),10)

test-rdma: ## run the RDMA transport over Soft-RoCE in a small virtual machine: PULLS=pulls that are measured
	tests/rdma/test.sh $(PULLS)

cuda-kit: ## build what a machine with a GPU needs to run the device tests and record figures: docs/operating/cuda.md
	deploy/cuda/kit.sh

sim-soak: ## simulate cluster after cluster until one breaks a promise: FROM=first seed, JOBS=at a time, SECONDS_EACH
	cargo run --locked --package symphony-netsim -- soak --from $(or $(FROM),1) --jobs $(or $(JOBS),2) --trouble-s $(or $(SECONDS_EACH),30)

bench: ## run the benchmarks of the hot structures
	cargo bench --locked --package symphony-benches

bench-frames: ## requests per second and latency from a frontend's process to a scheduler's, a core each
	cargo run --release --locked --package symphony-benches --bin frame-rate

bench-grpc: build ## the Open Inference Protocol on two cores, cluster and all: highest rate, latency at 1000/s
	benches/grpc_rate.py target/release/symphony

bench-door: build ## what TLS, keys and quotas at the public ports cost: on and off in pairs
	benches/front_door.py target/release/symphony

bench-executor: ## the executor beside ONNX Runtime's own Python: same model, batch, core
	deploy/setup/setup.sh --benches
	cargo build --release --locked --package symphony-benches --bin executor-run
	.cache/venv/bin/python benches/ort_overhead.py target/release/executor-run

bench-prediction: setup build ## predicted and actual execution times under load, on a core of the backend's own
	benches/prediction.py target/release/symphony

bench-live: build ## the simulator's goodput as processes: Table 4's ResNet-50, and 35 models on 64 emulated GPUs
	benches/live_over_simulated.py target/release/symphony

bench-early: setup build ## `auto` beside `eager` on real models on one core: closed loops, open loops, overload
	cargo build --release --locked -p symphony-benches --bin closed-loop
	benches/early_answers.py target/release/symphony target/release/closed-loop

bench-prefix: setup build ## heads on one trunk with one queue and one trunk in memory, beside each by itself: rate, memory
	benches/prefix_batching.py target/release/symphony

bench-pipeline: setup build ## the pipeline of the demo beside a client that asks its two models: latency, answers when saturated, hops
	benches/pipeline.py target/release/symphony

bench-payloads: ## the inputs of one batch from eight frontends, by every transport beside a plain copy
	cargo run --release --locked --package symphony-benches --bin payload-pull

fmt: ## format, and apply what clippy can apply by itself
	cargo xtask fix
