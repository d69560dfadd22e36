#!/usr/bin/env python3
"""What the executor adds to ONNX Runtime: its batches beside those of ONNX Runtime's own Python, same model, batch, threads and core.

usage: .cache/venv/bin/python benches/ort_overhead.py target/release/executor-run [--rounds 30] [--core 1] [--out FILE] [--figures FILE --machine NAME]

Both halves load the same file (random weights) and the same inputs, use one thread, are bound to the same core, and take turns: a few
batches of one, as many of the other, in alternating order. Outputs are compared. What is printed is the ratio of the two medians of a
round, its median over all rounds and where the middle half of them lies; so whatever else the machine does falls on both.
`deploy/setup/setup.sh --benches` installs what this needs.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import measured
import numpy
import onnxruntime

# Model and items; all but the first take 5 ms and more.
CASES = [("mlp", 1), ("mlp", 32), ("mobilenet", 1), ("mobilenet", 8), ("resnet50", 1), ("resnet50", 4), ("bert", 1)]
# One half's turn in a round lasts about this long, and has at least so many batches.
TURN_MS, TURN_BATCHES_MIN = 150, 3
WARM_UP_BATCHES = 5


class Python:
    """ONNX Runtime as its users call it."""

    def __init__(self, model, feeds):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.feeds, self.outputs = feeds, None

    def run(self, batches):
        took = []
        for _ in range(batches):
            begun = time.perf_counter_ns()
            self.outputs = self.session.run(None, self.feeds)
            took.append(time.perf_counter_ns() - begun)
        return took


class Executor:
    """The executor, in a process of its own."""

    def __init__(self, program, model, items, folder):
        self.outputs = folder / "outputs"
        command = [program, "run", model, "--batch", str(items), "--inputs", folder / "inputs", "--outputs", self.outputs]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, batches):
        self.process.stdin.write(f"{batches}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("the executor ended")
        return [int(word) for word in line.split()]

    def end(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            sys.exit("the executor failed")
        return self.outputs.read_bytes()


def inputs_of(model, items):
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    random = numpy.random.default_rng(1)
    feeds = {}
    for tensor in session.get_inputs():
        if tensor.type != "tensor(float)":
            sys.exit(f"input {tensor.name} is {tensor.type}; expected tensor(float)")
        feeds[tensor.name] = random.random([items, *tensor.shape[1:]], dtype=numpy.float32)
    return feeds


def measure(program, model, items, rounds, folder):
    feeds = inputs_of(model, items)
    (folder / "inputs").write_bytes(b"".join(feed.tobytes() for feed in feeds.values()))
    python, executor = Python(model, feeds), Executor(program, model, items, folder)
    halves = {"python": python, "executor": executor}
    warm = {name: statistics.median(half.run(WARM_UP_BATCHES)) for name, half in halves.items()}
    batches = max(TURN_BATCHES_MIN, int(TURN_MS * 1e6 / warm["python"]))
    medians, best = {name: [] for name in halves}, {name: float("inf") for name in halves}
    for number in range(rounds):
        for name in sorted(halves, reverse=number % 2 == 1):
            took = halves[name].run(batches)
            medians[name].append(statistics.median(took))
            best[name] = min(best[name], *took)
    answers = numpy.frombuffer(executor.end(), dtype=numpy.float32)
    expected = numpy.concatenate([output.ravel() for output in python.outputs])
    if answers.shape != expected.shape or not numpy.allclose(answers, expected, rtol=1e-4, atol=1e-5):
        sys.exit(f"{model.name}, {items} items: the two do not answer the same")
    ratios = [ours / theirs for ours, theirs in zip(medians["executor"], medians["python"])]
    lower, median, upper = statistics.quantiles(ratios, n=4)
    return {
        "batches": rounds * batches,
        "python_ms": statistics.median(medians["python"]) / 1e6,
        "executor_ms": statistics.median(medians["executor"]) / 1e6,
        "ratio": median,
        "ratio_quartiles": [lower, upper],
        "ratio_of_best": best["executor"] / best["python"],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="executor-run")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--core", type=int, default=1)
    measured.add_arguments(parser)
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.core})
    # Of the very package that this Python runs.
    library = next(pathlib.Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"), None)
    if library is None:
        sys.exit("the package onnxruntime holds no libonnxruntime.so")
    os.environ["SYMPHONY_ONNXRUNTIME"] = str(library)
    program = str(pathlib.Path(args.program).resolve())
    print(f"ONNX Runtime {onnxruntime.__version__}, one thread, core {args.core}, {args.rounds} rounds; ratio of medians, executor / Python")
    print(f"{'model':12}{'items':>6}{'batches':>9}{'Python ms':>11}{'executor ms':>13}{'ratio':>8}{'middle half':>17}{'of the best':>13}")
    results = []
    with tempfile.TemporaryDirectory(prefix="symphony-ort-") as folder:
        folder = pathlib.Path(folder)
        for name, items in CASES:
            model = folder / f"{name}.onnx"
            if not model.exists():
                subprocess.run([program, "generate", name, model], check=True)
            row = measure(program, model, items, args.rounds, folder)
            results.append({"model": name, "items": items, **row})
            low, high = row["ratio_quartiles"]
            print(
                f"{name:12}{items:>6}{row['batches']:>9}{row['python_ms']:>11.3f}{row['executor_ms']:>13.3f}{row['ratio']:>8.3f}"
                f"{f'{low:.3f} to {high:.3f}':>17}{row['ratio_of_best']:>13.3f}",
                flush=True,
            )
    long = [row["ratio"] for row in results if row["python_ms"] >= 5]
    [mlp] = [row["ratio"] for row in results if (row["model"], row["items"]) == CASES[0]]
    measured.write(args, results, {"worst of the batches of 5 ms and more": f"{max(long):.2f}", "MLP of 2.3 ms": f"{mlp:.2f}"})


if __name__ == "__main__":
    main()
