#!/usr/bin/env python3
"""Heads on one trunk on ONNX Runtime: with one queue and one trunk in memory, and each by itself (Nexus, section 7.5 and Figure 15).

usage: benches/prefix_batching.py target/release/symphony [--gpu-core 1] [--cores 0] [--heads 2,5,10,20] [--memory-only] [--slo-ms 100] [--seconds 10] [--out FILE] [--figures FILE --machine NAME]

The backend executes on a core of its own. All heads are asked equally often, as Poisson arrivals; the highest rate at which at most one
request in a hundred is not answered in time is searched for, by halving. The heads are deep, so that few requests fill the GPU and the core of all
other processes has time to spare; where the load generator lags all the same, the rate is marked, and no figure.

Memory is what the backend says that its process grew by for its models, the trunk once. Trunk and suffixes should take as much as one whole model
and the other heads' last layers. The whole model is measured in a backend that has no other one: where one was loaded before, the next finds memory
that loading has freed. Its file says too little: a process grows by more, and keeps what loading used for a moment.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import measured
from cluster import Cluster, bound, cores

BATCH_MAX = 32
# Layers of the trunk. Two are the default, whose items take 2 ms one by one; these take four times as long, so a fourth of the requests fills the GPU.
HIDDEN = 6
BAD_RATE_MAX = 0.01
# As `symphony paper nexus-fig15` has for a model of about the same latencies: with more time each head alone fills its batches, too.
SLO_MS = 100
# The search ends when the bounds are so near.
NEAR = 0.05
# How often a rate is offered before the generator's lag counts.
OFFERED_MAX = 3
SHARED_WITHIN_S = 180
# The last layer of `symphony model generate mlp`: weights and biases of 2048 times 10.
LAST_LAYER_MB = 4 * (2048 * 10 + 10) / 2**20
# As performance.md has them; aims are for the largest number and for each.
FIGURES_OF, RATE_MIN, MEMORY_MAX = [2, 5, 10, 20], 2.1, 1.05
MIXED = "symphony_backend_mixed_batches_total"
SETTINGS = ["backend.executor=ort-cpu", 'backend.gpus=[{ kind = "cpu", count = 1, memory_mb = 16384 }]']


def generated(binary, folder, heads, core):
    """Files of the heads, and the profile of one, which is that of all; what a batch of the largest size takes, in milliseconds."""
    files = [folder / f"head-{number}.onnx" for number in range(heads)]
    for number, file in enumerate(files):
        command = [binary, "model", "generate", "mlp", file, "--hidden", str(HIDDEN), "--head", str(number)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    profile = folder / "head.profile.toml"
    command = [binary, "profile", files[0], "--latency", "median", "--batch-max", str(BATCH_MAX), "--gpu-kind", "cpu", "--out", profile]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, preexec_fn=bound({core})).stdout
    rows = (line.split() for line in shown.splitlines())
    largest = next((row for row in rows if row and row[0] == str(BATCH_MAX)), None)
    if largest is None:
        sys.exit(f"no row for a batch of {BATCH_MAX} in:\n{shown}")
    return files, profile, float(largest[2])


def models_mb(cluster):
    """What each model and each trunk takes, as the backend says, without batches."""
    is_static = re.compile(r"symphony_backend_model_memory_bytes\{.*static").match
    return {name: float(value) / 2**20 for name, value in cluster.metrics("backend").items() if is_static(name)}


def resident_mb(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 2**10


def wait_until_shared(cluster, rates, whole_mb):
    """Until rows of several heads are batched, only the trunk is large, and no head is loaded anew any more."""
    until, before = time.monotonic() + SHARED_WITHIN_S, None
    while time.monotonic() < until:
        cluster.load_all(rates, 2)
        now = models_mb(cluster)
        large = sum(mb > whole_mb / 4 for mb in now.values())
        if now == before and large == 1 and float(cluster.metrics("backend")[MIXED]) > 0:
            return
        before = now
    sys.exit("the heads do not share their trunk")


def highest(cluster, names, start, args):
    """The highest rate of all heads together that is served, in requests per second, and at how many others the generator lagged."""
    seed = lagged = 0

    def is_served(rate):
        nonlocal seed, lagged
        for _ in range(OFFERED_MAX):
            seed += 1
            offered = cluster.load_all({name: rate / len(names) for name in names}, args.seconds, seed=seed, on_cores=args.cores)
            if offered.report["verdict"]["result"] != "lagged":
                return offered.served(BAD_RATE_MAX)
        lagged += 1
        return False

    low, high = 0.0, start
    while is_served(high):
        low, high = high, 2 * high
    while high - low > NEAR * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_served(middle) else (low, middle)
    return low, lagged


def load(cluster, files, profile, is_shared, args):
    for file in files:
        words = ["--onnx", str(file), "--profile", str(profile), "--slo-ms", str(args.slo_ms)]
        cluster.tell("model", "load", file.stem, *words, *([] if is_shared else ["--own-trunk"]))


def measure_whole_mb(binary, file, profile, args):
    """What one whole model takes in a backend that has no other one."""
    with Cluster(binary, SETTINGS, args.cores) as cluster:
        load(cluster, [file], profile, False, args)
        return sum(models_mb(cluster).values())


def measure(binary, files, profile, largest_ms, whole_mb, is_shared, args):
    names = [file.stem for file in files]
    capacity = BATCH_MAX / largest_ms * 1e3
    with Cluster(binary, SETTINGS, args.cores) as cluster:
        backend = cluster.processes()["backend"]
        for thread in pathlib.Path(f"/proc/{backend}/task").iterdir():
            if (thread / "comm").read_text().startswith("gpu-"):
                os.sched_setaffinity(int(thread.name), {args.gpu_core})
        load(cluster, files, profile, is_shared, args)
        if is_shared:
            wait_until_shared(cluster, {name: capacity / 2 / len(names) for name in names}, whole_mb)
        found = {"models_mb": sum(models_mb(cluster).values()), "resident_mb": resident_mb(backend)}
        if not args.memory_only:
            found["rate"], found["lagged"] = highest(cluster, names, capacity / 4, args)
        return found


def figures(results):
    """Memory over trunk and suffixes; and rates over the heads each by itself, if they were measured and no generator lagged. Of all numbers of heads."""
    if [row["heads"] for row in results] != FIGURES_OF:
        return {}
    joined = lambda ratios, is_met: "; ".join(f"{ratio:.2f}" if is_met(ratio) else f"**{ratio:.2f}**" for ratio in ratios)
    found = {"the same, memory over trunk and suffixes: 2; 5; 10; 20": joined([row["memory"] for row in results], lambda ratio: ratio <= MEMORY_MAX)}
    ways = [row[way] for row in results for way in ("shared", "apart") if way in row]
    if all(way.get("rate", 0) > 0 and way["lagged"] == 0 for way in ways):
        rates = [row["shared"]["rate"] / row["apart"]["rate"] for row in results]
        what = "heads on one trunk over each by itself, goodput: 2; 5; 10; 20"
        found[what] = joined(rates, lambda ratio: max(rates) >= RATE_MIN or ratio < max(rates))
    return found


def shown(row):
    """A line of the table; `!` where the generator lagged."""
    shared, apart = row["shared"], row.get("apart")
    rate = lambda way: f"{way['rate']:.0f}/s{'!' if way['lagged'] else ''}"
    memory = f"{row['heads']:>6}{shared['models_mb']:>12.1f}{row['memory']:>7.2f}×"
    if apart is None:
        return memory
    return f"{memory}{apart['models_mb']:>12.1f}{rate(shared):>12}{rate(apart):>12}{shared['rate'] / max(apart['rate'], 1e-9):>7.2f}×"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--gpu-core", type=int, default=1)
    parser.add_argument("--cores", type=cores, default={0}, help="of everything else")
    parser.add_argument("--heads", default="2,5,10,20")
    parser.add_argument("--memory-only", action="store_true", help="search no rates, which take most of the time")
    parser.add_argument("--slo-ms", type=float, default=SLO_MS)
    parser.add_argument("--seconds", type=float, default=10)
    measured.add_arguments(parser)
    args = parser.parse_args()
    binary = str(pathlib.Path(args.binary).resolve())
    counts = [int(heads) for heads in args.heads.split(",")]
    results = []
    with tempfile.TemporaryDirectory(prefix="symphony-prefix-") as folder:
        files, profile, largest_ms = generated(binary, pathlib.Path(folder), max(counts), args.gpu_core)
        whole_mb = measure_whole_mb(binary, files[0], profile, args)
        print(f"one whole model: {whole_mb:.1f} MB, its file {files[0].stat().st_size / 2**20:.1f} MB")
        print(f"{'heads':>6}{'models MB':>12}{'memory':>8}{'each MB':>12}{'one trunk':>12}{'each':>12}{'rate':>8}")
        for heads in counts:
            of = binary, files[:heads], profile, largest_ms, whole_mb
            row = {"heads": heads, "whole_mb": whole_mb, "shared": measure(*of, True, args)}
            row["memory"] = row["shared"]["models_mb"] / (whole_mb + (heads - 1) * LAST_LAYER_MB)
            if not args.memory_only:
                row["apart"] = measure(*of, False, args)
            results.append(row)
            print(shown(row), flush=True)
    measured.write(args, results, figures(results))


if __name__ == "__main__":
    main()
