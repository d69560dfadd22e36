#!/usr/bin/env python3
"""How far execution times are from predictions under load: a model on ONNX Runtime, whose backend has a core of its own.

usage: benches/prediction.py target/release/symphony [--gpu-core 3] [--cores 0-2] [--models mlp,mobilenet] [--seconds 20] [--out FILE] [--figures FILE --machine NAME]

For each model: `symphony profile` measures it on that core, a cluster is started whose backend executes on it and does everything else on
the others' cores, and load is offered at a share of what the core can do. The scheduler counts for each batch by how much its execution
was off what its plan was made with (`symphony_dispatch_execution_error_ratio`). The aim is 99 % of the batches within 10 %. What no
prediction can do better is said beside it: by how much the p99 of the profile, measured with nothing else running, is above its median.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import measured
from cluster import Cluster, bound, cores

# Of each model: the largest batch.
BATCH_MAX = {"mlp": 32, "mobilenet": 8, "resnet50": 4, "bert": 2}
# Of what the core can do with the largest batches.
LOAD = 0.6
# So many times as long as the largest batch.
SLO_BATCHES = 6
BOUNDS = ("0.01", "0.02", "0.05", "0.1", "0.2", "0.5")
AIM = "0.1"


def errors(cluster):
    """Batches by upper bound of their error."""
    counts = {}
    for name, value in cluster.metrics().items():
        found = re.fullmatch(r'symphony_dispatch_execution_error_ratio_bucket\{.*le="([^"]+)".*\}', name)
        if found:
            counts[found[1]] = counts.get(found[1], 0) + int(float(value))
    return counts


def profiled(binary, name, folder, core):
    """Makes the model and its profile; median and p99 of what its largest batch takes, in milliseconds."""
    model, profile = folder / f"{name}.onnx", folder / f"{name}.profile.toml"
    subprocess.run([binary, "model", "generate", name, model], check=True, stdout=subprocess.DEVNULL)
    command = [binary, "profile", model, "--latency", "median", "--batch-max", str(BATCH_MAX[name]), "--gpu-kind", "cpu"]
    shown = subprocess.run(
        [*command, "--out", profile], check=True, stdout=subprocess.PIPE, text=True, preexec_fn=bound({core})
    ).stdout
    rows = (line.split() for line in shown.splitlines())
    largest = next((row for row in rows if row and row[0] == str(BATCH_MAX[name])), None)
    if largest is None:
        sys.exit(f"no row for a batch of {BATCH_MAX[name]} in:\n{shown}")
    _, _, median_ms, p99_ms, _ = largest
    return profile, float(median_ms), float(p99_ms)


def measure(binary, name, args, folder):
    profile, largest_ms, p99_ms = profiled(binary, name, folder, args.gpu_core)
    rate = LOAD * BATCH_MAX[name] / largest_ms * 1e3
    settings = ["backend.executor=ort-cpu", "scheduler.delays.control_us=3000"]
    settings.append('backend.gpus=[{ kind = "cpu", count = 1, memory_mb = 4096 }]')
    with Cluster(binary, settings, args.cores) as cluster:
        # The thread that executes; the network's threads stay where the cluster is.
        threads = pathlib.Path(f"/proc/{cluster.processes()['backend']}/task").iterdir()
        executes = [int(thread.name) for thread in threads if (thread / "comm").read_text().startswith("gpu-")]
        if len(executes) != 1:
            sys.exit(f"one thread `gpu-…` was expected in the backend, there are {len(executes)}")
        os.sched_setaffinity(executes[0], {args.gpu_core})
        words = ["--onnx", str(folder / f"{name}.onnx"), "--profile", str(profile), "--slo-ms", str(SLO_BATCHES * largest_ms + 20)]
        # Batches of all sizes, which a policy that starts at once does not run at this load.
        cluster.tell("model", "load", name, *words, "--policy", "symphony")
        cluster.load(name, rate, 2, on_cores=args.cores)
        before = errors(cluster)
        offered = cluster.load(name, rate, args.seconds, on_cores=args.cores)
        counts = {bound: count - before.get(bound, 0) for bound, count in errors(cluster).items()}
    batches = counts["+Inf"]
    within = {bound: counts[bound] / max(1, batches) for bound in BOUNDS}
    return {
        "model": name,
        "largest_ms": largest_ms,
        "alone_p99_over_median": p99_ms / largest_ms,
        "batches": batches,
        "mean_batch": offered.total["mean_batch"],
        "bad_rate": offered.total["bad_rate"],
        "within": within,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--gpu-core", type=int, default=3)
    parser.add_argument("--cores", type=cores, default={0, 1, 2}, help="of everything else")
    parser.add_argument("--models", default="mlp,mobilenet,resnet50")
    parser.add_argument("--seconds", type=float, default=20)
    measured.add_arguments(parser)
    args = parser.parse_args()
    binary = str(pathlib.Path(args.binary).resolve())
    results = []
    print("batches whose execution time was off its prediction by at most …")
    print(f"{'model':12}{'largest ms':>12}{'alone p99':>11}{'batches':>9}{'mean batch':>12}{'bad':>8}" + "".join(f"{float(b):>9.0%}" for b in BOUNDS))
    with tempfile.TemporaryDirectory(prefix="symphony-prediction-") as folder:
        for name in args.models.split(","):
            row = measure(binary, name, args, pathlib.Path(folder))
            results.append(row)
            within = "".join(f"{row['within'][bound]:>9.2%}" for bound in BOUNDS)
            print(
                f"{name:12}{row['largest_ms']:>12.2f}{row['alone_p99_over_median'] - 1:>+11.1%}{row['batches']:>9}{row['mean_batch']:>12.1f}{row['bad_rate']:>8.2%}{within}"
                + ("  (aim met)" if row["within"][AIM] >= 0.99 else "  (aim missed)"),
                flush=True,
            )
    whats = {"resnet50": "ResNet-50", "mobilenet": "MobileNet", "mlp": "MLP of 2 ms"}
    figures = {whats[row["model"]]: f"{100 * row['within'][AIM]:.3g}" for row in results if row["model"] in whats}
    measured.write(args, results, figures)


if __name__ == "__main__":
    main()
