#!/usr/bin/env python3
"""The pipeline `canvas` live on the CPU, beside a client that asks its two models itself: latency at low load, answers when saturated, hops.

usage: benches/pipeline.py target/release/symphony [--cores 0,1] [--client-cores 2,3] [--seconds 4] [--pairs 5] [--clients 16] [--out FILE] [--figures FILE --machine NAME]

One cluster on --cores (replica, frontend, a backend that executes on ONNX Runtime) serves `detect`, `digits` and the pipeline of both. The same PNG
pictures, about four digits on each, are sent over REST with binary tensors, on connections that are kept, in two ways that take turns, in an order
that changes from pair to pair; ratios are medians over the pairs.

pipeline  one request to `canvas`
client    the picture to `detect`; while that is under way the client decodes it; the regions with a score above 0.5, cut out and scaled here, to
          `digits` in one request, as one batch. The first call may take half of the SLO, the second what is left of it

Added latency, at 50 requests/s one after the other, is the median latency less what both models take alone: the median batch of one picture in
`symphony profile` on one of --cores with nothing beside it, and that of a batch of all regions of a picture, mean over the pictures.
Goodput is the answers within the SLO a second that --clients closed loops get, each a process of its own: whatever the client's way costs the client's
cores is in it where there are no others. What each takes of them is said beside it.

Hops are of the frontend's own histogram, from a stage's result to the header of the next stage's request on its way to a leader; the way to another
host's leader is not in it. Its p99 is spread evenly within a bucket, as PromQL has it: the bounds beside 0.3 ms are 0.2 and 0.5. A hop of `canvas`
waits for its regions: what a picture takes, waiting for a thread and decoded, is said beside it, of the detector's and the regions' together.

Where the time goes: of the last requests of each turn at the low rate, what `symphony explain` tells of their stage requests, medians by stage. What is
left of the frontend's time is links, threads that wake up, and the making of inputs.
"""

import argparse
import dataclasses
import json
import math
import multiprocessing
import os
import pathlib
import random
import re
import resource
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib

import measured
from cluster import REST, Cluster, bound, cores

HOST = "127.0.0.1"
MODELS = pathlib.Path(__file__).resolve().parent.parent / "deploy" / "models"
BATCH_MAX = 32
# That of deploy/models/repository/canvas/pipeline.toml, and of the two models beside it.
SLO_MS = 500
LOW_RATE = 50
# Before a turn of closed loops counts.
RAMP_S = 0.5
READY_WITHIN_S = 30
ANSWER_WITHIN_S = 30
VARIANTS = ("pipeline", "client")
HOPS = "symphony_frontend_pipeline_hop_seconds_bucket{"
PICTURE_TIMES = ("symphony_frontend_picture_wait_seconds", "symphony_frontend_picture_decode_seconds")
# Requests of a turn at the low rate that are explained: some fifty milliseconds for each of their stage requests.
EXPLAINED = 5
# Aims, of ratios and milliseconds.
ADDED_MAX, GOODPUT_MIN, HOP_P99_MAX_MS = 0.8, 1.1, 0.3

# As deploy/models/detect/PROVENANCE.md has canvases, without smudges.
DIGIT, CELL, CELLS = 8, 12, 4
SIDE, PLACES = CELL * CELLS, CELLS * CELLS
CANVASES = 300
SCORE_MIN = 0.5
# Regions are cut and scaled by two programs: a digit that is hard to tell may differ.
AGREE_MIN = 0.99
# Of a grey value from 0 to 255, as `digits` takes it.
FP32 = [struct.pack("<f", value * 16 / 255) for value in range(256)]


class Refused(Exception):
    """An answer that is none, in the frontend's words."""


class Connection:
    """To the frontend, kept, with one request at a time."""

    def __init__(self):
        self.socket = socket.create_connection((HOST, REST), timeout=ANSWER_WITHIN_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = self.socket.makefile("rb")
        # Of the last answer.
        self.request_id = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.answers.close()
        self.socket.close()

    def send(self, request):
        self.socket.sendall(request)

    def receive(self):
        """The bytes of each output, by its name."""
        status, headers = self.answers.readline(), {}
        while (line := self.answers.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            headers[name.lower()] = value
        if b"content-length" not in headers:
            raise ConnectionError(f"{status!r}, {headers}: expected an answer with its length")
        body = self.answers.read(int(headers[b"content-length"]))
        if status.split()[1:2] != [b"200"]:
            raise Refused(f"{status.decode().strip()}: {body.decode(errors='replace')}")
        self.request_id = headers.get(b"symphony-request-id", b"").strip().decode()
        at = int(headers.get(b"inference-header-content-length", len(body)))
        outputs = {}
        for output in json.loads(body[:at])["outputs"]:
            end = at + output["parameters"]["binary_data_size"]
            outputs[output["name"]], at = body[at:end], end
        return outputs

    def ask(self, request):
        self.send(request)
        return self.receive()


def request_of(model, name, datatype, shape, data, timeout_ms=None, only=None):
    """A request with one input; answered by all outputs or that one, as bytes."""
    given = {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(data)}}
    head = {"inputs": [given], "parameters": {"binary_data_output": True}}
    if timeout_ms is not None:
        # In microseconds, of which 0 would be none given.
        head["parameters"]["timeout"] = max(1, int(timeout_ms * 1e3))
    if only:
        head["outputs"] = [{"name": only}]
    text = json.dumps(head, separators=(",", ":")).encode()
    lines = [f"POST /v2/models/{model}/infer HTTP/1.1", f"Host: {HOST}:{REST}", "Content-Type: application/octet-stream"]
    lines += [f"Inference-Header-Content-Length: {len(text)}", f"Content-Length: {len(text) + len(data)}"]
    return "\r\n".join([*lines, "", ""]).encode() + text + data


@dataclasses.dataclass
class Picture:
    png: bytes
    # What is sent of it: made once, by whichever way.
    to_pipeline: bytes
    to_detector: bytes

    @staticmethod
    def of(pixels):
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        rows = b"".join(b"\0" + pixels[at : at + SIDE] for at in range(0, len(pixels), SIDE))
        head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 0, 0, 0, 0)
        png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
        data = struct.pack("<I", len(png)) + png
        to_detector = request_of("detect", "canvas", "BYTES", [1], data, timeout_ms=SLO_MS / 2)
        return Picture(png, request_of("canvas", "PICTURE", "BYTES", [1], data), to_detector)

    def rows(self):
        """Its pixels row by row, a zero before each: what this program's own PNG files hold."""
        at = self.png.index(b"IDAT")
        [size] = struct.unpack(">I", self.png[at - 4 : at])
        return zlib.decompress(self.png[at + 4 : at + 4 + size])


def pictures():
    """Canvases of digits that neither model has seen."""
    held_out = (MODELS / "digits" / "digits-test.bin").read_bytes()
    magic, _, images, size = struct.unpack_from("<8sIII", held_out)
    if (magic, size) != (b"SYMDIGIT", DIGIT * DIGIT):
        sys.exit("digits-test.bin is no set of digits of 8 by 8 pixels")
    numbers, made = random.Random(1), []
    for _ in range(CANVASES):
        pixels = bytearray(SIDE * SIDE)
        for place in range(PLACES):
            if numbers.randrange(4) > 0:
                continue
            # A label is behind each image.
            at = 20 + numbers.randrange(images) * (size + 1)
            x = CELL * (place % CELLS) + numbers.randrange(CELL - DIGIT + 1)
            y = CELL * (place // CELLS) + numbers.randrange(CELL - DIGIT + 1)
            for row in range(DIGIT):
                values = held_out[at + row * DIGIT : at + (row + 1) * DIGIT]
                pixels[(y + row) * SIDE + x : (y + row) * SIDE + x + DIGIT] = bytes((value * 255 + 8) // 16 for value in values)
        made.append(Picture.of(bytes(pixels)))
    return made


PICTURES = pictures()


def by_pipeline(connection, picture):
    return connection.ask(picture.to_pipeline)["LABEL"]


def by_client(connection, picture):
    begun = time.monotonic()
    connection.send(picture.to_detector)
    rows = picture.rows()
    found = connection.receive()
    boxes, scores = struct.unpack(f"<{4 * PLACES}f", found["boxes"]), struct.unpack(f"<{PLACES}f", found["scores"])
    regions = []
    for place, score in enumerate(scores):
        if score > SCORE_MIN:
            left, top, right, bottom = map(round, boxes[4 * place : 4 * place + 4])
            regions += [rows[(SIDE + 1) * y + 1 + left : (SIDE + 1) * y + 1 + right] for y in range(top, bottom)]
    if not regions:
        return b""
    values = b"".join(regions)
    shape, data = [len(values) // (DIGIT * DIGIT), DIGIT * DIGIT], b"".join(map(FP32.__getitem__, values))
    left_ms = SLO_MS - 1e3 * (time.monotonic() - begun)
    return connection.ask(request_of("digits", "pixels", "FP32", shape, data, timeout_ms=left_ms, only="label"))["label"]


ASK = {"pipeline": by_pipeline, "client": by_client}


def paced(variant, seconds):
    """One client at the low rate. A machine that pauses misses deadlines: what is not answered has no latency, and is told."""
    latencies, refused, answered, begins = [], 0, [], time.monotonic()
    with Connection() as connection:
        for number in range(int(seconds * LOW_RATE)):
            time.sleep(max(0, begins + number / LOW_RATE - time.monotonic()))
            sent = time.monotonic()
            try:
                ASK[variant](connection, PICTURES[number % CANVASES])
                latencies.append(1e3 * (time.monotonic() - sent))
                answered.append(connection.request_id)
            except Refused:
                refused += 1
    if refused > len(latencies):
        sys.exit(f"{variant} at {LOW_RATE}/s: {refused} of {refused + len(latencies)} were not answered in time")
    p99_ms = statistics.quantiles(latencies, n=100)[98]
    return {"p50_ms": statistics.median(latencies), "p99_ms": p99_ms, "refused": refused}, answered[-EXPLAINED:]


def phases(cluster, requests):
    """Of the stage requests of these: the stage, and where the frontend's milliseconds for it went."""
    found = []
    for request in requests:
        for stage in (stage for told in cluster.explained(request) for stage in told["stages"] if stage["request"]):
            # One that was planned again has several explanations; the last one is of the batch that ran.
            batch = next((told["batch"] for told in reversed(cluster.explained(stage["request"])) if told.get("batch")), None)
            if batch and batch["actual"]:
                all_ms, ran, queued_ms = stage["ended_ms"] - stage["asked_ms"], batch["actual"], batch["head_waited_ms"] or 0
                of = {"all": all_ms, "queued": queued_ms, "to its start": batch["planned"]["start_ms"]}
                of |= {"late": ran["start_late_ms"], "runs": ran["execution_ms"], "the rest": all_ms - queued_ms - ran["end_ms"]}
                found.append((stage["stage"], of))
    return found


def medians_of(found):
    """By stage, the median of each part."""
    stages = dict.fromkeys(stage for stage, _ in found)
    of_stage = {stage: [of for named, of in found if named == stage] for stage in stages}
    return {stage: {part: statistics.median(of[part] for of in rows) for part in rows[0]} for stage, rows in of_stage.items()}


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def closed(variant, number, begins, ends):
    """One client in a closed loop, in its own process: all requests, those that count, of these answered in time, and its processor time."""
    asked, counted, good, used = 0, 0, 0, cpu_s()
    with Connection() as connection:
        while (sent := time.monotonic()) < ends:
            is_answered, asked = True, asked + 1
            try:
                ASK[variant](connection, PICTURES[(17 * number + asked) % CANVASES])
            except Refused:
                is_answered = False
            now = time.monotonic()
            if begins <= sent and now < ends:
                counted += 1
                good += is_answered and 1e3 * (now - sent) <= SLO_MS
    return asked, counted, good, cpu_s() - used


def saturated(pool, cluster, variant, args):
    begins, before = time.monotonic() + RAMP_S, sum(cluster.cpu_s().values())
    loops = [(variant, number, begins, begins + args.seconds) for number in range(args.clients)]
    asked, counted, good, client_s = map(sum, zip(*pool.starmap(closed, loops, chunksize=1)))
    cluster_s = sum(cluster.cpu_s().values()) - before
    cpu_us = {"cluster": 1e6 * cluster_s / asked, "client": 1e6 * client_s / asked}
    return {"good_rps": good / args.seconds, "bad_rate": 1 - good / max(1, counted), "cpu_us": cpu_us}


def hops(cluster):
    """Hops up to each bound, since the frontend started."""
    lines = cluster.metrics("frontend").items()
    return {re.search(r'le="([^"]+)"', name)[1]: int(float(value)) for name, value in lines if name.startswith(HOPS)}


def pictures_seen(cluster):
    """Pictures since the frontend started, and the milliseconds that they waited and were decoded."""
    said = cluster.metrics("frontend")
    return float(said[f"{PICTURE_TIMES[1]}_count"]), 1e3 * sum(float(said[f"{name}_sum"]) for name in PICTURE_TIMES)


class Hops:
    """Those of some turns together."""

    def __init__(self):
        self.counts = {}

    def add(self, before, after):
        for up_to, count in after.items():
            self.counts[up_to] = self.counts.get(up_to, 0) + count - before.get(up_to, 0)

    def quantile_ms(self, share):
        up_to, below = 0.0, 0
        counts = sorted((float(at_most), count) for at_most, count in self.counts.items())
        if not counts or counts[-1][1] == 0:
            sys.exit("the frontend counted no hop")
        wanted = share * counts[-1][1]
        for at_most, count in counts:
            if count >= wanted and count > below:
                # Beyond the last bound it is not known by how much.
                return 1e3 * (up_to if math.isinf(at_most) else up_to + (at_most - up_to) * (wanted - below) / (count - below))
            up_to, below = at_most, count
        return 1e3 * up_to

    def report(self):
        return {"p50_ms": self.quantile_ms(0.5), "p99_ms": self.quantile_ms(0.99), "counts": self.counts}


def profiled(binary, name, folder, core):
    """Measures the model on a core; the file, and the median milliseconds of a batch by its size."""
    out = folder / f"{name}.profile.toml"
    command = [binary, "profile", MODELS / name / f"{name}.onnx", "--latency", "median", "--batch-max", str(BATCH_MAX), "--gpu-kind", "cpu"]
    shown = subprocess.run([*command, "--out", out, "-o", "json"], check=True, stdout=subprocess.PIPE, text=True, preexec_fn=bound({core})).stdout
    return out, {row["batch"]: row["median_ms"] for row in json.loads(shown)["batches"]}


def alone_ms(medians, items):
    """On the line between the sizes that were measured."""
    low, high = max(size for size in medians if size <= items), min(size for size in medians if size >= items)
    share = (items - low) / max(1, high - low)
    return medians[low] + share * (medians[high] - medians[low])


def patiently(connection, variant, picture):
    """A leader may hear of a model a moment after its frontend."""
    until = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            return ASK[variant](connection, picture)
        except Refused as refused:
            if time.monotonic() > until:
                sys.exit(f"{variant}: {refused}")
            time.sleep(0.2)


def digits_found():
    """How many digits each picture has, by both ways, whose answers must be the same."""
    found, equal = [], 0
    with Connection() as connection:
        for picture in PICTURES:
            answers = [patiently(connection, variant, picture) for variant in VARIANTS]
            ours, theirs = (struct.unpack(f"<{len(labels) // 8}q", labels) for labels in answers)
            if len(ours) != len(theirs):
                sys.exit(f"the pipeline found {len(ours)} digits on a picture, the client {len(theirs)}")
            found.append(len(ours))
            equal += sum(our == their for our, their in zip(ours, theirs))
    if equal < AGREE_MIN * sum(found) or not any(found):
        sys.exit(f"the two ways agree on {equal} of {sum(found)} digits")
    return found


def pair_of(cluster, pool, number, args, low_hops, high_hops, told):
    row = {}
    for variant in VARIANTS if number % 2 else reversed(VARIANTS):
        before, seen = hops(cluster), pictures_seen(cluster)
        low, answered = paced(variant, args.seconds)
        between = hops(cluster)
        if variant == "pipeline":
            told["pictures"].append([now - then for now, then in zip(pictures_seen(cluster), seen)])
            told["phases"] += phases(cluster, answered)
        high = saturated(pool, cluster, variant, args)
        low_hops.add(before, between)
        high_hops.add(between, hops(cluster))
        row[variant] = low | high
    return row


def measure(binary, args):
    settings = ["backend.executor=ort-cpu", 'backend.gpus=[{ kind = "cpu", count = 1, memory_mb = 4096 }]']
    with tempfile.TemporaryDirectory(prefix="symphony-pipeline-") as folder:
        made = {name: profiled(binary, name, pathlib.Path(folder), min(args.cores)) for name in ("detect", "digits")}
        # Forked before there is a thread; all of them know the pictures.
        with multiprocessing.get_context("fork").Pool(args.clients) as pool, Cluster(binary, settings, args.cores, HOST) as cluster:
            for name, (profile, _) in made.items():
                words = ["--onnx", str(MODELS / name / f"{name}.onnx"), "--profile", str(profile), "--slo-ms", str(SLO_MS)]
                cluster.tell("model", "load", name, *words, "--transforms", str(MODELS / name / "transforms.toml"))
            cluster.tell("pipeline", "load", "canvas", "--repository", str(MODELS / "repository"))
            found = digits_found()
            for variant in VARIANTS:
                saturated(pool, cluster, variant, args)
            low_hops, high_hops, told = Hops(), Hops(), {"pictures": [], "phases": []}
            rows = [pair_of(cluster, pool, number, args, low_hops, high_hops, told) for number in range(args.pairs)]
    count, pictures_ms = map(sum, zip(*told["pictures"]))
    detect, digits = (medians for _, medians in made.values())
    alone = alone_ms(detect, 1) + statistics.mean(alone_ms(digits, items) if items else 0 for items in found)
    medians = lambda read: statistics.median(read(row["pipeline"]) / read(row["client"]) for row in rows)
    return {
        "alone_ms": alone,
        "digits_of_a_picture": statistics.mean(found),
        "added_ratio": medians(lambda way: way["p50_ms"] - alone),
        "goodput_ratio": medians(lambda way: way["good_rps"]),
        "hops": {"low": low_hops.report(), "saturated": high_hops.report()},
        "picture_ms": pictures_ms / max(1, count),
        "phases_ms": medians_of(told["phases"]),
        "pairs": rows,
    }


def shown(value, is_met):
    return f"{value:.2f}" if is_met else f"**{value:.2f}**"


def figures(found):
    added, goodput, hop_ms = found["added_ratio"], found["goodput_ratio"], found["hops"]["low"]["p99_ms"]
    return {
        "`canvas` over its two models asked by a client: added at 50/s, p50": shown(added, added <= ADDED_MAX),
        "the same: goodput of closed loops": shown(goodput, goodput >= GOODPUT_MIN),
        "a stage's result to the header of the next stage's request, at 50/s, p99": shown(hop_ms, hop_ms <= HOP_P99_MAX_MS),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--cores", type=cores, default={0, 1}, help="of everything but the client")
    # Where there are no more, they are shared.
    parser.add_argument("--client-cores", type=cores, default={2, 3} if (os.cpu_count() or 1) >= 4 else {0, 1})
    parser.add_argument("--seconds", type=float, default=4, help="of each turn")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--clients", type=int, default=16, help="closed loops that saturate the cluster")
    measured.add_arguments(parser)
    args = parser.parse_args()
    os.sched_setaffinity(0, args.client_cores)
    found = measure(str(pathlib.Path(args.binary).resolve()), args)
    print(
        f"{args.pairs} pairs, load average {os.getloadavg()[0]:.1f}; {found['digits_of_a_picture']:.1f} digits a picture, "
        f"both models alone {found['alone_ms']:.3f} ms"
    )
    for variant in VARIANTS:
        middle = lambda read: statistics.median(read(row[variant]) for row in found["pairs"])
        print(
            f"{variant:9} at {LOW_RATE}/s: p50 {middle(lambda way: way['p50_ms']):.3f} ms, "
            f"added {middle(lambda way: way['p50_ms']) - found['alone_ms']:.3f} ms, p99 {middle(lambda way: way['p99_ms']):.3f} ms; "
            f"{args.clients} closed loops: {middle(lambda way: way['good_rps']):.0f}/s in time, bad {middle(lambda way: way['bad_rate']):.2%}; "
            f"µs of a core for a request: cluster {middle(lambda way: way['cpu_us']['cluster']):.0f}, "
            f"client {middle(lambda way: way['cpu_us']['client']):.0f}"
        )
    print(f"pipeline over client: added {found['added_ratio']:.2f} (aim {ADDED_MAX}), goodput {found['goodput_ratio']:.2f} (aim {GOODPUT_MIN})")
    for load, report in found["hops"].items():
        print(f"hops, {load}: p50 {report['p50_ms']:.3f} ms, p99 {report['p99_ms']:.3f} ms of {report['counts']['+Inf']} (aim {HOP_P99_MAX_MS})")
    print(f"a picture waits for a thread and is decoded in {found['picture_ms']:.3f} ms, mean")
    for stage, of in found["phases_ms"].items():
        print(f"{stage:9} " + ", ".join(f"{part} {ms:.3f}" for part, ms in of.items()) + " ms")
    measured.write(args, found, figures(found))


if __name__ == "__main__":
    main()
