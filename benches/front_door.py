#!/usr/bin/env python3
"""What the front door costs: TLS, keys and quotas on and off, in pairs, over gRPC on two cores with a GPU that costs nothing.

usage: benches/front_door.py target/release/symphony [--cores 0,1] [--client-cores 2,3] [--seconds 4] [--pairs 5] [--out FILE] [--figures FILE --machine NAME]

Three clusters of one replica, one frontend and one backend run side by side on --cores: `open`; `keys`, where the load generator shows a
key of a tenant with both quotas, which are never used up; and `tls`, the same over TLS. In each pair every cluster is asked in turn, in an order that
changes: at 1000 requests/s for the latency, and at a rate that keeps the cores busy for the processor time that the frontend and all processes use for a
request. At last each is asked for the highest rate that it serves. Differences are medians over the pairs.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile

import measured
from cluster import Cluster, cores

DELAYS = ["control_us=100", "data_us_per_item=1", "reply_us=1000", "guard_us=200"]
SERVICE_MS, BATCH_MAX, SLO_MS = 0.001, 256, 100
LOW_RATE, BUSY_RATE = 1000, 6000
RATES = range(4000, 60001, 1000)
# Between the last rate that is served and the next one, by halves.
STEP_MIN = 125
BAD_RATE_MAX = 0.01
CONNECTIONS = 2
MODEL = "free"
# More than is ever asked for: the quota is counted and lets everything in.
QUOTAS = "items_per_s = 1000000\ngpu_seconds_per_s = 1000\n"


def made(binary, folder, *words):
    return subprocess.run([binary, *words], check=True, capture_output=True, text=True, cwd=folder).stdout


def doors(binary, folder, hosts):
    """Settings and environment by the name of the cluster."""
    key, lines = made(binary, folder, "keys", "make", "--tenant", "bench").split("\n", 1)
    (folder / "key").write_text(key.removeprefix("key: "))
    (folder / "tenants.toml").write_text(lines + QUOTAS)
    made(binary, folder, "certs", "authority", "--dir", "pki", "--cluster-name", "clients")
    made(
        binary, folder, "certs", "issue", "--dir", "pki", "--cluster-name", "clients", "--role", "operator", "--name", "server",
        "--host", hosts["tls"],
    )
    keys = [f"frontend.tenants={folder}/tenants.toml"]
    tls = [f"frontend.tls.cert={folder}/pki/operator-server.pem", f"frontend.tls.key={folder}/pki/operator-server.key"]
    shows = {"SYMPHONY_KEY_FILE": f"{folder}/key"}
    return {
        "open": ([], {}),
        "keys": (keys, shows),
        "tls": (keys + tls, shows | {"SYMPHONY_PUBLIC_CA": f"{folder}/pki/ca.pem"}),
    }


def offer(cluster, rate, seconds, client_cores, seed):
    before = cluster.cpu_s()
    offered = cluster.load(MODEL, rate, seconds, on_cores=client_cores, seed=seed, connections=CONNECTIONS)
    used = {role: after - before[role] for role, after in cluster.cpu_s().items()}
    sent = offered.total["sent"]
    return offered, {"frontend": used["frontend"] / sent * 1e6, "all": sum(used.values()) / sent * 1e6}


def served(cluster, rate, seconds, client_cores):
    """Good answers a second, if the rate is served in one of two tries; else none."""
    for seed in (1, 2):
        offered, _ = offer(cluster, rate, seconds, client_cores, seed)
        if offered.served(BAD_RATE_MAX):
            return offered.total["good_rps"]
    return None


def highest(cluster, seconds, client_cores):
    best, rate, step = 0.0, RATES.start, RATES.step
    while step >= STEP_MIN and rate < RATES.stop:
        good = served(cluster, rate, seconds, client_cores)
        if good is None:
            step //= 2
            rate -= step
        else:
            best = max(best, good)
            rate += step
    return best


def figures(rows):
    """Medians over the pairs of what the others take more than the open one."""
    cpu = [statistics.median(row[name]["cpu_us"]["all"] / row["open"]["cpu_us"]["all"] - 1 for row in rows) for name in ("keys", "tls")]
    p99 = [statistics.median(row[name]["p99_ms"] - row["open"]["p99_ms"] for row in rows) for name in ("keys", "tls")]
    return {
        "added processor time of all processes for a request: a key and quotas; TLS besides": joined(f"{100 * more:.1f}" for more in cpu),
        "added at 1000/s, p99: a key and quotas; TLS besides": joined(f"{more:.2f}" for more in p99),
    }


def joined(values):
    return "; ".join(values).replace("-", "−")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--cores", type=cores, default={0, 1}, help="of everything but the client")
    # Where there are no more, they are shared.
    parser.add_argument("--client-cores", type=cores, default={2, 3} if (os.cpu_count() or 1) >= 4 else {0, 1})
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--pairs", type=int, default=5)
    measured.add_arguments(parser)
    args = parser.parse_args()
    binary = str(pathlib.Path(args.binary).resolve())
    hosts = {"open": "127.0.0.1", "keys": "127.0.0.2", "tls": "127.0.0.3"}
    with tempfile.TemporaryDirectory(prefix="symphony-door-") as folder:
        folder = pathlib.Path(folder)
        clusters = {}
        try:
            for name, (settings, environment) in doors(binary, folder, hosts).items():
                delays = [f"scheduler.delays.{delay}" for delay in DELAYS]
                cluster = Cluster(binary, delays + settings, args.cores, hosts[name])
                cluster.environment |= environment
                clusters[name] = cluster.__enter__()
                line = ["--alpha-ms", "0", "--beta-ms", str(SERVICE_MS), "--batch-max", str(BATCH_MAX)]
                cluster.tell("model", "load", MODEL, "--emulated", *line, "--slo-ms", str(SLO_MS), "--policy", "eager")
            rows = []
            for pair in range(args.pairs):
                order = list(clusters)
                order = order[pair % len(order) :] + order[: pair % len(order)]
                row = {}
                for name in order:
                    low, _ = offer(clusters[name], LOW_RATE, args.seconds, args.client_cores, pair)
                    busy, used = offer(clusters[name], BUSY_RATE, args.seconds, args.client_cores, pair)
                    p50, p99 = low.total["p50_ms"], low.total["p99_ms"]
                    row[name] = {"p50_ms": p50, "p99_ms": p99, "cpu_us": used, "bad_rate": busy.total["bad_rate"]}
                rows.append(row)
            best = {name: highest(cluster, args.seconds, args.client_cores) for name, cluster in clusters.items()}
        finally:
            for cluster in clusters.values():
                cluster.__exit__()
    print(f"{args.pairs} pairs, load average {os.getloadavg()[0]:.1f}; µs of a core for a request at {BUSY_RATE}/s")
    for name in hosts:
        middle = lambda read: statistics.median(read(row[name]) for row in rows)
        more = lambda read: statistics.median(read(row[name]) - read(row["open"]) for row in rows)
        p50, p99 = (lambda r: r["p50_ms"]), (lambda r: r["p99_ms"])
        frontend, everything = (lambda r: r["cpu_us"]["frontend"]), (lambda r: r["cpu_us"]["all"])
        print(
            f"{name:5} p50 {middle(p50):.3f} ms ({more(p50):+.3f}), p99 {middle(p99):.3f} ms ({more(p99):+.3f}); "
            f"frontend {middle(frontend):.1f} µs ({more(frontend):+.1f}), all {middle(everything):.1f} µs ({more(everything):+.1f}); "
            f"highest {best[name]:.0f}/s ({best[name] / max(best['open'], 1) - 1:+.1%})"
        )
    measured.write(args, {"pairs": rows, "highest_rps": best}, figures(rows))


if __name__ == "__main__":
    main()
