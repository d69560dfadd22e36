#!/usr/bin/env python3
"""`auto` beside `eager`, live, on real models: closed loops, open loops below the goodput, and overload, all on one core.

usage: benches/early_answers.py target/release/symphony target/release/closed-loop [--core 0] [--client-core 1] [--parts closed,overload] [--beside symphony] [--out FILE] [--figures FILE]

One scheduler replica, one frontend, one backend that executes on ONNX Runtime, and the client share the core, unless the client
has one of its own. Both policies serve the same file in the same cluster and take turns, so whatever else the machine does falls on both;
what is printed is the median of the rounds' ratios.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import measured
from cluster import GRPC, Cluster, bound

OURS, RIVAL = "auto", "eager"
# Model, SLO in ms, the largest batch.
MODELS = [("mlp", 300, 32), ("digits", 50, 32)]
CLIENTS = {"mlp": (1, 8, 32), "digits": (32,)}
SHARES = (0.02, 0.1, 0.3, 0.5)
OVERLOAD = 1.5
BAD_RATE_MAX = 0.01
# Aims, as the table of performance.md has them: least shares of the rival's answers and of what is in time, and the most of its latencies.
ANSWERS_MIN, IN_TIME_MIN, P50_MAX, P99_MAX = 0.95, 0.6, 1.15, 1.02
MODELS_KEPT = pathlib.Path(__file__).parent.parent / "deploy" / "models"


class Bench:
    def __init__(self, cluster, args):
        self.cluster, self.args, self.rows = cluster, args, []
        self.policies = (OURS, args.beside)

    def closed(self, model, clients):
        command = [self.args.closed_loop, "--frontend", f"{self.cluster.host}:{GRPC}", "--model", model]
        command += ["--clients", str(clients), "--seconds", str(self.args.seconds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=bound({self.args.client_core}))
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr}")
        found = json.loads(done.stdout)
        if found["bad"] > 0:
            print(f"{model}, {clients} clients: {found['bad']} were not answered in time", flush=True)
        return found

    def open(self, model, rate, seed, seconds):
        return self.cluster.load(model, rate, seconds, seed=seed, slack_ms=0, on_cores={self.args.client_core})

    def kept(self, model, rate, seed, seconds):
        """The same, at a rate that the client must keep."""
        offered = self.open(model, rate, seed, seconds)
        if offered.report["verdict"]["result"] != "passed":
            sys.exit(f"{model} at {rate:.0f}/s: the client did not keep its schedule: {offered.report['verdict']}")
        return offered.total

    def in_turns(self, measure):
        """What `measure` found for each policy, round by round."""
        found = {policy: [] for policy in self.policies}
        for number in range(self.args.rounds):
            for policy in self.policies if number % 2 else reversed(self.policies):
                found[policy].append(measure(policy, number))
        return found

    def compare(self, what, found, key):
        ours, theirs = ([run[key] for run in found[policy]] for policy in self.policies)
        ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True) if other)
        ours, theirs = statistics.median(ours), statistics.median(theirs)
        self.rows.append({"what": what, "value": key, OURS: ours, self.args.beside: theirs, "ratio": ratio})
        print(f"{what:48}{key:12}{ours:>10.2f}{theirs:>10.2f}{ratio:>8.3f}", flush=True)

    def goodput(self, model, most):
        """The highest rate, in steps of a twentieth, that is served with at most one percent bad; a miss is tried again."""
        rate = 0.2 * most
        served = lambda: any(self.open(model, rate, seed, self.args.seconds).served(BAD_RATE_MAX) for seed in (1, 2))
        while rate < 2 * most and served():
            rate *= 1.05
        return rate / 1.05

    def overload(self, model, most):
        """Run by run what part of the requests was answered in time at one and a half times the goodput."""
        goodput = self.goodput(f"{model}-{OURS}", most)
        runs = {policy: [] for policy in self.policies}
        for seed in range(self.args.overloads):
            for policy in self.policies if seed % 2 else reversed(self.policies):
                runs[policy].append(self.open(f"{model}-{policy}", OVERLOAD * goodput, seed, self.args.seconds))
        for policy, offered in runs.items():
            good = [1 - run.total["bad_rate"] for run in offered]
            lagged = sum(run.report["verdict"]["result"] != "passed" for run in offered)
            what = f"{model}, {OVERLOAD} of {goodput:.0f}/s, {policy}"
            self.rows.append({"what": what, "value": "in time", "runs": good, "lagged": lagged})
            print(
                f"{what}: in time {min(good):.3f} to {max(good):.3f}, median {statistics.median(good):.3f} of {len(good)} runs; "
                f"the client lagged in {lagged}",
                flush=True,
            )


def served(binary, folder, name, slo_ms, batch_max, bench, core):
    """Loads the model once for each policy, by a profile of this core."""
    model, profile = MODELS_KEPT / name / f"{name}.onnx", folder / f"{name}.toml"
    if not model.exists():
        model = folder / f"{name}.onnx"
        subprocess.run([binary, "model", "generate", name, model], check=True, stdout=subprocess.DEVNULL)
    command = [binary, "profile", model, "--batch-max", str(batch_max), "--gpu-kind", "cpu", "--out", profile]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, preexec_fn=bound({core}))
    for policy in bench.policies:
        words = ["--onnx", str(model), "--profile", str(profile), "--slo-ms", str(slo_ms), "--policy", policy]
        bench.cluster.tell("model", "load", f"{name}-{policy}", *words)


def figures(rows):
    """Of the MLP, and one of the classifier, from the parts that have run."""
    ratios = lambda begin, key: [row["ratio"] for row in rows if row["what"].startswith(begin) and row["value"] == key]
    shown = lambda value, meets: f"{value:.2f}" if meets else f"**{value:.2f}**"
    found = {}
    closed = {name: [ratio for clients in CLIENTS[name] for ratio in ratios(f"{name}, {clients} closed loops", "per_second")] for name in CLIENTS}
    # Other parts run the largest number only, for the peak.
    if len(closed["mlp"]) == len(CLIENTS["mlp"]):
        for name, what in (("mlp", "an MLP: 1; 8; 32 closed loops"), ("digits", "a classifier: 32 closed loops")):
            found[f"`auto` over `eager`, answers of {what}"] = "; ".join(shown(ratio, ratio >= ANSWERS_MIN) for ratio in closed[name])
    for what, key, most in (("the same, p50 of open loops at 2 to 50 %", "p50_ms", P50_MAX), ("the same, p99", "p99_ms", P99_MAX)):
        if ratios("mlp, open loop", key):
            worst = max(ratios("mlp, open loop", key))
            found[what] = shown(worst, worst <= most)
    for row in rows:
        if row["value"] == "in time" and row["what"].endswith(f", {OURS}"):
            what = "`auto` at 1.5 times its goodput, in time: least; median of 20 runs"
            least = min(row["runs"])
            found[what] = f"{shown(least, least >= IN_TIME_MIN)}; {statistics.median(row['runs']):.2f}"
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("closed_loop")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--client-core", type=int)
    parser.add_argument("--parts", default="closed,open,overload")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", default=RIVAL, help="the policy that `auto` is compared with; figures are those beside `eager`")
    parser.add_argument("--overloads", type=int, default=20, help="runs above the peak, of each policy")
    measured.add_arguments(parser)
    args = parser.parse_args()
    args.client_core = args.core if args.client_core is None else args.client_core
    parts = args.parts.split(",")
    binary = str(pathlib.Path(args.binary).resolve())
    settings = ["backend.executor=ort-cpu", 'backend.gpus=[{ kind = "cpu", count = 1, memory_mb = 4096 }]']
    with tempfile.TemporaryDirectory(prefix="symphony-early-") as folder, Cluster(binary, settings, {args.core}) as cluster:
        bench = Bench(cluster, args)
        for name, slo_ms, batch_max in MODELS:
            served(binary, pathlib.Path(folder), name, slo_ms, batch_max, bench, args.core)
        print(f"{'':48}{'':12}{OURS:>10}{args.beside:>10}{'ratio':>8}")
        peaks = {}
        for name, _, _ in MODELS:
            # The peak is needed in any case.
            for clients in CLIENTS[name] if "closed" in parts else CLIENTS[name][-1:]:
                found = bench.in_turns(lambda policy, _, name=name, clients=clients: bench.closed(f"{name}-{policy}", clients))
                for key in ("per_second", "p50_ms"):
                    bench.compare(f"{name}, {clients} closed loops", found, key)
                peaks[name] = max(statistics.median(run["per_second"] for run in runs) for runs in found.values())
        for name, _, _ in MODELS if "open" in parts else []:
            for share in SHARES:
                rate = share * peaks[name]
                found = bench.in_turns(lambda policy, seed, name=name, rate=rate: bench.kept(f"{name}-{policy}", rate, seed, 2 * args.seconds))
                for key in ("p50_ms", "p99_ms"):
                    bench.compare(f"{name}, open loop, {share:.0%} of the peak", found, key)
        if "overload" in parts:
            bench.overload("mlp", peaks["mlp"])
    measured.write(args, bench.rows, figures(bench.rows) if args.beside == RIVAL else {})


if __name__ == "__main__":
    main()
