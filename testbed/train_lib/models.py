# SPDX-License-Identifier: Apache-2.0
"""The two models, small enough for two processors, and their data; the same on every rank from one seed."""
import gzip
import os

import numpy
import torch
from torch import nn

FASHION = "/usr/share/datasets/fashion-mnist"
LICENSES = "/usr/share/common-licenses"


class DataError(RuntimeError):
    """One line: what is missing, and the way out."""


def cnn():
    """About 0.21 million parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))


class Transformer(nn.Module):
    """A causal character transformer without dropout: about 0.22 million parameters."""

    def __init__(self, characters, context, width=64, heads=4, layers=4):
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Parameter(torch.randn(context, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers)
        self.out = nn.Linear(width, characters)
        self.register_buffer("mask", torch.triu(torch.full((context, context), float("-inf")), diagonal=1))

    def forward(self, tokens):
        """Logits as cross_entropy wants them: batch, character, place."""
        return self.out(self.layers(self.characters(tokens) + self.places, mask=self.mask)).transpose(1, 2)


def _images(name, magic_bytes):
    path = os.path.join(FASHION, name)
    try:
        with gzip.open(path) as file:
            return numpy.frombuffer(file.read(), dtype=numpy.uint8, offset=magic_bytes)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}: apt-get install dataset-fashion-mnist") from error


class Fashion:
    """Fashion-MNIST; a batch is drawn by seed, step and rank alone."""

    metric = "accuracy"

    def __init__(self, seed, batch):
        self.seed, self.batch = seed, batch
        self.train = [torch.from_numpy(_images("train-images-idx3-ubyte.gz", 16).copy()).reshape(-1, 1, 28, 28),
                      torch.from_numpy(_images("train-labels-idx1-ubyte.gz", 8).astype(numpy.int64))]
        images = _images("t10k-images-idx3-ubyte.gz", 16)[:2000 * 28 * 28].copy()
        self.test = [self._normal(torch.from_numpy(images).reshape(-1, 1, 28, 28)),
                     torch.from_numpy(_images("t10k-labels-idx1-ubyte.gz", 8).astype(numpy.int64))[:2000]]
        self.name = "Fashion-MNIST"

    @staticmethod
    def _normal(pixels):
        return (pixels.float() / 255 - 0.2860) / 0.3530  # the training set's mean and deviation

    def model(self):
        return cnn()

    def draw(self, step, rank, ranks):
        chosen = _chosen(self.seed, step, rank, ranks, self.batch, len(self.train[1]))
        return self._normal(self.train[0][chosen]), self.train[1][chosen]

    def evaluate(self, model):
        """The share of 2,000 test images that are recognised."""
        with torch.no_grad():
            return (model(self.test[0]).argmax(1) == self.test[1]).float().mean().item()


class Text:
    """The licences that every Debian system has, by character; the last twentieth is for tests."""

    metric = "test loss"
    context = 64

    def __init__(self, seed, batch):
        self.seed, self.batch = seed, batch
        text = b""
        for name in ("Apache-2.0", "GFDL-1.3", "GPL-2", "GPL-3", "LGPL-2.1", "MPL-1.1", "MPL-2.0", "Artistic"):
            path = os.path.join(LICENSES, name)
            if os.path.exists(path):
                with open(path, "rb") as file:
                    text += file.read()
        if len(text) < 50000:
            raise DataError(f"{LICENSES}: no text to learn from: apt-get install base-files")
        known = sorted(set(text))
        code = numpy.zeros(256, dtype=numpy.int64)
        code[known] = range(len(known))
        tokens = torch.from_numpy(code[numpy.frombuffer(text, dtype=numpy.uint8)])
        cut = len(tokens) * 19 // 20
        self.train, self.test, self.characters = tokens[:cut], tokens[cut:], len(known)
        self.name = "Debian's common licences"

    def model(self):
        return Transformer(self.characters, self.context)

    def _windows(self, tokens, starts):
        window = tokens[starts[:, None] + torch.arange(self.context + 1)]
        return window[:, :-1], window[:, 1:]

    def draw(self, step, rank, ranks):
        return self._windows(self.train, _chosen(self.seed, step, rank, ranks, self.batch,
                                                 len(self.train) - self.context))

    def evaluate(self, model):
        """The mean loss of 128 windows, in nats a character."""
        starts = torch.linspace(0, len(self.test) - self.context - 1, 128).long()
        inputs, targets = self._windows(self.test, starts)
        with torch.no_grad():
            return nn.functional.cross_entropy(model(inputs), targets).item()


def _chosen(seed, step, rank, ranks, batch, count):
    """The rank's part of the step's batch: no state, so that a restart needs none."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    return torch.randint(count, (ranks, batch), generator=generator)[rank]


TASKS = {"cnn": Fashion, "transformer": Text}
