#!/usr/bin/env python3
"""Heads on one trunk on ONNX Runtime: with one queue and one trunk in memory, and each by itself (Nexus, section 7.4 and Figure 15).

usage: benches/prefix_batching.py target/release/symphony [--gpu-core 1] [--cores 0] [--heads 2,5,10,20] [--slo-ms 100] [--seconds 10] [--out FILE] [--figures FILE --machine NAME]

The backend executes on a core of its own. All heads are asked equally often, as Poisson arrivals; the highest rate at which at most one
request in a hundred is not answered in time is searched for, by halving. Memory is what the backend says that its process grew by for its models,
the trunk once, and how much it holds. Trunk and suffixes should take as much as one whole model, measured here, and the other heads' last layers.
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
BAD_RATE_MAX = 0.01
# The search ends when the bounds are so near.
NEAR = 0.05
SHARED_WITHIN_S = 180
# The last layer of `symphony model generate mlp`: weights and biases of 2048 times 10.
LAST_LAYER_MB = 4 * (2048 * 10 + 10) / 2**20
# As performance.md has them; aims are for the largest number and for each.
FIGURES_OF, RATE_MIN, MEMORY_MAX = [2, 5, 10, 20], 2.1, 1.05
MIXED = "symphony_backend_mixed_batches_total"


def generated(binary, folder, heads, core):
    """Files of the heads, and the profile of one, which is that of all; what a batch of the largest size takes, in milliseconds."""
    files = [folder / f"head-{number}.onnx" for number in range(heads)]
    for number, file in enumerate(files):
        subprocess.run([binary, "model", "generate", "mlp", file, "--head", str(number)], check=True, stdout=subprocess.DEVNULL)
    profile = folder / "head.profile.toml"
    command = [binary, "profile", files[0], "--latency", "median", "--batch-max", str(BATCH_MAX), "--gpu-kind", "cpu", "--out", profile]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, preexec_fn=bound({core})).stdout
    rows = (line.split() for line in shown.splitlines())
    largest = next((row for row in rows if row and row[0] == str(BATCH_MAX)), None)
    if largest is None:
        sys.exit(f"no row for a batch of {BATCH_MAX} in:\n{shown}")
    return files, profile, float(largest[2])


def models_mb(cluster):
    """What models and their trunks take, as the backend says, without batches; and how many trunks there are."""
    found = {name: float(value) for name, value in cluster.metrics("backend").items() if re.match(r"symphony_backend_model_memory_bytes\{.*static", name)}
    return sum(found.values()) / 2**20, sum('model="trunk ' in name for name in found)


def resident_mb(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 2**10


def wait_until_shared(cluster, rates):
    """Until rows of several heads are batched, and no head is loaded anew any more."""
    until, before = time.monotonic() + SHARED_WITHIN_S, None
    while time.monotonic() < until:
        cluster.load_all(rates, 2)
        now = models_mb(cluster)
        if now == before and now[1] == 1 and float(cluster.metrics("backend")[MIXED]) > 0:
            return
        before = now
    sys.exit("the heads do not share their trunk")


def highest(cluster, names, start, args):
    """The highest rate of all heads together that is served, in requests per second."""

    def is_served(rate, seed):
        offered = cluster.load_all({name: rate / len(names) for name in names}, args.seconds, seed=seed, on_cores=args.cores)
        return offered.served(BAD_RATE_MAX)

    low, high, seed = 0.0, start, 1
    while is_served(high, seed):
        low, high, seed = high, 2 * high, seed + 1
    while high - low > NEAR * high:
        middle, seed = (low + high) / 2, seed + 1
        low, high = (middle, high) if is_served(middle, seed) else (low, middle)
    return low


def measure(binary, files, profile, largest_ms, is_shared, args):
    settings = ["backend.executor=ort-cpu", 'backend.gpus=[{ kind = "cpu", count = 1, memory_mb = 16384 }]']
    names = [file.stem for file in files]
    capacity = BATCH_MAX / largest_ms * 1e3
    with Cluster(binary, settings, args.cores) as cluster:
        backend = cluster.processes()["backend"]
        for thread in pathlib.Path(f"/proc/{backend}/task").iterdir():
            if (thread / "comm").read_text().startswith("gpu-"):
                os.sched_setaffinity(int(thread.name), {args.gpu_core})
        for file in files:
            words = ["--onnx", str(file), "--profile", str(profile), "--slo-ms", str(args.slo_ms)]
            cluster.tell("model", "load", file.stem, *words, *([] if is_shared else ["--own-trunk"]))
        if is_shared:
            wait_until_shared(cluster, {name: capacity / 2 / len(names) for name in names})
        memory_mb, trunks = models_mb(cluster)
        rate = highest(cluster, names, capacity / 4, args)
        return {"rate": rate, "models_mb": memory_mb, "trunks": trunks, "resident_mb": resident_mb(backend)}


def figures(results):
    """Over the heads each by itself, and over trunk and suffixes; none unless all numbers of heads were measured."""
    if [row["heads"] for row in results] != FIGURES_OF or any(row["apart"]["rate"] == 0 for row in results):
        return {}
    rates = [row["shared"]["rate"] / row["apart"]["rate"] for row in results]
    expected = [row["apart"]["models_mb"] / row["heads"] + (row["heads"] - 1) * LAST_LAYER_MB for row in results]
    memory = [row["shared"]["models_mb"] / mb for row, mb in zip(results, expected, strict=True)]
    joined = lambda ratios, is_met: "; ".join(f"{ratio:.2f}" if is_met(ratio) else f"**{ratio:.2f}**" for ratio in ratios)
    return {
        "heads on one trunk over each by itself, goodput: 2; 5; 10; 20": joined(rates, lambda ratio: max(rates) >= RATE_MIN or ratio < max(rates)),
        "the same, memory over trunk and suffixes": joined(memory, lambda ratio: ratio <= MEMORY_MAX),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--gpu-core", type=int, default=1)
    parser.add_argument("--cores", type=cores, default={0}, help="of everything else")
    parser.add_argument("--heads", default="2,5,10,20")
    parser.add_argument("--slo-ms", type=float, default=100)
    parser.add_argument("--seconds", type=float, default=10)
    measured.add_arguments(parser)
    args = parser.parse_args()
    binary = str(pathlib.Path(args.binary).resolve())
    results = []
    print(f"{'heads':>6}{'one trunk':>12}{'each':>10}{'rate':>8}{'models MB':>12}{'each':>10}{'memory':>8}")
    for heads in map(int, args.heads.split(",")):
        with tempfile.TemporaryDirectory(prefix="symphony-prefix-") as folder:
            made = generated(binary, pathlib.Path(folder), heads, args.gpu_core)
            shared, apart = (measure(binary, *made, is_shared, args) for is_shared in (True, False))
        results.append({"heads": heads, "shared": shared, "apart": apart})
        print(
            f"{heads:>6}{shared['rate']:>10.0f}/s{apart['rate']:>8.0f}/s{shared['rate'] / max(apart['rate'], 1e-9):>7.2f}×"
            f"{shared['models_mb']:>12.1f}{apart['models_mb']:>10.1f}{shared['models_mb'] / max(apart['models_mb'], 1e-9):>7.2f}×",
            flush=True,
        )
    measured.write(args, results, figures(results))


if __name__ == "__main__":
    main()
