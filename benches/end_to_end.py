#!/usr/bin/env python3
"""End to end on loopback with an emulated GPU: added latency at low load, and the rate at which it ends.

usage: benches/end_to_end.py target/release/symphony [--runs 3] [--seconds 5] [--out FILE] [--figures FILE --machine NAME]

The model takes 0.01 ms per item and 0.2 ms per batch, so that the path and not the GPU is measured. The load generator runs
on the same machine and needs cores as well; a rate counts as served if the generator kept its schedule, at most 1 % of the
requests were not answered in time, and none was lost.
"""

import argparse
import json
import os
import statistics

import measured
from cluster import Cluster

ALPHA_MS, BETA_MS, BATCH_MAX, SLO_MS = 0.01, 0.2, 64, 100
LOW_RATE = 50
RATES = [1000, 2000, 3000, 4000, 5000, 6000, 8000, 10000, 12000, 15000, 20000, 25000, 30000]
BAD_RATE_MAX = 0.01


def load(cluster, model, protocol, rate, seconds, seed):
    offered = cluster.load(model, rate, seconds, protocol=protocol, seed=seed)
    keys = ("offered_rps", "good_rps", "bad_rate", "p50_ms", "p99_ms", "max_ms", "mean_batch", "lost", "refused", "dropped", "failed", "late")
    result = {key: offered.total[key] for key in keys}
    result |= {"served": offered.served(BAD_RATE_MAX), "lag_p99_ms": offered.report["lag"]["p99_ms"]}
    return result | {"model": model, "protocol": protocol, "rate": rate, "load_average": os.getloadavg()[0]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    measured.add_arguments(parser)
    args = parser.parse_args()
    results = {"low_load": [], "saturation": []}
    with Cluster(args.binary) as cluster:
        for policy in ("eager", "symphony"):
            line = ["--alpha-ms", str(ALPHA_MS), "--beta-ms", str(BETA_MS), "--batch-max", str(BATCH_MAX)]
            cluster.tell("model", "load", policy, "--emulated", *line, "--slo-ms", str(SLO_MS), "--policy", policy)
        for protocol in ("native", "grpc", "rest"):
            for run in range(args.runs):
                result = load(cluster, "eager", protocol, LOW_RATE, 4 * args.seconds, run + 1)
                service_ms = ALPHA_MS * (result["mean_batch"] or 1) + BETA_MS
                result |= {"added_p50_ms": result["p50_ms"] - service_ms, "added_p99_ms": result["p99_ms"] - service_ms}
                results["low_load"].append(result)
                print(json.dumps(result), flush=True)
        for policy in ("eager", "symphony"):
            for protocol in ("native", "grpc"):
                for run in range(args.runs):
                    best = 0
                    for rate in RATES:
                        result = load(cluster, policy, protocol, rate, args.seconds, run + 1)
                        print(json.dumps(result), flush=True)
                        if not result["served"]:
                            # A shared machine pauses: one miss is no limit, two are.
                            result = load(cluster, policy, protocol, rate, args.seconds, run + 101)
                            print(json.dumps(result), flush=True)
                            if not result["served"]:
                                break
                        best = result["good_rps"]
                    results["saturation"].append({"policy": policy, "protocol": protocol, "good_rps": best, "ends_at": result})
    added = []
    for protocol in ("native", "grpc", "rest"):
        runs = [r for r in results["low_load"] if r["protocol"] == protocol]
        p50, p99 = (statistics.median(r[key] for r in runs) for key in ("added_p50_ms", "added_p99_ms"))
        added.append(f"{p50:.1f}")
        print(f"added latency at {LOW_RATE} r/s, {protocol}: p50 {p50:.3f} ms, p99 {p99:.3f} ms (medians of {len(runs)} runs)")
    for policy in ("eager", "symphony"):
        for protocol in ("native", "grpc"):
            runs = [r["good_rps"] for r in results["saturation"] if (r["policy"], r["protocol"]) == (policy, protocol)]
            print(f"saturation, {policy}, {protocol}: {statistics.median(runs):.0f} r/s (median of {[round(r) for r in runs]})")
    measured.write(args, results, {f"added at {LOW_RATE} requests/s, p50: native; gRPC; REST": "; ".join(added)})


if __name__ == "__main__":
    main()
