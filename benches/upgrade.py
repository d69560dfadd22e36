#!/usr/bin/env python3
"""An upgrade under load: a cluster of one release becomes one of the next, process by process, and no request fails.

usage: benches/upgrade.py FROM target/release/symphony [--rate 200] [--out FILE] [--figures FILE --machine NAME]

FROM is the program of the release before, or a tag or commit, which is built in target/upgrade. Three replicas, two backends and two frontends of it serve; each is
stopped (SIGTERM) and started as the new program. Half-way two of them go back and come again. Clients are at the other frontend while one is replaced, as a load
balancer sees to. At the end the upgrade is finished under load. It fails if a request failed, was refused, lost or answered twice, if too many were shed for their SLO, and
if too few were answered in time: an outage is no upgrade.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import measured

ROOT = pathlib.Path(__file__).resolve().parent.parent
PORTS = 17400
READY_WITHIN_S = 60
# A process hands over within five seconds and ends within four more; the rest is for a busy machine.
STOPS_WITHIN_S = 60
SLO_MS = 500
# While one of two backends is away, or a leader changes, what cannot meet its SLO is shed: at most this share.
SHED_MOST = 0.01
# Of what the load was to send, at least this share is answered in time. The arrivals are random: a few percent of it is chance.
GOOD_LEAST = 0.95


def addr(port):
    return f"127.0.0.1:{port}"


def built(of):
    """The program of that name, or of that tag or commit."""
    if pathlib.Path(of).is_file():
        return pathlib.Path(of).resolve()
    commit = subprocess.run(["git", "rev-parse", "--verify", f"{of}^{{commit}}"], cwd=ROOT, capture_output=True, text=True, check=False)
    if commit.returncode != 0:
        sys.exit(f"{of} is neither a program nor a tag or commit of this repository")
    commit = commit.stdout.strip()
    source, target = ROOT / "target/upgrade" / commit[:12], ROOT / "target/upgrade/target"
    if not source.exists():
        subprocess.run(["git", "worktree", "add", "--detach", str(source), commit], cwd=ROOT, check=True)
    build = ["cargo", "build", "--release", "--locked", "--package", "symphony", "--target-dir", str(target)]
    subprocess.run(build, cwd=source, check=True)
    program = ROOT / "target/upgrade" / f"symphony-{commit[:12]}"
    program.write_bytes((target / "release/symphony").read_bytes())
    program.chmod(0o755)
    return program


class Process:
    """One process of the cluster, whichever program it runs."""

    def __init__(self, name, role, metrics, settings, folder):
        self.name, self.role, self.metrics, self.folder = name, role, metrics, folder
        self.settings, self.child = settings, None

    def start(self, program):
        command = [str(program), self.role, "--insecure-dev"]
        for setting in self.settings:
            command += ["--set", setting]
        log = open(self.folder / f"{self.name}.log", "a", encoding="utf-8")
        self.child = subprocess.Popen(command, stdout=log, stderr=log)

    def is_ready(self):
        if self.child.poll() is not None:
            sys.exit(f"{self.name} ended ({self.child.returncode}):\n{self.log_tail()}")
        try:
            with urllib.request.urlopen(f"http://{addr(self.metrics)}/health/ready", timeout=2) as page:
                return page.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def stop(self):
        self.child.terminate()
        code = self.child.wait(STOPS_WITHIN_S)
        if code != 0:
            sys.exit(f"{self.name} ended with {code}:\n{self.log_tail()}")

    def log_tail(self):
        return (self.folder / f"{self.name}.log").read_text(encoding="utf-8", errors="replace")[-4000:]


def until(what, condition):
    give_up = time.monotonic() + READY_WITHIN_S
    while not condition():
        if time.monotonic() > give_up:
            sys.exit(f"{what}: not within {READY_WITHIN_S} s")
        time.sleep(0.1)


class Cluster:
    """Three replicas, two backends of one sub-cluster, two frontends, in plaintext on loopback."""

    def __init__(self, tool, folder):
        self.tool = tool
        ports = iter(range(PORTS, PORTS + 100))
        replicas = [{key: next(ports) for key in ("control", "dispatch", "beat", "metrics")} for _ in range(3)]
        listed = ", ".join(
            f'{{ id = {n}, control = "{addr(r["control"])}", dispatch = "{addr(r["dispatch"])}", beat = "{addr(r["beat"])}" }}'
            for n, r in enumerate(replicas, 1)
        )
        common = ["cluster.name=upgrade", "cluster.timing=relaxed", f"cluster.scheduler=[{listed}]"]
        self.processes, self.grpc = {}, {}

        def add(name, role, metrics, settings):
            self.processes[name] = Process(name, role, metrics, common + settings, folder)

        for n, replica in enumerate(replicas, 1):
            own = [f"scheduler.id={n}", f"scheduler.data_dir={folder}/raft-{n}", f"scheduler.metrics={addr(replica['metrics'])}"]
            add(f"scheduler-{n}", "scheduler", replica["metrics"], own)
        for n in (1, 2):
            execute, metrics = next(ports), next(ports)
            own = [f"backend.name=backend-{n}", "backend.subcluster=default", "backend.executor=emulated"]
            own += [f"backend.exec={addr(execute)}", f"backend.metrics={addr(metrics)}"]
            add(f"backend-{n}", "backend", metrics, own + ['backend.gpus=[{ kind = "emulated", count = 1, memory_mb = 4096 }]'])
        for n in (1, 2):
            grpc, rest, metrics, data = (next(ports) for _ in range(4))
            own = [f"frontend.name=frontend-{n}", f"frontend.grpc={addr(grpc)}", f"frontend.rest={addr(rest)}"]
            add(f"frontend-{n}", "frontend", metrics, own + [f"frontend.metrics={addr(metrics)}", f"frontend.data={addr(data)}"])
            self.grpc[f"frontend-{n}"] = grpc
        self.environment = {**os.environ, "SYMPHONY_CLUSTER": ",".join(addr(r["control"]) for r in replicas), "SYMPHONY_INSECURE_DEV": "true"}

    def ask(self, *words):
        return subprocess.run([self.tool, *words], capture_output=True, text=True, check=False, env=self.environment)

    def tell(self, *words):
        done = self.ask(*words)
        if done.returncode != 0:
            sys.exit(f"symphony {' '.join(words)}: {done.stderr}")
        return done.stdout

    def start(self, program):
        for role in ("scheduler", "backend", "frontend"):
            mine = [process for process in self.processes.values() if process.role == role]
            for process in mine:
                process.start(program)
            for process in mine:
                until(f"{process.name} is ready", process.is_ready)

    def kill(self):
        for process in self.processes.values():
            if process.child and process.child.poll() is None:
                process.child.kill()
                process.child.wait()

    def members(self):
        asked = self.ask("get", "members", "-o", "json")
        return json.loads(asked.stdout) if asked.returncode == 0 else []

    def is_whole(self):
        members = self.members()
        lags = [member["lag"] for member in members if member["role"] == "scheduler"]
        return len(members) == len(self.processes) and all(member["up"] for member in members) and not any(lags)

    def replace(self, name, program):
        process = self.processes[name]
        began = time.monotonic()
        process.stop()
        process.start(program)
        until(f"{name} is ready", process.is_ready)
        until("the cluster is whole", self.is_whole)
        took = time.monotonic() - began
        print(f"  {name}: {took:.1f} s", file=sys.stderr)
        return took

    def load(self, frontend, rate):
        command = [self.tool, "load", "--model", f"m={rate}", "--frontend", addr(self.grpc[frontend])]
        command += ["--duration-s", "86400", "--warmup-s", "0", "--slack-ms", "50", "--lag-p99-ms", "10000", "--lag-max-ms", "20000", "-o", "json"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.environment)
        time.sleep(2)
        return child, time.monotonic()


def ended(load):
    """The load's counts, with the seconds for which it was to send."""
    child, began = load
    if child.poll() is not None:
        sys.exit("the load ended by itself")
    seconds = time.monotonic() - began
    child.send_signal(signal.SIGINT)
    out = child.communicate()[0]
    # It says that it could not send as planned, or that answers were wrong.
    if child.returncode != 0:
        sys.exit(f"the load ended with {child.returncode}:\n{out}")
    return {**json.loads(out)["total"], "seconds": seconds}


def upgrade(cluster, old, new, rate):
    """Replaces every process under load; returns what became of the requests, and how long each took."""
    print("schedulers and backends, one back and forth, and a frontend", file=sys.stderr)
    load, took = cluster.load("frontend-1", rate), []
    took += [cluster.replace(name, new) for name in ("scheduler-1", "backend-1")]
    took += [cluster.replace(name, old) for name in ("backend-1", "scheduler-1")]
    took += [cluster.replace(f"scheduler-{n}", new) for n in (1, 2, 3)]
    took.append(cluster.replace("backend-1", new))
    early = cluster.ask("upgrade", "finish")
    if early.returncode != 2 or "backend-2" not in early.stderr:
        sys.exit(f"an upgrade that is not over was to be refused: {early.stdout}{early.stderr}")
    took += [cluster.replace(name, new) for name in ("backend-2", "frontend-2")]
    totals = [ended(load)]

    print("the other frontend, and the end of the upgrade", file=sys.stderr)
    load = cluster.load("frontend-2", rate)
    took.append(cluster.replace("frontend-1", new))
    until("all is known", lambda: not json.loads(cluster.tell("upgrade", "show", "-o", "json"))["behind"])
    cluster.tell("upgrade", "finish")
    time.sleep(3)
    totals.append(ended(load))
    shown = json.loads(cluster.tell("upgrade", "show", "-o", "json"))
    if shown["level"] != shown["known"]:
        sys.exit(f"the level was not raised: {shown}")
    return totals, took, shown["level"]


def judge_service(number, total, rate):
    """Each load for itself: the second one is short, and would vanish in a sum."""
    least, shed = GOOD_LEAST * rate * total["seconds"], sum(total["dropped"].values())
    if total["good"] < least:
        raise SystemExit(f"load {number}: {total['good']} requests were answered in time, expected at least {least:.0f}")
    if shed > SHED_MOST * total["offered"]:
        raise SystemExit(f"load {number}: {shed} of {total['offered']} requests were shed, expected at most {SHED_MOST:.0%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="FROM")
    parser.add_argument("new", metavar="TO")
    parser.add_argument("--rate", type=int, default=200)
    measured.add_arguments(parser)
    args = parser.parse_args()
    old, new = built(args.old), built(args.new)

    with tempfile.TemporaryDirectory(prefix="symphony-upgrade-") as folder:
        cluster = Cluster(new, pathlib.Path(folder))
        try:
            cluster.start(old)
            cluster.tell(*"model load m --emulated --subcluster default --alpha-ms 1 --beta-ms 5 --batch-max 32".split(), "--slo-ms", str(SLO_MS))
            until("the cluster is whole", cluster.is_whole)
            totals, took, level = upgrade(cluster, old, new, args.rate)
        finally:
            cluster.kill()

    def version(program):
        return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()

    def summed(key):
        return sum(total[key] for total in totals)

    def by_reason(key):
        counts = {}
        for total in totals:
            for reason, count in total[key].items():
                counts[reason] = counts.get(reason, 0) + count
        return counts

    found = {"from": version(old), "to": version(new), "level": level, "rate_rps": args.rate, "requests": summed("offered")}
    found |= {"good": summed("good"), "refused": by_reason("refused"), "failed": by_reason("failed")}
    found |= {"lost": summed("lost"), "answered_twice": summed("answered_twice"), "foreign": summed("foreign")}
    found |= {"dropped": by_reason("dropped"), "late": summed("late")}
    found |= {"replaced": len(took), "took_s": [round(min(took), 1), round(max(took), 1)]}
    print(json.dumps(found, indent=1))
    wrong = [key for key in ("failed", "refused", "lost", "answered_twice", "foreign") if found[key]]
    failed = sum(sum(count.values()) if isinstance(count, dict) else count for count in (found[key] for key in wrong))
    measured.write(args, found, {"failed in an upgrade under load": str(failed)})
    if wrong:
        raise SystemExit(f"requests did not get their one answer: {', '.join(wrong)}")
    for number, total in enumerate(totals, 1):
        judge_service(number, total, args.rate)


if __name__ == "__main__":
    main()
