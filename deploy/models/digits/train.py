#!/usr/bin/env python3
"""Trains the digits classifier of the demo and writes it beside this file.

Writes digits.onnx (the model) and digits-test.bin (the images it has never seen, with their labels).
PROVENANCE.md says where the images come from, what the files hold and which command makes them.
"""

import argparse
import pathlib
import struct
import sys

import numpy as np
import onnx
import sklearn
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

SEED = 20240501
TEST_SHARE = 1 / 3
HIDDEN = 64
PIXELS = 64
CLASSES = 10
PIXEL_MAX = 16.0
ACCURACY_MIN = 0.96
# Old enough for every ONNX Runtime the executor accepts (1.23 and later).
OPSET = 17
IR_VERSION = 8

MAGIC = b"SYMDIGIT"
FORMAT_VERSION = 1


def train():
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images, labels, test_size=TEST_SHARE, random_state=SEED, stratify=labels)
    train_images, test_images, train_labels, test_labels = split
    classifier = MLPClassifier(hidden_layer_sizes=(HIDDEN,), alpha=1e-3, max_iter=400, random_state=SEED)
    classifier.fit(train_images / PIXEL_MAX, train_labels)
    return classifier, len(train_labels), test_images, test_labels


def to_onnx(classifier):
    """pixels 0..16 -> probabilities, label. The scaling to 0..1 is part of the model."""

    def constant(name, array):
        return numpy_helper.from_array(np.ascontiguousarray(array), name)

    (hidden_weight, output_weight), (hidden_bias, output_bias) = classifier.coefs_, classifier.intercepts_
    # Dividing the first layer's weights by 16 is the scaling, at no cost.
    initializers = [
        constant("hidden.weight", (hidden_weight / PIXEL_MAX).astype(np.float32)),
        constant("hidden.bias", hidden_bias.astype(np.float32)),
        constant("output.weight", output_weight.astype(np.float32)),
        constant("output.bias", output_bias.astype(np.float32)),
    ]
    nodes = [
        helper.make_node("Gemm", ["pixels", "hidden.weight", "hidden.bias"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["hidden.active"]),
        helper.make_node("Gemm", ["hidden.active", "output.weight", "output.bias"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
        helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["N", PIXELS])],
        [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", CLASSES]),
            helper.make_tensor_value_info("label", TensorProto.INT64, ["N"]),
        ],
        initializers,
    )
    model = helper.make_model(graph, producer_name="symphony", opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model)
    return model


def write_test_set(path, images, labels):
    """Magic, then u32 little-endian: version, images, pixels per image; then each image's pixels and its label, u8."""
    with open(path, "wb") as out:
        out.write(MAGIC)
        out.write(struct.pack("<III", FORMAT_VERSION, len(labels), PIXELS))
        for image, label in zip(images, labels):
            out.write(image.astype(np.uint8).tobytes() + bytes([label]))


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=here, help="folder to write to")
    out = parser.parse_args().out

    classifier, train_count, test_images, test_labels = train()
    accuracy = classifier.score(test_images / PIXEL_MAX, test_labels)
    right = round(accuracy * len(test_labels))
    print(f"scikit-learn {sklearn.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
    print(f"{train_count} images to train on, {right} of {len(test_labels)} held-out ones right: {accuracy:.4f}")
    if accuracy < ACCURACY_MIN:
        sys.exit(f"accuracy {accuracy:.4f} is below {ACCURACY_MIN}; nothing was written")

    onnx.save(to_onnx(classifier), out / "digits.onnx")
    write_test_set(out / "digits-test.bin", test_images, test_labels)


if __name__ == "__main__":
    main()
