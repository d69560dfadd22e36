#!/usr/bin/env python3
"""Trains twenty heads on the hidden layer of the digits classifier, and writes them beside this file.

Each answers one question about a digit. heads.toml says which, and how many of the held-out images it gets right.
PROVENANCE.md says where the images come from and which command makes the files.
"""

import argparse
import pathlib
import sys

import numpy as np
import onnx
import sklearn
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

# As ../digits/train.py: the same images are held out.
SEED = 20240501
TEST_SHARE = 1 / 3
PIXELS = 64
ACCURACY_MIN = 0.9
OPSET = 17
IR_VERSION = 8
QUESTIONS = {f"is-{digit}": [digit] for digit in range(10)} | {
    "even": [0, 2, 4, 6, 8],
    "at-least-5": [5, 6, 7, 8, 9],
    "prime": [2, 3, 5, 7],
    "triple": [0, 3, 6, 9],
    "square": [0, 1, 4, 9],
    "power-of-two": [1, 2, 4, 8],
    "fibonacci": [0, 1, 2, 3, 5, 8],
    "middle": [3, 4, 5, 6],
    "closed-loop": [0, 6, 8, 9],
    "straight": [1, 4, 7],
}


def trunk_of(path):
    """The weights and biases of the hidden layer, as the file has them."""
    found = {tensor.name: tensor for tensor in onnx.load(path).graph.initializer}
    return found["hidden.weight"], found["hidden.bias"]


def to_onnx(name, trunk, weight, bias):
    """pixels 0..16 -> probabilities of no and yes, label. All up to `hidden.active` is as in the classifier."""
    initializers = [
        *trunk,
        numpy_helper.from_array(np.ascontiguousarray(weight), "output.weight"),
        numpy_helper.from_array(bias, "output.bias"),
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
        name,
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["N", PIXELS])],
        [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 2]),
            helper.make_tensor_value_info("label", TensorProto.INT64, ["N"]),
        ],
        initializers,
    )
    model = helper.make_model(graph, producer_name="symphony", opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model)
    return model


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=here, help="folder to write to")
    out = parser.parse_args().out
    print(f"scikit-learn {sklearn.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")

    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images, labels, test_size=TEST_SHARE, random_state=SEED, stratify=labels)
    train_images, test_images, train_labels, test_labels = split
    trunk = trunk_of(here.parent / "digits" / "digits.onnx")
    weight, bias = (numpy_helper.to_array(tensor) for tensor in trunk)
    hidden = lambda of: np.maximum(of.astype(np.float32) @ weight + bias, 0)

    lines = ["# Written by train.py: the digits that a head says yes to, and the held-out images of 599 that it gets right."]
    for name, digits in QUESTIONS.items():
        classifier = LogisticRegression(C=1.0, max_iter=2000, random_state=SEED)
        classifier.fit(hidden(train_images), np.isin(train_labels, digits))
        # No has logit 0.
        head = np.stack([np.zeros_like(classifier.coef_[0]), classifier.coef_[0]], axis=1).astype(np.float32)
        offset = np.array([0, classifier.intercept_[0]], dtype=np.float32)
        right = int(((hidden(test_images) @ head + offset).argmax(axis=1) == np.isin(test_labels, digits)).sum())
        print(f"{name}: {right} of {len(test_labels)}")
        if right < ACCURACY_MIN * len(test_labels):
            sys.exit(f"{name} is below {ACCURACY_MIN}; nothing more was written")
        onnx.save(to_onnx(name, trunk, head, offset), out / f"{name}.onnx")
        lines += ["", "[[head]]", f'name = "{name}"', f"digits = {digits}", f"right = {right}"]
    (out / "heads.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
