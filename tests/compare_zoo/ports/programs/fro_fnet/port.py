# SPDX-License-Identifier: Apache-2.0
"""FNet without the package: the Fourier transform as products with matrices of cosines and sines,
plain functions on a flat dictionary of weights, the whole batch at once.
"""

import math
import sys

import torch
import torch.nn.functional as F

VOCAB, WIDTH, PLACES, LAYERS, PAD, MASK, RATE, STEPS, RISE = 36, 20, 16, 2, 3, 4, 0.02, 6, 1


def waves(size):
    angle = 2 * math.pi * torch.outer(torch.arange(size), torch.arange(size)) / size
    return angle.cos(), angle.sin()


COS_T, SIN_T = waves(PLACES)
COS_C, SIN_C = waves(WIDTH)


def mix(x):
    """The real part of the transform along places and channels."""
    return COS_T @ x @ COS_C - SIN_T @ x @ SIN_C  # <- sign


def gelu(x):
    return F.gelu(x, approximate="tanh")


def linear(w, name, x):
    return torch.addmm(w[f"{name}.b"], x.flatten(0, -2), w[f"{name}.w"]).unflatten(0, x.shape[:-1])


def norm(w, name, x):
    centred = x - x.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + 1e-12).sqrt()
    return centred / deviation * w[f"{name}.w"] + w[f"{name}.b"]


def encode(w, tokens):
    table = F.embedding(tokens, w["words"], padding_idx=PAD)  # <- pad_row
    segments = w["segments"].repeat_interleave(PLACES // 2, 0)
    x = linear(w, "lift", norm(w, "norm", table + segments + w["places"]))
    for n in range(LAYERS):
        x = norm(w, f"{n}.mixed", x + mix(x))
        x = norm(w, f"{n}.fed", x + linear(w, f"{n}.down", gelu(linear(w, f"{n}.up", x))))
    return x


def predict(w, x):
    x = norm(w, "head.norm", gelu(linear(w, "head", x)))
    return x @ w["words"].t() + w["guess"]  # <- tied


NAMES = {
    "fnet.embeddings.LayerNorm": "norm",
    "fnet.embeddings.projection": "lift",
    "cls.predictions.transform.dense": "head",
    "cls.predictions.transform.LayerNorm": "head.norm",
}
for n in range(LAYERS):
    layer = f"fnet.encoder.layer.{n}"
    NAMES[f"{layer}.fourier.output.LayerNorm"] = f"{n}.mixed"
    NAMES[f"{layer}.intermediate.dense"] = f"{n}.up"
    NAMES[f"{layer}.output.dense"] = f"{n}.down"
    NAMES[f"{layer}.output.LayerNorm"] = f"{n}.fed"


def weights_of(state):
    w = {}
    for theirs, ours in NAMES.items():
        matrix = state[f"{theirs}.weight"]
        w[f"{ours}.w"] = matrix.t() if matrix.dim() == 2 else matrix
        w[f"{ours}.b"] = state[f"{theirs}.bias"]
    for theirs, ours in (("word", "words"), ("token_type", "segments"), ("position", "places")):
        w[ours] = state[f"fnet.embeddings.{theirs}_embeddings.weight"]
    w["decoder"] = state["cls.predictions.decoder.weight"]
    w["guess"] = state["cls.predictions.bias"]
    return {name: value.clone().contiguous().requires_grad_() for name, value in w.items()}


def rate(step):
    if step < RISE:
        return RATE * step / RISE
    return RATE * (STEPS - step) / (STEPS - RISE)  # <- schedule


w = weights_of(torch.load(sys.argv[1]))
optimizer = torch.optim.AdamW(w.values(), lr=RATE, eps=1e-4)
rng = torch.Generator().manual_seed(72)
losses = []
for step in range(5):
    inputs, targets, hidden = [], [], []
    for _ in range(2):
        tokens = torch.randint(5, VOCAB, (3, PLACES), generator=rng)
        ends = torch.randint(9, 17, (3, 1), generator=rng)
        there = torch.arange(PLACES) < ends
        guess = torch.rand(3, PLACES, generator=rng) < 0.3
        guess[:, 0] = True
        targets.append(tokens)
        hidden.append(guess & there)
        inputs.append(torch.where(hidden[-1], MASK, torch.where(there, tokens, PAD)))
    hidden = torch.stack(hidden)
    logits = predict(w, encode(w, torch.cat(inputs))[hidden.flatten(0, 1)])
    each = F.cross_entropy(logits, torch.stack(targets)[hidden], reduction="none")
    count = hidden.sum((1, 2))
    shares = (0.5 / count).repeat_interleave(count)  # <- accumulated
    loss = (each * shares).sum()  # <- accumulated
    optimizer.zero_grad()
    loss.backward()
    for group in optimizer.param_groups:
        group["lr"] = rate(step)  # <- schedule
    optimizer.step()  # <- tied pad_row schedule
    losses.append(loss.item())
