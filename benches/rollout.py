#!/usr/bin/env python3
"""Roll-outs under load: a version takes over from another, forward and back, and no request fails.

usage: benches/rollout.py target/release/symphony [--roll-outs 20] [--rate 500] [--canary 10,50] [--out FILE] [--figures FILE --machine NAME]

One replica, one frontend, one backend with emulated GPUs, and the load generator, without cores of their own. What counts is what did not get an answer:
requests that failed, were refused or were lost. What came late or was shed is told beside it: on a busy machine there is some with and without roll-outs.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import measured
from cluster import GRPC, Cluster

SLO_MS = 100
CONFIG = """
backend: "emulated"
max_batch_size: 32
version_policy {{ specific {{ versions: [ {version} ] }} }}
parameters {{ key: "slo_ms" value {{ string_value: "{slo_ms}" }} }}
parameters {{ key: "subcluster" value {{ string_value: "emulated" }} }}
"""
# What the emulated executor answers: a checksum of each item.
PROFILE = f"""
format = 1
model = "m"
[[inputs]]
name = "INPUT0"
data_type = "FP32"
item_shape = [16]
[[outputs]]
name = "OUTPUT0"
data_type = "UINT32"
item_shape = [1]
[gpu.emulated]
machine = "none"
static_memory_bytes = 0
dynamic_memory_bytes = 0
latency_ms = {[5.0 + batch for batch in range(1, 33)]}
"""


def serve(models, version):
    (models / "m" / "config.pbtxt").write_text(CONFIG.format(version=version, slo_ms=SLO_MS))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("symphony")
    parser.add_argument("--roll-outs", type=int, default=20)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--canary", default="", help="steps of every roll-out, in per cent")
    measured.add_arguments(parser)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder, Cluster(args.symphony) as cluster:
        models = pathlib.Path(folder)
        for version in (1, 2):
            (models / "m" / str(version)).mkdir(parents=True)
        (models / "m" / "profile.toml").write_text(PROFILE)
        serve(models, 1)
        cluster.tell("model", "load", "m", "--repository", folder)
        command = [cluster.binary, "load", "--model", f"m={args.rate}", "--frontend", f"{cluster.host}:{GRPC}"]
        command += ["--duration-s", "86400", "--warmup-s", "0", "--slack-ms", "20", "-o", "json"]
        load = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=cluster.environment)
        time.sleep(2)
        took = []
        steps = ["--canary", args.canary, "--canary-step-s", "2", "--canary-bad-max", "0.5"] if args.canary else []
        for number in range(args.roll_outs):
            serve(models, 2 - number % 2)
            began = time.monotonic()
            cluster.tell("model", "load", "m", "--repository", folder, *steps)
            took.append(time.monotonic() - began)
            time.sleep(1)
        load.send_signal(2)
        report = json.loads(load.communicate()[0])
    total = report["total"]
    unanswered = {**total["failed"], **total["refused"], "lost": total["lost"]}
    found = {"roll_outs": args.roll_outs, "rate_rps": args.rate, "canary": args.canary, "requests": total["offered"]}
    found |= {"unanswered": unanswered, "dropped": total["dropped"], "late": total["late"], "took_s": [min(took), max(took)]}
    print(json.dumps(found, indent=1))
    what = f"failed of {args.roll_outs} roll-outs under {args.rate}/s" + (f", canary {args.canary}" if args.canary else "")
    failed = total["lost"] + sum(total["failed"].values()) + sum(total["refused"].values())
    measured.write(args, found, {what: str(failed)})
    if any(unanswered.values()):
        raise SystemExit("requests were not answered")


if __name__ == "__main__":
    main()
