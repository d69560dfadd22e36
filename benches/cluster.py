"""What the scripts here share: a cluster of processes on chosen cores, load on it, and what each process uses."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

CONFIG = pathlib.Path(__file__).with_name("end_to_end.toml")
# Of that file: ports, of pages with metrics by role.
CONTROL, GRPC, REST = 17001, 18001, 18000
PAGES = {"scheduler": 17004, "frontend": 18002, "backend": 17104}
READY_WITHIN_S = 60
WARMUP_S = 1
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cores(text):
    """The cores that `0,2-3` names."""
    bounds = (part.partition("-") for part in text.split(","))
    return {core for low, _, high in bounds for core in range(int(low), int(high or low) + 1)}


def bound(to):
    """For a child: runs on these cores only, with all that it starts."""
    return (lambda: os.sched_setaffinity(0, to)) if to else None


@dataclasses.dataclass
class Offered:
    """What a load generator reported, and what it used of its cores, in seconds."""

    report: dict
    cpu_s: float

    @property
    def total(self):
        return self.report["total"]

    def served(self, bad_rate_max):
        """Whether the generator kept its schedule, hardly any requests were bad, and none was lost."""
        total = self.total
        return self.report["verdict"]["result"] == "passed" and total["bad_rate"] <= bad_rate_max and total["lost"] == 0


class Cluster:
    """A replica, a frontend and a backend, as separate processes."""

    def __init__(self, binary, settings=(), on_cores=None, host="127.0.0.1"):
        self.binary = str(pathlib.Path(binary).resolve())
        self.folder = tempfile.mkdtemp(prefix="symphony-benches-")
        self.host = host
        self.environment = {**os.environ, "SYMPHONY_CLUSTER": f"{host}:{CONTROL}", "SYMPHONY_PKI": f"{self.folder}/pki"}
        command = [self.binary, "up", "--config", str(CONFIG), "--dir", self.folder, "--host", host]
        for setting in settings:
            command += ["--set", setting]
        self.up = subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=bound(on_cores))

    def __enter__(self):
        until = time.monotonic() + READY_WITHIN_S
        while not {"backend-1", "frontend-1"} <= set(self._ask("get", "members").stdout.split()):
            if self.up.poll() is not None or time.monotonic() > until:
                self.__exit__()
                sys.exit("the cluster did not come up")
            time.sleep(0.2)
        return self

    def __exit__(self, *_):
        self.up.terminate()
        self.up.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ask(self, *words, **options):
        return subprocess.run([self.binary, *words], capture_output=True, text=True, check=False, env=self.environment, **options)

    def tell(self, *words):
        """Runs a subcommand that must succeed."""
        done = self._ask(*words)
        if done.returncode != 0:
            sys.exit(f"symphony {' '.join(words)}: {done.stderr}")
        return done.stdout

    def explained(self, request):
        """What is remembered of a request by its id; nothing if it is forgotten."""
        told = self._ask("explain", request, "-o", "json")
        return json.loads(told.stdout) if told.returncode == 0 else []

    def load(self, model, rate, seconds, *, protocol="grpc", seed=1, slack_ms=20, connections=8, on_cores=None, settings=()):
        """Offers `rate` requests per second."""
        return self.load_all({model: rate}, seconds, protocol, seed, slack_ms, connections, on_cores, settings)

    def load_all(self, rates, seconds, protocol="grpc", seed=1, slack_ms=20, connections=8, on_cores=None, settings=()):
        """Offers each of the models so many requests per second."""
        command = [self.binary, "load", "--protocol", protocol, "--duration-s", str(seconds)]
        for model, rate in rates.items():
            command += ["--model", f"{model}={rate}"]
        command += ["--warmup-s", str(WARMUP_S), "--slack-ms", str(slack_ms), "--seed", str(seed), "--connections", str(connections)]
        command += ["-o", "json", *settings]
        if protocol != "native":
            command += ["--frontend", f"{self.host}:{GRPC if protocol == 'grpc' else REST}"]
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=self.environment, preexec_fn=bound(on_cores)
        )
        output = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if not output:
            sys.exit(f"{' '.join(command)}: no report")
        return Offered(json.loads(output), used.ru_utime + used.ru_stime)

    def processes(self):
        """The number of each process, by its role."""
        children = pathlib.Path(f"/proc/{self.up.pid}/task/{self.up.pid}/children").read_text().split()
        return {pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1].decode(): int(pid) for pid in children}

    def cpu_s(self):
        """Seconds of processor time that each process has used, by its role."""
        return {role: cpu_s(pid) for role, pid in self.processes().items()}

    def metrics(self, role="scheduler"):
        """What a process says of itself, by line."""
        with urllib.request.urlopen(f"http://{self.host}:{PAGES[role]}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))


def cpu_s(pid):
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS_PER_S
