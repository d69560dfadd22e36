"""Drives a whole Symphony cluster with tritonclient, unmodified, over gRPC and HTTP, and judges the answers.

The cluster has an emulated model (INPUT0 FP32 [-1,16] -> OUTPUT0 UINT32 [-1,1], the CRC-32C of the item's bytes) and,
with --digits, the model `digits` (pixels FP32 [-1,64] -> label INT64). Requests have at most 1 MiB. Exit status: 0 all is
as it should be; 1 something is not, with a message; 2 wrong usage.
"""

import argparse
import struct
import sys
import time

import numpy as np
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from tritonclient.utils import InferenceServerException

IMAGES = 200
ACCURACY_MIN = 0.96
PIXELS = 64
IMAGES_PER_REQUEST = 25
PATIENCE_S = 60
# This machine may pause for longer than any deadline that is worth asking for.
PATIENT = {"parameters": {"symphony_accept_late": True}}


def phase(words):
    print(f"phase: {words}", flush=True)


def expect(condition, words):
    if not condition:
        raise AssertionError(words)


def expect_equal(got, expected, what):
    expect(got == expected, f"{what} is {got!r}; expected {expected!r}")


def expect_refused(call, status, words):
    try:
        call()
    except InferenceServerException as refused:
        expect_equal(refused.status(), status, f"status of {refused.message()!r}")
        expect(words in refused.message(), f"message {refused.message()!r} does not say {words!r}")
    else:
        raise AssertionError(f"expected status {status}, got an answer")


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def read_digits(path):
    data = open(path, "rb").read()
    expect(data[:8] == b"SYMDIGIT", f"{path} is no set of digits")
    _, images, pixels = struct.unpack("<III", data[8:20])
    expect_equal(pixels, PIXELS, "pixels per image")
    records = np.frombuffer(data[20:], dtype=np.uint8).reshape(images, PIXELS + 1)[:IMAGES]
    return records[:, :PIXELS].astype(np.float32), records[:, PIXELS].astype(np.int64)


def tensor(module, name, data, datatype="FP32", **options):
    given = module.InferInput(name, list(data.shape), datatype)
    given.set_data_from_numpy(data, **options)
    return given


def field(value, name):
    return value[name] if isinstance(value, dict) else getattr(value, name)


def judge_pages(client, model, statuses):
    phase("health and metadata")
    expect(client.is_server_live() and client.is_server_ready(), "the server is not ready")
    expect(client.is_model_ready(model), f"{model} is not ready")
    expect(not client.is_model_ready("nope"), "an unknown model is ready")
    expect_equal(field(client.get_server_metadata(), "name"), "symphony", "name of the server")
    metadata = client.get_model_metadata(model)
    given = field(metadata, "inputs")[0]
    expect_equal((field(given, "name"), field(given, "datatype")), ("INPUT0", "FP32"), "input")
    expect_equal([int(n) for n in field(given, "shape")], [-1, 16], "shape")
    expect_refused(lambda: client.get_model_metadata("nope"), statuses["unknown"], "no model `nope`")


def infer_patiently(client, *arguments, **options):
    """A machine that pauses misses deadlines, which is said by the status; what is judged here is the answer."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            return client.infer(*arguments, **options, **PATIENT)
        except InferenceServerException as refused:
            if refused.status() not in ("504", "StatusCode.DEADLINE_EXCEEDED") or time.monotonic() > give_up:
                raise


def judge_emulated(client, module, model, options):
    phase("answers of the emulated model belong to their questions")
    for items in (1, 3, 32):
        data = np.random.default_rng(items).random((items, 16), dtype=np.float32)
        answer = infer_patiently(client, model, [tensor(module, "INPUT0", data, **options)], request_id=str(items))
        expected = np.array([[crc32c(item.tobytes())] for item in data], dtype=np.uint32)
        expect(np.array_equal(answer.as_numpy("OUTPUT0"), expected), f"{items} items: {answer.as_numpy('OUTPUT0')}")
        expect_equal(field(answer.get_response(), "id"), str(items), "id")


def judge_statistics(client, model):
    phase("statistics count alike, as perf_analyzer wants them")
    spans = field(field(client.get_inference_statistics(model), "model_stats")[0], "inference_stats")
    names = ("success", "queue", "compute_input", "compute_infer", "compute_output")
    counts = [int(field(field(spans, name), "count")) for name in names]
    expect(counts[0] > 0 and len(set(counts)) == 1, f"counts of {names} are {counts}")


def judge_refusals(client, module, model, statuses):
    phase("refusals")
    good = np.zeros((1, 16), dtype=np.float32)

    def refused(name, given, status, words):
        expect_refused(lambda: client.infer(name, [given]), statuses[status], words)

    refused("nope", tensor(module, "INPUT0", good), "unknown", "no model `nope`")
    refused(model, tensor(module, "z", good), "invalid", "no input `z`")
    refused(model, tensor(module, "INPUT0", good.astype(np.int32), "INT32"), "invalid", "data type INT32; expected FP32")
    refused(model, tensor(module, "INPUT0", np.zeros((1, 15), dtype=np.float32)), "invalid", "expected [-1,16]")
    refused(model, tensor(module, "INPUT0", np.zeros((33, 16), dtype=np.float32)), "invalid", "takes 1 to 32")
    large = tensor(module, "INPUT0", np.zeros((17_000, 16), dtype=np.float32))
    refused(model, large, "large", "larger than")
    expect_refused(
        lambda: client.infer(model, [tensor(module, "INPUT0", good)], timeout=1), statuses["deadline"], "deadline"
    )


def judge_digits(client, module, digits, options):
    phase(f"{IMAGES} digits")
    pixels, labels = digits
    right = 0
    for begin in range(0, IMAGES, IMAGES_PER_REQUEST):
        end = begin + IMAGES_PER_REQUEST
        outputs = [module.InferRequestedOutput("label")]
        given = [tensor(module, "pixels", pixels[begin:end], **options)]
        answer = infer_patiently(client, "digits", given, outputs=outputs)
        right += int((answer.as_numpy("label").reshape(-1) == labels[begin:end]).sum())
    expect(right >= ACCURACY_MIN * IMAGES, f"{right} of {IMAGES} digits are right; expected {ACCURACY_MIN:.0%}")


def judge(module, address, model, digits, statuses, variants):
    client = module.InferenceServerClient(address)
    judge_pages(client, model, statuses)
    for options in variants:
        judge_emulated(client, module, model, options)
        if digits:
            judge_digits(client, module, digits, options)
    judge_refusals(client, module, model, statuses)
    judge_emulated(client, module, model, variants[0])
    judge_statistics(client, model)
    client.close()


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--grpc", required=True, metavar="HOST:PORT")
    arguments.add_argument("--http", required=True, metavar="HOST:PORT")
    arguments.add_argument("--emulated", required=True, metavar="MODEL")
    arguments.add_argument("--digits", metavar="FILE")
    options = arguments.parse_args()
    digits = read_digits(options.digits) if options.digits else None
    print("client: tritonclient over gRPC", flush=True)
    statuses = {
        "unknown": "StatusCode.NOT_FOUND",
        "invalid": "StatusCode.INVALID_ARGUMENT",
        "large": "StatusCode.RESOURCE_EXHAUSTED",
        "deadline": "StatusCode.DEADLINE_EXCEEDED",
    }
    judge(over_grpc, options.grpc, options.emulated, digits, statuses, [{}])
    print("client: tritonclient over HTTP", flush=True)
    statuses = {"unknown": "404", "invalid": "400", "large": "413", "deadline": "504"}
    judge(over_http, options.http, options.emulated, digits, statuses, [{"binary_data": True}, {"binary_data": False}])
    print("content", flush=True)


if __name__ == "__main__":
    sys.exit(main())
