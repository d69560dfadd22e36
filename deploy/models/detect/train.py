#!/usr/bin/env python3
"""Trains the detector of the demo's pipeline, which finds handwritten digits on a canvas.

Writes detect.onnx beside this file. PROVENANCE.md says where the images come from, what a canvas is, what the file
holds and which command makes it.
"""

import argparse
import pathlib
import sys
import warnings

import numpy as np
import onnx
import sklearn
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

# The split of the digits' own train.py: neither model has seen the held-out images.
SPLIT_SEED = 20240501
TEST_SHARE = 1 / 3
PIXEL_MAX = 16
WHITE = 255

SIDE = 8  # of a digit
CELL = 12  # of a place where there may be one
CELLS = 4  # in a row, and in a column
PLACES = CELLS * CELLS
CANVAS = CELLS * CELL
# Where a digit may begin in its cell, along one side.
SHIFTS = CELL - SIDE + 1
NOTHING = SHIFTS * SHIFTS

SEED = 1
HIDDEN = 64
ROUNDS = 60
CELLS_WITHOUT = 6000
CANVASES = 300
FOUND_MIN = 0.99
WRONG_MAX = 0.01
# Old enough for every ONNX Runtime the executor accepts (1.23 and later).
OPSET = 17
IR_VERSION = 8
MASK = (1 << 64) - 1


def splitmix(state):
    """The numbers of SplitMix64."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        yield mixed ^ (mixed >> 31)


def grey(pixel):
    """A pixel of an image, 0 to 16, as one of a picture."""
    return (np.asarray(pixel, dtype=np.int64) * WHITE + PIXEL_MAX // 2) // PIXEL_MAX


def canvas(number, digits):
    """Canvas `number` of these images, as `symphony_executor::canvas` has it: its pixels; what is at each place."""
    numbers = splitmix(number)
    pixels, shown = np.zeros((CANVAS, CANVAS), dtype=np.uint8), []
    for place in range(PLACES):
        top, left = CELL * (place // CELLS), CELL * (place % CELLS)
        kind = next(numbers) % 8
        shown.append(None)
        if kind < 2:
            image, right, down = (next(numbers) % below for below in (len(digits), SHIFTS, SHIFTS))
            y, x = top + down, left + right
            pixels[y : y + SIDE, x : x + SIDE] = grey(digits[image]).reshape(SIDE, SIDE)
            shown[-1] = image
        elif kind == 2:
            width, height = 2 + next(numbers) % 4, 2 + next(numbers) % 4
            x, y = left + next(numbers) % (CELL + 1 - width), top + next(numbers) % (CELL + 1 - height)
            pixels[y : y + height, x : x + width] = grey(4 + next(numbers) % 13)
    return pixels, shown


def cells_to_train_on(digits):
    """Every image at every place of its cell; and cells without one, most of them with a smudge."""
    cells, shifts = [], []
    for digit in digits:
        for shift in range(NOTHING):
            cell = np.zeros((CELL, CELL))
            y, x = divmod(shift, SHIFTS)
            cell[y : y + SIDE, x : x + SIDE] = digit.reshape(SIDE, SIDE) / PIXEL_MAX
            cells.append(cell)
            shifts.append(shift)
    numbers = np.random.default_rng(SEED)
    for nth in range(CELLS_WITHOUT):
        cell = np.zeros((CELL, CELL))
        if nth % 4:
            height, width = numbers.integers(2, 6, 2)
            y, x = numbers.integers(0, CELL + 1 - height), numbers.integers(0, CELL + 1 - width)
            cell[y : y + height, x : x + width] = numbers.integers(4, PIXEL_MAX + 1) / PIXEL_MAX
        cells.append(cell)
        shifts.append(NOTHING)
    return np.array(cells).reshape(len(cells), -1), np.array(shifts)


def train(digits):
    cells, shifts = cells_to_train_on(digits)
    classifier = MLPClassifier(
        hidden_layer_sizes=(HIDDEN,),
        alpha=1e-3,
        batch_size=256,
        learning_rate_init=2e-3,
        max_iter=ROUNDS,
        random_state=SEED,
    )
    # As many rounds as were found to be enough.
    warnings.simplefilter("ignore", ConvergenceWarning)
    classifier.fit(cells, shifts)
    return classifier


def judge(classifier, digits):
    """On canvases of these images: how many there are, are found, and found to the pixel; and what else is found."""
    there = found = exact = wrong = 0
    for number in range(CANVASES):
        pixels, shown = canvas(number, digits)
        cells = pixels.reshape(CELLS, CELL, CELLS, CELL).transpose(0, 2, 1, 3).reshape(PLACES, -1) / WHITE
        probabilities = classifier.predict_proba(cells)
        is_found = 1 - probabilities[:, NOTHING] > 0.5
        for place, image in enumerate(shown):
            there += image is not None
            found += image is not None and is_found[place]
            wrong += image is None and is_found[place]
            if image is not None and is_found[place]:
                y, x = divmod(int(probabilities[place, :NOTHING].argmax()), SHIFTS)
                top, left = CELL * (place // CELLS) + y, CELL * (place % CELLS) + x
                cut = pixels[top : top + SIDE, left : left + SIDE]
                exact += np.array_equal(cut, grey(digits[image]).reshape(SIDE, SIDE))
    return there, found, exact, wrong


def to_onnx(classifier):
    """canvas 0..1 -> boxes, scores. The first layer looks at each cell by itself."""

    def constant(name, array, kind=np.float32):
        return numpy_helper.from_array(np.array(array, dtype=kind, order="C"), name)

    (hidden_weight, output_weight), (hidden_bias, output_bias) = classifier.coefs_, classifier.intercepts_
    shift = np.array([[x, y, x + SIDE, y + SIDE] for y in range(SHIFTS) for x in range(SHIFTS)])
    corner = np.array([[x, y, x, y] for y in range(CELLS) for x in range(CELLS)]) * CELL
    initializers = [
        constant("hidden.weight", hidden_weight.T.reshape(HIDDEN, 1, CELL, CELL)),
        constant("hidden.bias", hidden_bias),
        constant("output.weight", output_weight.T.reshape(NOTHING + 1, HIDDEN, 1, 1)),
        constant("output.bias", output_bias),
        constant("by_place", [0, NOTHING + 1, PLACES], np.int64),
        constant("first", [0], np.int64),
        constant("nothing", NOTHING, np.int64),
        constant("behind", [NOTHING], np.int64),
        constant("classes", [2], np.int64),
        constant("one", 1.0),
        constant("shift", shift),
        constant("corner", corner),
    ]
    nodes = [
        helper.make_node("Conv", ["canvas", "hidden.weight", "hidden.bias"], ["hidden"], strides=[CELL, CELL]),
        helper.make_node("Relu", ["hidden"], ["hidden.active"]),
        helper.make_node("Conv", ["hidden.active", "output.weight", "output.bias"], ["map"]),
        helper.make_node("Reshape", ["map", "by_place"], ["map.flat"]),
        helper.make_node("Transpose", ["map.flat"], ["logits"], perm=[0, 2, 1]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=2),
        helper.make_node("Gather", ["probabilities", "nothing"], ["empty"], axis=2),
        helper.make_node("Sub", ["one", "empty"], ["scores"]),
        helper.make_node("Slice", ["logits", "first", "behind", "classes"], ["shifts"]),
        helper.make_node("ArgMax", ["shifts"], ["likeliest"], axis=2, keepdims=0),
        helper.make_node("Gather", ["shift", "likeliest"], ["in_cell"], axis=0),
        helper.make_node("Add", ["in_cell", "corner"], ["boxes"]),
    ]
    graph = helper.make_graph(
        nodes,
        "detect",
        [helper.make_tensor_value_info("canvas", TensorProto.FLOAT, ["N", 1, CANVAS, CANVAS])],
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, ["N", PLACES, 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", PLACES]),
        ],
        initializers,
    )
    model = helper.make_model(graph, producer_name="symphony", opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    return model


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=here, help="folder to write to")
    out = parser.parse_args().out

    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images, labels, test_size=TEST_SHARE, random_state=SPLIT_SEED, stratify=labels)
    train_images, test_images = split[:2]
    classifier = train(train_images)
    there, found, exact, wrong = judge(classifier, test_images)
    print(f"scikit-learn {sklearn.__version__}, onnx {onnx.__version__}, numpy {np.__version__}")
    print(f"{CANVASES} canvases of held-out images: {found} of {there} digits found, {exact} of them to the pixel;")
    print(f"{wrong} of {CANVASES * PLACES - there} places without one taken for one")
    if found < FOUND_MIN * there or wrong > WRONG_MAX * (CANVASES * PLACES - there):
        sys.exit(f"expected at least {FOUND_MIN:.0%} found and at most {WRONG_MAX:.0%} wrong; nothing was written")

    onnx.save(to_onnx(classifier), out / "detect.onnx")


if __name__ == "__main__":
    main()
