"""Loads, asks and unloads models of a repository with tritonclient, over gRPC and HTTP, and judges the answers.

The repository has `digits`, `noise` (whose file is no model) and `ensemble` (whose configuration cannot be read); nothing
is loaded before, and `digits` is afterwards. Exit status: 0 all is as it should be; 1 something is not, with a message;
2 wrong usage.
"""

import argparse
import sys
import time

import numpy as np
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from tritonclient.utils import InferenceServerException

PATIENCE_S = 60
PASSING = ("503", "504", "StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED")
PIXELS = np.zeros((2, 8, 8), dtype=np.float32)


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


def states(client, headers=None):
    index = client.get_model_repository_index(headers=headers)
    entries = index if isinstance(index, list) else index.models
    return {field(entry, "name"): (field(entry, "state"), field(entry, "reason")) for entry in entries}


def state_patiently(client, name, headers=None):
    """A frontend may see that a backend could not load a model a moment after it has told the caller so."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        state, reason = states(client, headers)[name]
        if state != "LOADING" or time.monotonic() > give_up:
            return state, reason
        time.sleep(0.2)


def infer_patiently(client, given, version=""):
    """A leader may hear of a model a moment after its frontend, and a machine that pauses misses deadlines."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            return client.infer("digits", [given], model_version=version, parameters={"symphony_accept_late": True})
        except InferenceServerException as refused:
            if refused.status() not in PASSING or time.monotonic() > give_up:
                raise
            time.sleep(0.2)


def judge(module, address, token, statuses):
    client = module.InferenceServerClient(address)
    shown = {"authorization": f"Bearer {token}"}

    phase("nobody loads or unloads without the token")
    expect_refused(lambda: client.load_model("digits"), statuses["unauthenticated"], "authorization: Bearer")
    wrong = {"authorization": "Bearer 0123456789abcdef"}
    expect_refused(lambda: client.load_model("digits", headers=wrong), statuses["unauthenticated"], "authorization")
    expect(states(client)["digits"] == ("UNAVAILABLE", "not loaded"), f"{states(client)}")

    phase("a good model")
    client.load_model("digits", headers=shown)
    expect(states(client)["digits"][0] == "READY", f"{states(client)}")
    expect(client.is_model_ready("digits", "1") and not client.is_model_ready("digits", "2"), "versions")
    metadata = client.get_model_metadata("digits")
    expect(list(field(metadata, "versions")) == ["1"], f"{metadata}")
    given = module.InferInput("pixels", list(PIXELS.shape), "FP32")
    given.set_data_from_numpy(PIXELS)
    for version in ("", "1"):
        answer = infer_patiently(client, given, version)
        expect(answer.as_numpy("label").shape == (2,), f"{answer.as_numpy('label')}")
        expect(field(answer.get_response(), "model_version") == "1", "version of the answer")
    expect_refused(lambda: client.infer("digits", [given], model_version="2"), statuses["unknown"], "has version 1")
    statistics = client.get_inference_statistics("digits", "1")
    entries = statistics["model_stats"] if isinstance(statistics, dict) else statistics.model_stats
    expect([field(entry, "version") for entry in entries] == ["1"], f"{statistics}")

    phase("models that cannot be loaded, and the good one beside them")
    expect_refused(lambda: client.load_model("noise", headers=shown), statuses["failed"], "noise/1/model.onnx")
    state, reason = state_patiently(client, "noise")
    expect(state == "UNAVAILABLE" and "cannot be served" in reason and "onnx" not in reason, f"{state}: {reason}")
    state, reason = state_patiently(client, "noise", shown)
    expect(state == "UNAVAILABLE" and "noise/1/model.onnx" in reason, f"{state}: {reason}")
    expect_refused(lambda: client.load_model("ensemble", headers=shown), statuses["invalid"], "ensemble_scheduling")
    expect_refused(lambda: client.load_model("nope", headers=shown), statuses["unknown"], "no model `nope`")
    config = '{"max_batch_size": 1}'
    expect_refused(
        lambda: client.load_model("digits", headers=shown, config=config), statuses["unsupported"], "parameter `config`"
    )
    infer_patiently(client, given)

    phase("unloaded, and loaded again")
    expect_refused(lambda: client.unload_model("digits"), statuses["unauthenticated"], "authorization")
    # Under the name that the cluster has for the version.
    client.unload_model("digits@1", headers=shown)
    expect_refused(lambda: client.infer("digits", [given]), statuses["unknown"], "no model `digits`")
    client.load_model("digits", headers=shown)
    infer_patiently(client, given)
    return client, shown


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--grpc", required=True, metavar="HOST:PORT")
    arguments.add_argument("--http", required=True, metavar="HOST:PORT")
    arguments.add_argument("--token", required=True)
    options = arguments.parse_args()
    print("client: tritonclient over gRPC", flush=True)
    statuses = {
        "unauthenticated": "StatusCode.UNAUTHENTICATED",
        "unknown": "StatusCode.NOT_FOUND",
        "invalid": "StatusCode.INVALID_ARGUMENT",
        "unsupported": "StatusCode.UNIMPLEMENTED",
        "failed": "StatusCode.INTERNAL",
    }
    client, shown = judge(over_grpc, options.grpc, options.token, statuses)
    client.unload_model("digits", headers=shown)
    print("client: tritonclient over HTTP", flush=True)
    statuses = {"unauthenticated": "401", "unknown": "404", "invalid": "400", "unsupported": "501", "failed": "500"}
    judge(over_http, options.http, options.token, statuses)
    print("content", flush=True)


if __name__ == "__main__":
    sys.exit(main())
