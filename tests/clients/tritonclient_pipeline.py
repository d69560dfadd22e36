"""Loads and asks the pipeline `canvas` of a repository with tritonclient, over gRPC and HTTP, and judges the answers.

The repository has `detect`, `digits` and the pipeline of both; nothing is loaded before, and the models are afterwards.
The canvases are made here, of held-out digits. Exit status: 0 all is as it should be; 1 something is not, with a
message; 2 wrong usage.
"""

import argparse
import struct
import sys
import time
import zlib

import numpy as np
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from tritonclient.utils import InferenceServerException

PATIENCE_S = 60
PASSING = ("503", "504", "StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED")
CANVASES = 40
ACCURACY_MIN = 0.95
# As deploy/models/detect/PROVENANCE.md has canvases.
DIGIT, CELL, CELLS = 8, 12, 4
PLACES, SIDE = CELLS * CELLS, CELLS * CELL


def phase(words):
    print(f"phase: {words}", flush=True)


def expect(condition, words):
    if not condition:
        raise AssertionError(words)


def expect_refused(call, status, words):
    try:
        call()
    except InferenceServerException as refused:
        expect(refused.status() == status, f"status {refused.status()!r} of {refused.message()!r}; expected {status!r}")
        expect(words in refused.message(), f"message {refused.message()!r} does not say {words!r}")
    else:
        raise AssertionError(f"expected status {status}, got an answer")


def field(value, name):
    return value.get(name, "") if isinstance(value, dict) else getattr(value, name)


def read_digits(path):
    data = open(path, "rb").read()
    expect(data[:8] == b"SYMDIGIT", f"{path} is no set of digits")
    _, images, pixels = struct.unpack("<III", data[8:20])
    records = np.frombuffer(data[20:], dtype=np.uint8).reshape(images, pixels + 1)
    return records[:, :pixels].reshape(images, DIGIT, DIGIT), records[:, pixels]


def png(pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def canvas(numbers, digits):
    """A picture, and what it shows: the digit of each place that has one."""
    images, labels = digits
    pixels, shown = np.zeros((SIDE, SIDE), dtype=np.uint8), {}
    for place in sorted(int(place) for place in numbers.permutation(PLACES)[: numbers.integers(1, 10)]):
        image = int(numbers.integers(len(labels)))
        x = CELL * (place % CELLS) + int(numbers.integers(CELL - DIGIT + 1))
        y = CELL * (place // CELLS) + int(numbers.integers(CELL - DIGIT + 1))
        pixels[y : y + DIGIT, x : x + DIGIT] = np.round(images[image] * (255 / 16))
        shown[place] = int(labels[image])
    return png(pixels), shown


def infer_patiently(client, module, pictures):
    """A leader may hear of a model a moment after its frontend, and a machine that pauses misses deadlines."""
    given = module.InferInput("PICTURE", [len(pictures)], "BYTES")
    given.set_data_from_numpy(np.array(pictures, dtype=np.object_))
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            return client.infer("canvas", [given], parameters={"symphony_accept_late": True})
        except InferenceServerException as refused:
            if refused.status() not in PASSING or time.monotonic() > give_up:
                raise
            time.sleep(0.2)


def rows_of(answer):
    """Of which item and place each label is, as the answer says."""
    value = field(answer.get_output("LABEL"), "parameters")["symphony_rows"]
    text = value if isinstance(value, str) else value.string_param
    return [tuple(int(part) for part in row.split(".")) for row in text.split(",")]


def judge_answers(client, module, digits):
    phase(f"digits are found on {CANVASES} canvases and recognised")
    numbers = np.random.default_rng(1)
    left, right, there = CANVASES, 0, 0
    while left > 0:
        items = min(int(numbers.integers(1, 4)), left)
        left -= items
        pictures, shown = zip(*(canvas(numbers, digits) for _ in range(items)))
        answer = infer_patiently(client, module, list(pictures))
        scores, labels = answer.as_numpy("SCORES"), answer.as_numpy("LABEL").reshape(-1)
        expect(scores.shape == (items, PLACES), f"shape of the scores is {scores.shape}")
        expect(answer.as_numpy("BOXES").shape == (items, PLACES, 4), "shape of the boxes")
        found = [(int(item), int(place)) for item, place in np.argwhere(scores > 0.5)]
        expect(rows_of(answer) == found, f"labels are of {rows_of(answer)}; expected {found}")
        expect(len(labels) == len(found), f"{len(labels)} labels of {len(found)} digits")
        there += sum(len(on_canvas) for on_canvas in shown)
        right += sum(shown[item].get(place) == label for (item, place), label in zip(found, labels))
    print(f"{right} of {there} digits are right", flush=True)
    expect(right >= ACCURACY_MIN * there, f"{right} of {there} digits are right; expected {ACCURACY_MIN:.0%}")


def judge(module, address, token, digits, statuses, is_first):
    client = module.InferenceServerClient(address)
    shown = {"authorization": f"Bearer {token}"}

    def load(name):
        client.load_model(name, headers=shown)

    phase("a pipeline is loaded after its models, by whom it may")
    expect_refused(lambda: client.load_model("canvas"), statuses["unauthenticated"], "authorization: Bearer")
    if is_first:
        expect_refused(lambda: load("canvas"), statuses["invalid"], "`detect`, which is not loaded")
        load("detect")
        load("digits")
    load("canvas")
    expect(client.is_model_ready("canvas") and client.is_model_ready("canvas", "1"), "canvas is not ready")
    metadata = client.get_model_metadata("canvas")
    expect(field(metadata, "platform") == "ensemble", f"{metadata}")
    expect([field(given, "name") for given in field(metadata, "inputs")] == ["PICTURE"], f"{metadata}")
    index = client.get_model_repository_index()
    entries = index if isinstance(index, list) else index.models
    states = {field(entry, "name"): field(entry, "state") for entry in entries}
    expect(states == {"canvas": "READY", "detect": "READY", "digits": "READY"}, f"{states}")
    # It is as the folder says, again.
    load("canvas")

    judge_answers(client, module, digits)

    phase("what is no picture is refused, and the pipeline keeps its models")
    given = module.InferInput("PICTURE", [1], "BYTES")
    given.set_data_from_numpy(np.array([b"no picture"], dtype=np.object_))
    expect_refused(lambda: client.infer("canvas", [given]), statuses["invalid"], "PICTURE")
    words = "is asked by pipeline `canvas@"
    expect_refused(lambda: client.unload_model("digits", headers=shown), statuses["invalid"], words)

    phase("it is unloaded; its models stay")
    client.unload_model("canvas", headers=shown)
    expect_refused(lambda: client.infer("canvas", [given]), statuses["unknown"], "no model `canvas`")
    expect(client.is_model_ready("digits") and not client.is_model_ready("canvas"), "readiness")
    client.close()


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--grpc", required=True, metavar="HOST:PORT")
    arguments.add_argument("--http", required=True, metavar="HOST:PORT")
    arguments.add_argument("--token", required=True)
    arguments.add_argument("--digits", required=True, metavar="FILE")
    options = arguments.parse_args()
    digits = read_digits(options.digits)
    print("client: tritonclient over gRPC", flush=True)
    statuses = {
        "unauthenticated": "StatusCode.UNAUTHENTICATED",
        "unknown": "StatusCode.NOT_FOUND",
        "invalid": "StatusCode.INVALID_ARGUMENT",
    }
    judge(over_grpc, options.grpc, options.token, digits, statuses, True)
    print("client: tritonclient over HTTP", flush=True)
    statuses = {"unauthenticated": "401", "unknown": "404", "invalid": "400"}
    judge(over_http, options.http, options.token, digits, statuses, False)
    print("content", flush=True)


if __name__ == "__main__":
    sys.exit(main())
