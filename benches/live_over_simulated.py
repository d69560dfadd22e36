#!/usr/bin/env python3
"""Simulator and live side by side: the same models, GPUs and rates in virtual time and as processes on loopback.

usage: benches/live_over_simulated.py target/release/symphony [--case table4] [--case zoo] [--case inception] [--policy auto] [--seconds 30] [--csv FILE] [--out FILE] [--figures FILE --machine NAME]
       cargo build --release --locked -p symphony --example policy && benches/live_over_simulated.py target/release/examples/policy --case table4 --policy edf

Cases are scenarios: ResNet-50 and InceptionResNetV2 on 8 GPUs (Table 4), 35 models on 64 GPUs (the zoo of Figure 6), Poisson, policy `auto` unless another one is named. For each the simulator
finds the goodput; then a scheduler, a frontend, a backend with as many emulated GPUs, and a client over gRPC are offered shares of it.

One machine carries all of that, so time is stretched by `--scale`: every latency, SLO and time of a policy's own times k, every rate
divided by k. That leaves the schedule as it is, and makes what network, timers and threads add k times smaller beside the SLO. Rates are told in the scenario's own time.

What differs is taken apart by simulating the same rates again, each time with more of what the cluster met: the delays that it plans for; batches
as late and as long as they were, and as much taken off deadlines for that; profiles as the cluster has corrected them meanwhile, which
simulated batches then take as well: at most so much do corrections cost. What is left are pauses of the machine, uneven delays, and the client's own way.
"""

import argparse
import concurrent.futures
import csv
import dataclasses
import itertools
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

import measured
from cluster import PAGES, WARMUP_S, Cluster

SCENARIOS = pathlib.Path(__file__).parent.parent / "deploy" / "scenarios"
POLICY = "auto"
# Of models. Any other one decides for the whole sub-cluster, also one that the program adds.
MODEL_POLICIES = (POLICY, "symphony", "eager", "timeout", "clipper")
# Of those, what performance.md has a row for, and the least share of the simulated goodput that is aimed for.
SUBCLUSTER_POLICIES, SUBCLUSTER_AIM = ("clockwork", "nexus", "shepherd", "edf"), 0.95
# Times that policies have of their own, in milliseconds, as they are if not given.
POLICY_TIMES_MS = {"clockwork": {"commit_ms": 5, "early_ms": 5}}
# Scenario, and by how much its time is stretched unless it is given: to about a thousand requests per second.
CASES = {"table4": ("table4-resnet50.toml", 5), "zoo": ("zoo-1080ti-all.toml", 8), "inception": ("table4-inceptionresnetv2.toml", 2)}
SHARES = [0.5, 0.8, 0.95, 1.05]
# The live goodput is found to within this share of the simulated one.
SHARE_STEP = 0.05
# Virtual time beside that of the load.
SIMULATED_OVER_LIVE_MAX = 8
# Of each model, after each load.
BATCHES_EXPLAINED = 200
# Of those, where each takes a question of its own.
BATCHES_ASKED = 20
# What is simulated beside each load, with ever more of what the cluster met.
SIMULATED = ("simulated", "with_delays", "with_lateness", "with_corrections")
# What the simulator says where a cluster has been so slow that nothing could be in time.
UNREACHABLE = "no request could be answered in time"
# As in the simulator: at the goodput no model has more bad requests.
BAD_RATE_MAX = 0.01
# What leads plan for, in microseconds: the defaults of [scheduler.delays], and what inputs take at least.
DELAYS_US = {"control_us": 500, "data_us_min": 100, "reply_us": 500, "guard_us": 300}


@dataclasses.dataclass(frozen=True)
class Met:
    """What a cluster meets, and the simulator unless it is told does not."""

    # From a decision to the start of its batch.
    control_ms: float = 0.0
    # What comes off deadlines.
    margin_ms: float = 0.0
    # By how much batches take longer than profiles say, late starts included.
    longer_ms: float = 0.0
    # Profiles that plans are made with, over those that were given.
    corrected: float = 1.0

    @staticmethod
    def planned():
        control_us, margin_us = DELAYS_US["control_us"] + DELAYS_US["data_us_min"], DELAYS_US["reply_us"] + DELAYS_US["guard_us"]
        return Met(control_ms=control_us / 1e3, margin_ms=margin_us / 1e3)


@dataclasses.dataclass
class Case:
    """A scenario whose time is stretched."""

    scenario: dict
    scale: float
    # Of load for each rate.
    seconds: float
    noise: float
    policy: str

    @staticmethod
    def read(name, scale, seconds, noise, policy):
        scenario = tomllib.loads((SCENARIOS / name).read_text())
        for model in scenario["model"]:
            # The largest batch within the SLO, as the simulator has it.
            model["batch_max"] = max(1, int((model["slo_ms"] - model["beta_ms"]) / model["alpha_ms"] + 1e-9))
            for key in ("alpha_ms", "beta_ms", "slo_ms"):
                model[key] = round(scale * model[key], 6)
        return Case(scenario, scale, seconds, noise, policy)

    @property
    def models(self):
        return self.scenario["model"]

    @property
    def stretched_policy(self):
        """The policy, as a scenario and `symphony subcluster policy` read it."""
        times = "".join(f", {key} = {self.scale * ms}" for key, ms in POLICY_TIMES_MS.get(self.policy, {}).items())
        return f'{{ name = "{self.policy}"{times} }}'

    @property
    def gpus(self):
        return sum(gpu["count"] for gpu in self.scenario["gpu"])

    def rates(self, rate):
        return {model["name"]: rate / len(self.models) for model in self.models}

    def text(self, rate, met):
        """As a scenario for the simulator, with what the cluster met."""
        warmup_s, duration_s = (self.scale * self.scenario[key] for key in ("warmup_s", "duration_s"))
        # As much as the scenario says, unless the load is short as well.
        duration_s = min(duration_s, SIMULATED_OVER_LIVE_MAX * self.seconds)
        lines = [f'name = "{self.scenario["name"]}"', f"policy = {self.stretched_policy}", f"duration_s = {duration_s}", f"warmup_s = {warmup_s}"]
        lines += [f"seeds = {self.scenario['seeds']}"]
        lines += ["[network]", f"ctrl_us = {1e3 * met.control_ms}", f"reply_us = {1e3 * met.margin_ms}"]
        if self.noise > 0:
            lines += ["[execution]", f"noise = {{ lognormal_sigma = {self.noise} }}"]
        lines += ["[workload]", f"rate_rps = {rate}", 'arrival = "poisson"', 'popularity = "uniform"']
        for gpu in self.scenario["gpu"]:
            lines += ["[[gpu]]", f'kind = "{gpu["kind"]}"', f"count = {gpu['count']}"]
        for model in self.models:
            values = model | {key: met.corrected * model[key] for key in ("alpha_ms", "beta_ms")}
            values["beta_ms"] += met.longer_ms
            lines += ["[[model]]"] + [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        return "\n".join(lines) + "\n"


def median(values):
    """None if it is infinite, which JSON has no word for."""
    value = statistics.median(values)
    return value if math.isfinite(value) else None


class Simulator:
    def __init__(self, binary, case):
        self.binary, self.case = binary, case

    def run(self, rate, met, find=False):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(self.case.text(rate, met))
            file.flush()
            command = [self.binary, "sim", file.name, "-o", "json"] + (["--find-goodput"] if find else [])
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if UNREACHABLE in done.stderr:
            return None
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr}")
        return json.loads(done.stdout)

    def goodput(self, met):
        return self.run(self.case.scenario["workload"]["rate_rps"] / self.case.scale, met, find=True)["goodput_rps"]

    def at(self, rate, met):
        """Of all seeds: the share in time, of all and of the worst model, and latencies."""
        found = self.run(rate, met)
        if found is None:
            return {"in_time": 0.0, "in_time_worst_model": 0.0}
        runs = found["runs"]
        slos = {model["name"]: model["slo_ms"] for model in self.case.models}
        models = [model for run in runs for model in run["models"] if model["offered"] > 0]

        def of_slo(key):
            # Dropped requests count as infinite, which is null.
            return median(float("inf") if m[key] is None else m[key] / slos[m["name"]] for m in models)

        offered, good = (sum(model[key] for model in models) for key in ("offered", "good"))
        batches = sum(model["good"] + model["late"] for model in models) / sum(
            (model["good"] + model["late"]) / model["mean_batch"] for model in models if model["mean_batch"]
        )
        return {
            "in_time": good / offered,
            "in_time_worst_model": min(model["good"] / model["offered"] for model in models),
            "p50_of_slo": of_slo("p50_ms"),
            "p99_of_slo": of_slo("p99_ms"),
            "batch": batches,
            "gpus_busy": statistics.mean(run["gpu_utilization"] for run in runs),
        }


class Counters:
    """What the processes counted in between."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.before = self._read()

    def _read(self):
        lines = {}
        for role in PAGES:
            lines |= {line: float(value) for line, value in self.cluster.metrics(role).items()}
        return lines

    def stop(self):
        self.changes = {line: value - self.before.get(line, 0.0) for line, value in self._read().items()}
        return self

    def sum(self, name, *labels):
        fits = lambda line: line.split("{")[0] == name and all(label in line for label in labels)
        return sum(change for line, change in self.changes.items() if fits(line))

    def quantile(self, name, share):
        """The upper end of the bucket that holds it."""
        buckets = {}
        for line, change in self.changes.items():
            if line.startswith(f"{name}_bucket{{"):
                bound = float(line.split('le="')[1].split('"')[0])
                buckets[bound] = buckets.get(bound, 0.0) + change
        total = max(buckets.values(), default=0.0)
        return next((bound for bound, count in sorted(buckets.items()) if total and count >= share * total), None)


def waited_s(pids):
    """Seconds for which threads of these processes waited for a core."""
    waited_ns = 0
    for pid in pids:
        for file in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                waited_ns += int(file.read_text().split()[1])
            except OSError:
                pass  # A thread that has ended since.
    return waited_ns / 1e9


def last_batches(cluster, case):
    """What the last batches of all models say, as `symphony explain` has it; means."""

    def of(model):
        told = json.loads(cluster.tell("explain", "--batch", model["name"], "--last", str(BATCHES_EXPLAINED), "-o", "json"))
        batches = [one["batch"] for one in told if one["batch"].get("actual")]
        given_ms = [model["alpha_ms"] * batch["items"] + model["beta_ms"] for batch in batches]
        corrected = [batch["planned"]["execution_ms"] / given for batch, given in zip(batches, given_ms)]
        actual = [batch["actual"] for batch in batches]
        longer_ms = [max(0.0, one["start_late_ms"]) + one["execution_ms"] - given for one, given in zip(actual, given_ms)]
        return corrected, margins_ms(model, batches), longer_ms

    def margins_ms(model, batches):
        if all(batch["head_waited_ms"] is not None for batch in batches):
            return [model["slo_ms"] - batch["head_waited_ms"] - batch["planned"]["must_end_by_ms"] for batch in batches]
        # A policy for a whole sub-cluster does not say how long its batches waited. Their requests, the most urgent one first, say when they are due.
        asked = [batch["members"][0] for batch in batches if batch["members"]][:BATCHES_ASKED]
        told = [json.loads(cluster.tell("explain", request, "-o", "json"))[0]["batch"] for request in asked]
        return [one["deadline_ms"] - one["planned"]["must_end_by_ms"] for one in told] or [Met.planned().margin_ms]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(of, case.models))
    corrected, margin_ms, longer_ms = (statistics.mean(itertools.chain.from_iterable(of_models)) for of_models in zip(*found))
    return {"planned_over_profile": corrected, "margin_ms": margin_ms, "longer_ms": longer_ms}


def live(cluster, case, rate, seed):
    """What became of the load, and what the processes measured meanwhile."""
    pids = cluster.processes().values()
    cpu, waited, begun, counters = cluster.cpu_s(), waited_s(pids), time.monotonic(), Counters(cluster)
    # Requests are in time if they are at the client: nothing is added to the SLO.
    offered = cluster.load_all(case.rates(rate), case.seconds, seed=seed, slack_ms=0, settings=["--lag-p99-ms", "1000", "--lag-max-ms", "10000"])
    took, used = time.monotonic() - begun, {role: after - cpu[role] for role, after in cluster.cpu_s().items()}
    waited = waited_s(pids) - waited
    counters.stop()
    total, models = offered.total, [model for model in offered.report["models"] if model["offered"] > 0]
    slos = {model["name"]: model["slo_ms"] for model in case.models}
    # Where the frontend takes no more, it is the load that is too high, as where the scheduler drops.
    dropped = sum(total["refused"].values()) + sum(total["dropped"].values())
    failed = sum(total["failed"].values())
    known = total["good"] + total["late"] + dropped + failed
    accepted, refused = counters.sum("symphony_frontend_requests_accepted_total"), counters.sum("symphony_frontend_requests_refused_total")
    if total["lost"] + total["answered_twice"] + total["foreign"] > 0 or known != total["offered"] or accepted + refused != total["sent"]:
        sys.exit(f"requests were lost, answered twice, or counted differently by client and frontend: {total}, {accepted} accepted")

    def of_slo(model, key):
        unanswered = sum(sum(model[end].values()) for end in ("refused", "dropped", "failed"))
        infinite = unanswered > (0.5 if key == "p50_ms" else 0.01) * model["offered"]
        return float("inf") if infinite else model[key] / slos[model["name"]]

    plans = max(1.0, counters.sum("symphony_dispatch_plans_done_total"))
    milliseconds = lambda seconds: None if seconds is None else 1e3 * seconds
    return {
        "offered": total["offered"],
        "offered_rps": total["offered_rps"],
        "good": total["good"],
        "late": total["late"],
        "dropped": dropped,
        "failed": failed,
        "reasons": total["refused"] | total["dropped"] | total["failed"],
        "in_time": total["good"] / total["offered"],
        "in_time_worst_model": min(model["good"] / model["offered"] for model in models),
        # The warm-up included.
        "in_time_at_frontend": counters.sum("symphony_frontend_requests_total", 'outcome="in_time"') / max(1.0, accepted),
        "p50_of_slo": median(of_slo(model, "p50_ms") for model in models),
        "p99_of_slo": median(of_slo(model, "p99_ms") for model in models),
        "batch": counters.sum("symphony_dispatch_planned_requests_total") / max(1.0, counters.sum("symphony_dispatch_plans_total")),
        # More than all of it if much was left to be run at the end.
        "gpus_busy": counters.sum("symphony_backend_execution_seconds_total") / (case.gpus * (case.seconds + WARMUP_S)),
        "start_late_ms": 1e3 * counters.sum("symphony_dispatch_start_late_seconds_total") / plans,
        **last_batches(cluster, case),
        "execution_error_p99": counters.quantile("symphony_dispatch_execution_error_ratio", 0.99),
        "timer_late_p99_ms": milliseconds(counters.quantile("symphony_dispatch_timer_late_seconds", 0.99)),
        "input_read_p99_ms": milliseconds(counters.quantile("symphony_backend_payload_read_seconds", 0.99)),
        "plans_refused": counters.sum("symphony_dispatch_plans_refused_total"),
        "client_lag_p99_ms": offered.report["lag"]["p99_ms"],
        "client_lag_max_ms": offered.report["lag"]["max_ms"],
        "cores_used": (sum(used.values()) + offered.cpu_s) / took,
        "waited_for_cores": waited / took,
        "load_average": os.getloadavg()[0],
    }


def compared(cluster, simulator, rate, share, seed):
    """One rate, live and simulated."""
    found = live(cluster, simulator.case, rate, seed)
    result = {"share": share, "seed": seed, "live": found} | beside(simulator, found)
    show(simulator.case, result)
    return result


def beside(simulator, found):
    """What the simulator says of the load that was really offered: a draw is off its rate by a per cent or two, which counts in overload."""
    rate = found["offered_rps"]
    late = dataclasses.replace(Met.planned(), margin_ms=max(0.0, found["margin_ms"]), longer_ms=max(0.0, found["longer_ms"]))
    corrected = dataclasses.replace(late, corrected=found["planned_over_profile"])
    return dict(zip(SIMULATED, (simulator.at(rate, met) for met in (Met(), Met.planned(), late, corrected))))


def show(case, result):
    live, percent = result["live"], lambda value: f"{100 * value:.2f} %"
    k, parts = case.scale, SIMULATED
    print(f"  at {result['share']:.2f} of the simulated goodput: {live['offered_rps'] * k:.0f} r/s, {live['offered']} requests")
    print(f"    live: {live['good']} good, {live['late']} late, {live['dropped']} dropped, {live['failed']} failed {live['reasons'] or ''}")
    shares = [f"{name.replace('_', ' ')} {percent(result[name]['in_time'])}" for name in parts]
    print(f"    in time: {', '.join(shares)}, live {percent(live['in_time'])} ({percent(live['in_time_at_frontend'])} at the frontend)")
    shares = [f"{name.replace('_', ' ')} {percent(result[name]['in_time_worst_model'])}" for name in (parts[0], "live")]
    print(f"    in time, the worst model: {', '.join(shares)}")
    for what in ("p50_of_slo", "p99_of_slo"):
        simulated, found = ("infinite" if of[what] is None else f"{of[what]:.2f}" for of in (result["simulated"], live))
        print(f"    {what[:3]} over the SLO, the median model: simulated {simulated}, live {found}")
    batch, busy = result["simulated"]["batch"], result["simulated"]["gpus_busy"]
    print(f"    batch {batch:.1f} and {live['batch']:.1f}, GPUs busy {percent(busy)} and {percent(live['gpus_busy'])}")
    print(f"    means: plans started {live['start_late_ms']:.2f} ms late; batches ended {live['longer_ms']:.2f} ms later", end=" ")
    print(f"than by their profiles, which were corrected by {percent(live['planned_over_profile'] - 1)}; {live['margin_ms']:.2f} ms came off deadlines")
    print(f"    p99 in ms: timers {live['timer_late_p99_ms']} late, inputs read in {live['input_read_p99_ms']},", end=" ")
    print(f"the client lagged {live['client_lag_p99_ms']:.2f}")
    print(f"    cores used {live['cores_used']:.2f}, threads that waited for one {live['waited_for_cores']:.2f},", end=" ")
    print(f"load average {live['load_average']:.1f}", flush=True)


def passes(result):
    return 1 - result["live"]["in_time_worst_model"] <= BAD_RATE_MAX


def measured_case(name, args):
    file, scale = CASES[name]
    case = Case.read(file, args.scale or scale, args.seconds, args.noise, args.policy)
    simulator = Simulator(args.binary, case)
    goodput, planned = simulator.goodput(Met()), simulator.goodput(Met.planned())
    print(f"{name}: {len(case.models)} models on {case.gpus} GPUs, time stretched {case.scale} times, noise {case.noise}")
    print(f"  simulated goodput {goodput * case.scale:.0f} r/s, {planned * case.scale:.0f} with the delays that the cluster plans for", flush=True)
    gpus = ", ".join(f'{{ kind = "{gpu["kind"]}", count = {gpu["count"]}, memory_mb = 11264 }}' for gpu in case.scenario["gpu"])
    settings = [f"backend.gpus=[{gpus}]"] + [f"scheduler.delays.{key}={value}" for key, value in DELAYS_US.items()]
    settings += args.set
    if case.noise > 0:
        settings.append(f"backend.noise={case.noise}")
    # An address of its own, so that nothing else on this machine is in its way.
    with Cluster(args.binary, settings, host=f"127.{10 + os.getpid() % 200}.{os.getpid() // 200 % 250}.1") as cluster:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda model: load_model(cluster, case, model), case.models))
        if args.policy not in MODEL_POLICIES:
            [subcluster] = json.loads(cluster.tell("get", "subclusters", "-o", "json"))
            cluster.tell("subcluster", "policy", subcluster["name"], case.stretched_policy)
        at = lambda share, seed: compared(cluster, simulator, share * goodput, share, seed)
        results = [at(share, args.seed) for share in args.share]
        best = search(results, at, args) if args.search else None
    live_goodput = best * goodput * case.scale if best else None
    if args.search:
        words = f"{live_goodput:.0f} r/s, {best:.2f} of the simulated one" if best else f"below {min(args.share):.2f} of the simulated one"
        print(f"  live goodput: {words}", flush=True)
    numbers = {"simulated_goodput_rps": goodput * case.scale, "with_delays_goodput_rps": planned * case.scale, "live_goodput_rps": live_goodput}
    facts = {"case": name, "run": args.seed, "models": len(case.models), "gpus": case.gpus, "scale": case.scale, "noise": case.noise}
    facts |= {"policy": case.policy, "seconds": case.seconds, "settings": " ".join(args.set)}
    return facts | numbers | {"live_over_simulated": best, "results": results}


def load_model(cluster, case, model):
    line = [word for key in ("alpha_ms", "beta_ms", "slo_ms", "batch_max") for word in (f"--{key.replace('_', '-')}", str(model[key]))]
    cluster.tell("model", "load", model["name"], "--emulated", *line, "--gpu-kind", case.scenario["gpu"][0]["kind"], "--policy", case.policy if case.policy in MODEL_POLICIES else POLICY)


def search(results, at, args):
    """The highest share at which every model meets its SLO, to within a step; none if not even the lowest does."""

    def met(share):
        # A shared machine pauses: one miss is no limit, two are.
        for seed in (args.seed, args.seed + 100):
            known = [result for result in results if (result["share"], result["seed"]) == (share, seed)]
            if not known:
                results.append(at(share, seed))
            if passes(known[0] if known else results[-1]):
                return True
        return False

    shares = sorted(args.share)
    low = next((share for share in reversed(shares) if met(share)), None)
    high = next((share for share in shares if low is None or share > low), None)
    while low is not None and high is not None and high - low > SHARE_STEP + 1e-9:
        middle = round(low + SHARE_STEP * max(1, round((high - low) / SHARE_STEP / 2)), 2)
        low, high = (middle, high) if met(middle) else (low, middle)
    return low


def rows(runs):
    """One line for each rate."""
    commit = measured.commit()
    for run in runs:
        for result in run["results"]:
            live, simulated = result["live"], result["simulated"]
            row = {"run": run["run"]} | {key: run[key] for key in ("case", "models", "gpus", "scale", "noise", "seconds", "settings")}
            row |= {key: run[key] for key in ("simulated_goodput_rps", "with_delays_goodput_rps", "live_goodput_rps", "live_over_simulated")}
            row |= {"share": result["share"], "seed": result["seed"], "offered_rps": live["offered_rps"] * run["scale"]}
            row |= {key: live[key] for key in ("offered", "good", "late", "dropped", "failed")}
            row |= {f"in_time_{name}": result[name]["in_time"] for name in (*SIMULATED, "live")}
            row |= {"in_time_at_frontend": live["in_time_at_frontend"]}
            row |= {f"worst_model_{name}": result[name]["in_time_worst_model"] for name in ("simulated", "live")}
            for key in ("p50_of_slo", "p99_of_slo", "batch", "gpus_busy"):
                row |= {f"{key}_simulated": simulated[key], f"{key}_live": live[key]}
            keys = ("start_late_ms", "longer_ms", "margin_ms", "planned_over_profile", "timer_late_p99_ms", "input_read_p99_ms", "client_lag_p99_ms")
            row |= {key: live[key] for key in (*keys, "cores_used", "waited_for_cores", "load_average")}
            row |= {"cores": os.cpu_count(), "machine": measured.processor(), "commit": commit}
            yield {key: f"{value:.5g}" if isinstance(value, float) else "" if value is None else value for key, value in row.items()}


def figures(runs):
    """The live goodput over the simulated one, as the page has it: at the case's own scale, without noise."""
    whats = {("table4", POLICY): "goodput live over simulated: ResNet-50, 8 GPUs, time × 5", ("zoo", POLICY): "the same: 35 models, 64 GPUs, time × 8"}
    whats |= {("table4", policy): f"goodput live over simulated: ResNet-50, policy `{policy}`" for policy in SUBCLUSTER_POLICIES}
    whats |= {("inception", policy): f"goodput live over simulated: InceptionResNetV2, policy `{policy}`" for policy in SUBCLUSTER_POLICIES if policy != "edf"}
    usual = [run for run in runs if run["noise"] == 0 and run["scale"] == CASES[run["case"]][1]]
    found = {}
    for (case, policy), what in whats.items():
        shares = [run["live_over_simulated"] for run in usual if (run["case"], run["policy"]) == (case, policy) and run["live_over_simulated"]]
        if shares:
            share = statistics.median(shares)
            misses = policy in SUBCLUSTER_POLICIES and share < SUBCLUSTER_AIM
            found[what] = f"**{share:.2f}**" if misses else f"{share:.2f}"
    return found


def main():
    parser = argparse.ArgumentParser(description="Simulator and live side by side.")
    parser.add_argument("binary")
    parser.add_argument("--case", action="append", choices=list(CASES), help="the first two if not given")
    parser.add_argument("--policy", default=POLICY, help="of the models, or of the whole sub-cluster; the binary may be one that adds it")
    parser.add_argument("--runs", type=int, default=1, help="each with a cluster and a seed of its own")
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--seconds", type=float, default=30, help="of load for each rate")
    parser.add_argument("--share", type=float, action="append", help=f"of the simulated goodput; {SHARES} if not given")
    parser.add_argument("--scale", type=float, help="by how much time is stretched, instead of the case's own")
    parser.add_argument("--noise", type=float, default=0.0, help="of executions, live and simulated")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="of the cluster, as in `symphony up`; repeatable")
    parser.add_argument("--no-search", dest="search", action="store_false", help="look at the given shares only")
    parser.add_argument("--csv", help="one line for each rate, after those that are there")
    measured.add_arguments(parser)
    args = parser.parse_args()
    args.share, runs = sorted(args.share or SHARES), []
    for args.seed in range(args.seed, args.seed + args.runs):
        runs += [measured_case(name, args) for name in args.case or list(CASES)[:2]]
    if args.csv:
        lines = list(rows(runs))
        with open(args.csv, "a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, lines[0].keys(), lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerows(lines)
    measured.write(args, runs, figures(runs))


if __name__ == "__main__":
    main()
