"""Drives an Open Inference Protocol server with tritonclient, over gRPC and HTTP, and judges the answers.

The server is expected to have the models of crates/roles/frontend/tests/oip/fake.rs. Exit status: 0 all is as it should be;
1 something is not, with a message; 2 wrong usage.
"""

import argparse
import os
import sys

import numpy as np
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
import tritonclient.utils.shared_memory as shared_memory
from tritonclient.utils import InferenceServerException

X = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
TYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}


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


def x_input(client_module, data=X, datatype="FP32", **options):
    tensor = client_module.InferInput("x", list(data.shape), datatype)
    tensor.set_data_from_numpy(data, **options)
    return tensor


def judge_health(client):
    phase("health")
    expect(client.is_server_live(), "the server is not live")
    expect(client.is_server_ready(), "the server is not ready")
    expect(client.is_model_ready("double"), "model double is not ready")
    expect(client.is_model_ready("double", "1"), "version 1 of model double is not ready")
    expect(not client.is_model_ready("loading"), "model loading is ready")
    expect(not client.is_model_ready("nope"), "an unknown model is ready")


def judge_answers(client, module):
    phase("inference, all outputs")
    answer = client.infer("double", [x_input(module)], request_id="forty-two")
    expect(np.array_equal(answer.as_numpy("y"), 2 * X), f"y is {answer.as_numpy('y')}")

    phase("inference, a version, a timeout, an output asked for")
    outputs = [module.InferRequestedOutput("y")]
    answer = client.infer("double", [x_input(module)], model_version="1", outputs=outputs, timeout=5_000_000)
    expect(np.array_equal(answer.as_numpy("y"), 2 * X), f"y is {answer.as_numpy('y')}")

    phase("inference, every type")
    inputs, given = [], {}
    for name, dtype in TYPES.items():
        data = np.array([[0, 1], [1, 1], [1, 0]]).astype(dtype)
        tensor = module.InferInput(name.lower(), list(data.shape), name)
        tensor.set_data_from_numpy(data)
        inputs.append(tensor)
        given[name.lower()] = data
    answer = client.infer("every-type", inputs)
    for name, data in given.items():
        got = answer.as_numpy(name)
        expect(got.dtype == data.dtype and np.array_equal(got, data), f"{name} is {got}; expected {data}")

    phase("asynchronous inference")
    return outputs


def judge_compression(client, module, variants):
    phase("compressed requests and answers")
    for options in variants:
        # Long enough for an answer to be compressed.
        answer = client.infer("double", [x_input(module)], request_id="i" * 2000, **options)
        expect(np.array_equal(answer.as_numpy("y"), 2 * X), f"{options}: y is {answer.as_numpy('y')}")


def judge_shared_memory(client, module):
    phase("tensors in shared memory")
    key, size = f"/symphony-tritonclient-{os.getpid()}", X.nbytes
    region = shared_memory.create_shared_memory_region("both", key, 2 * size)
    try:
        shared_memory.set_shared_memory_region(region, [X])
        client.register_system_shared_memory("both", key, 2 * size)
        status = client.get_system_shared_memory_status("both")
        known = status[0] if isinstance(status, list) else status.regions["both"]
        of = known.get if isinstance(known, dict) else lambda name: getattr(known, name)
        expect_equal((of("key"), int(of("byte_size"))), (key, 2 * size), "status")
        given = module.InferInput("x", list(X.shape), "FP32")
        given.set_shared_memory("both", size)
        wanted = module.InferRequestedOutput("y")
        wanted.set_shared_memory("both", size, offset=size)
        answer = client.infer("double", [given], outputs=[wanted])
        expect(answer.get_output("y") is not None, "the output is not named")
        got = shared_memory.get_contents_as_numpy(region, np.float32, list(X.shape), offset=size)
        expect(np.array_equal(got, 2 * X), f"y is {got}")
        client.unregister_system_shared_memory("both")
        client.unregister_system_shared_memory()
    finally:
        shared_memory.destroy_shared_memory_region(region)


def judge_refusals(client, module, statuses):
    phase("refusals")
    too_many = np.zeros((9, 2, 2), dtype=np.float32)
    wrong_type = X.astype(np.int32)
    refusals = [
        ("nope", x_input(module), "unknown", "there is no model `nope`"),
        ("double", x_input(module, too_many), "invalid", "takes 1 to 8"),
        ("double", x_input(module, wrong_type, "INT32"), "invalid", "data type INT32; expected FP32"),
        ("double", x_input(module, X.reshape(2, 4)), "invalid", "expected [-1,2,2]"),
        ("loading", x_input(module), "unavailable", "not ready"),
        ("refuse-draining", x_input(module), "unavailable", "shutting down"),
        ("refuse-queue_full", x_input(module), "exhausted", "queue of the model is full"),
        ("refuse-slo_unreachable", x_input(module), "deadline", "deadline could not be met"),
        ("refuse-queue_expired", x_input(module), "deadline", "deadline passed"),
        ("refuse-execution_failed", x_input(module), "internal", "executor"),
        ("late", x_input(module), "deadline", "after the deadline"),
    ]
    for model, tensor, status, words in refusals:
        expect_refused(lambda: client.infer(model, [tensor]), statuses[status], words)
    renamed = module.InferInput("z", [2, 2, 2], "FP32")
    renamed.set_data_from_numpy(X)
    expect_refused(lambda: client.infer("double", [renamed]), statuses["invalid"], "no input `z`")
    wrong_output = [module.InferRequestedOutput("q")]
    expect_refused(
        lambda: client.infer("double", [x_input(module)], outputs=wrong_output), statuses["invalid"], "no output `q`"
    )
    expect_refused(
        lambda: client.infer("double", [x_input(module)], sequence_id=7), statuses["unsupported"], "sequences"
    )
    expect_refused(lambda: client.get_model_metadata("nope"), statuses["unknown"], "no model `nope`")
    expect_refused(lambda: client.load_model("nope"), statuses["unknown"], "no model `nope`")

    phase("a late answer, if wanted")
    answer = client.infer("late", [x_input(module)], parameters={"symphony_accept_late": True})
    expect(np.array_equal(answer.as_numpy("y"), 2 * X), f"y is {answer.as_numpy('y')}")


def judge_grpc(address):
    client = over_grpc.InferenceServerClient(address)
    judge_health(client)

    phase("metadata")
    server = client.get_server_metadata()
    expect_equal(server.name, "fake", "name of the server")
    expect("binary_tensor_data" in server.extensions, f"extensions are {server.extensions}")
    model = client.get_model_metadata("double")
    expect_equal((model.name, list(model.versions), model.platform), ("double", ["1"], "fake"), "metadata")
    expect_equal((model.inputs[0].datatype, list(model.inputs[0].shape)), ("FP32", [-1, 2, 2]), "input")
    config = client.get_model_config("double").config
    expect_equal((config.max_batch_size, list(config.input[0].dims)), (8, [2, 2]), "configuration")
    expect_equal(over_grpc.model_config_pb2.DataType.Name(config.output[0].data_type), "TYPE_FP32", "output")
    expect(config.HasField("dynamic_batching"), "the configuration does not say that the server batches")
    expect_equal(config.parameters["slo_ms"].string_value, "50", "objective")
    statistics = client.get_inference_statistics("double").model_stats[0]
    expect_equal((statistics.inference_count, statistics.inference_stats.queue.ns), (12, 20_000_000), "statistics")
    spans = statistics.inference_stats
    counts = {spans.compute_input.count, spans.compute_infer.count, spans.compute_output.count}
    expect_equal(len(counts), 1, f"numbers of counts {counts}, which perf_analyzer wants alike")
    index = {entry.name: entry.state for entry in client.get_model_repository_index().models}
    expect_equal((index["double"], index["loading"]), ("READY", "LOADING"), "states")
    client.load_model("double")
    client.unload_model("double")

    outputs = judge_answers(client, over_grpc)
    pending = client.infer("double", [x_input(over_grpc)], request_id="forty-two", outputs=outputs)
    response = pending.get_response()
    expect_equal((response.id, response.model_name, response.model_version), ("forty-two", "double", "1"), "answer")
    expect_equal(response.parameters["symphony_batch"].int64_param, 3, "batch")

    judge_compression(client, over_grpc, [{"compression_algorithm": name} for name in ("gzip", "deflate")])

    judge_shared_memory(client, over_grpc)

    phase("inference over a stream")
    answers = []
    client.start_stream(callback=lambda result, error: answers.append((result, error)))
    for model in ("double", "nope", "double"):
        client.async_stream_infer(model, [x_input(over_grpc)], request_id=model)
    client.stop_stream()
    errors = [error.message() if error else "" for _, error in answers]
    expect_equal(errors, ["", "there is no model `nope`", ""], "errors of the stream")
    finals = [result.get_response().parameters["triton_final_response"].bool_param for result, _ in answers if result]
    expect_equal(finals, [True, True], "final responses")

    phase("a deadline of gRPC")
    expect_refused(
        lambda: client.infer("stuck", [x_input(over_grpc)], client_timeout=0.1), "StatusCode.DEADLINE_EXCEEDED", ""
    )

    judge_refusals(
        client,
        over_grpc,
        {
            "unknown": "StatusCode.NOT_FOUND",
            "invalid": "StatusCode.INVALID_ARGUMENT",
            "unavailable": "StatusCode.UNAVAILABLE",
            "exhausted": "StatusCode.RESOURCE_EXHAUSTED",
            "deadline": "StatusCode.DEADLINE_EXCEEDED",
            "internal": "StatusCode.INTERNAL",
            "unsupported": "StatusCode.UNIMPLEMENTED",
        },
    )
    expect_refused(lambda: client.get_log_settings(), "StatusCode.UNIMPLEMENTED", "")
    client.close()


def judge_http(address):
    client = over_http.InferenceServerClient(address, concurrency=2)
    judge_health(client)

    phase("metadata")
    server = client.get_server_metadata()
    expect_equal(server["name"], "fake", "name of the server")
    model = client.get_model_metadata("double")
    expect_equal(model["inputs"], [{"name": "x", "datatype": "FP32", "shape": [-1, 2, 2]}], "inputs")
    config = client.get_model_config("double")
    expect_equal((config["max_batch_size"], config["input"][0]["data_type"]), (8, "TYPE_FP32"), "configuration")
    statistics = client.get_inference_statistics("double")["model_stats"][0]
    expect_equal((statistics["inference_count"], statistics["batch_stats"][0]["batch_size"]), (12, 4), "statistics")
    index = {entry["name"]: entry["state"] for entry in client.get_model_repository_index()}
    expect_equal((index["double"], index["loading"]), ("READY", "LOADING"), "states")
    client.load_model("double")
    client.unload_model("double")

    outputs = judge_answers(client, over_http)
    pending = client.async_infer("double", [x_input(over_http)], request_id="forty-two", outputs=outputs)
    response = pending.get_result().get_response()
    expect_equal((response["id"], response["model_name"]), ("forty-two", "double"), "answer")

    sent, wanted = "request_compression_algorithm", "response_compression_algorithm"
    variants = [{key: name} for key in (sent, wanted) for name in ("gzip", "deflate")]
    judge_compression(client, over_http, [*variants, {sent: "gzip", wanted: "deflate"}])

    judge_shared_memory(client, over_http)

    phase("JSON and binary data in every mixture")
    for binary_in in (True, False):
        for binary_out in (True, False):
            tensor = x_input(over_http, binary_data=binary_in)
            wanted = [over_http.InferRequestedOutput("y", binary_data=binary_out)]
            answer = client.infer("double", [tensor], outputs=wanted, headers={"x-slo-ms": "5000"})
            expect(np.array_equal(answer.as_numpy("y"), 2 * X), f"y is {answer.as_numpy('y')}")
            is_binary = "binary_data_size" in answer.get_output("y").get("parameters", {})
            expect_equal(is_binary, binary_out, "binary output")

    phase("numbers that are not finite, as JSON")
    odd = np.array([[[np.nan, np.inf], [-np.inf, 1]]], dtype=np.float32)
    wanted = [over_http.InferRequestedOutput("y", binary_data=False)]
    answer = client.infer("double", [x_input(over_http, odd)], outputs=wanted)
    expect(np.array_equal(answer.as_numpy("y"), 2 * odd, equal_nan=True), f"y is {answer.as_numpy('y')}")

    judge_refusals(
        client,
        over_http,
        {
            "unknown": "404",
            "invalid": "400",
            "unavailable": "503",
            "exhausted": "429",
            "deadline": "504",
            "internal": "500",
            "unsupported": "501",
        },
    )
    client.close()


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--grpc", required=True, metavar="HOST:PORT")
    arguments.add_argument("--http", required=True, metavar="HOST:PORT")
    options = arguments.parse_args()
    print("client: tritonclient over gRPC", flush=True)
    judge_grpc(options.grpc)
    print("client: tritonclient over HTTP", flush=True)
    judge_http(options.http)
    print("content", flush=True)


if __name__ == "__main__":
    sys.exit(main())
