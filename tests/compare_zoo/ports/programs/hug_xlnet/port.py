# SPDX-License-Identifier: Apache-2.0
"""The permutation learner without the package: a bag of tensors, the second stream holds only the
places asked for, offsets are looked up instead of shifted, masks are boolean.
"""

import sys

import torch
import torch.nn.functional as F

VOCAB, DIM, HEADS, LAYERS, LENGTH, BATCH, TARGETS = 40, 24, 3, 2, 9, 3, 3
E = DIM // HEADS


def read(path):
    theirs = torch.load(path)
    bag = {
        "words": theirs["transformer.word_embedding.weight"],
        "blank": theirs["transformer.mask_emb"].flatten(),
        "bias": theirs["lm_loss.bias"],
    }
    for n in range(LAYERS):
        rel, ff = f"transformer.layer.{n}.rel_attn", f"transformer.layer.{n}.ff"
        for letter in "qkvr":
            bag[f"{n}.{letter}"] = theirs[f"{rel}.{letter}"].flatten(1)
        bag[f"{n}.o"] = theirs[f"{rel}.o"].flatten(1).t()
        bag[f"{n}.about_words"] = theirs[f"{rel}.r_w_bias"]  # <- biases
        bag[f"{n}.about_places"] = theirs[f"{rel}.r_r_bias"]  # <- biases
        bag[f"{n}.about_sides"] = theirs[f"{rel}.r_s_bias"]
        bag[f"{n}.sides"] = theirs[f"{rel}.seg_embed"]
        for kind in ("weight", "bias"):
            bag[f"{n}.norm1.{kind}"] = theirs[f"{rel}.layer_norm.{kind}"]
            bag[f"{n}.norm2.{kind}"] = theirs[f"{ff}.layer_norm.{kind}"]
            bag[f"{n}.wide.{kind}"] = theirs[f"{ff}.layer_1.{kind}"]
            bag[f"{n}.narrow.{kind}"] = theirs[f"{ff}.layer_2.{kind}"]
    bag = {name: t.clone().contiguous().requires_grad_() for name, t in bag.items()}
    bag["out"] = bag["words"]  # <- tied
    return bag


def waves():
    """sin and cos of all offsets, from -(LENGTH - 1) on."""
    offsets = torch.arange(-LENGTH + 1, LENGTH)[:, None]
    angles = offsets / 10000 ** (torch.arange(0, DIM, 2) / DIM)
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def norm(bag, name, x):
    return F.layer_norm(x, (DIM,), bag[f"{name}.weight"], bag[f"{name}.bias"], 1e-12)


def heads(x, matrix):
    return (x @ matrix).unflatten(-1, (HEADS, E))


def step(bag, n, x, context, relations):
    """What the rows of x take from the context; away and other say how they stand to it."""
    away, other, hidden = relations
    q = heads(x, bag[f"{n}.q"])
    k, v = (heads(context, bag[f"{n}.{letter}"]) for letter in "kv")
    far = heads(waves(), bag[f"{n}.r"])[away]  # <- offset
    scores = torch.einsum("bihe,bjhe->bhij", q + bag[f"{n}.about_words"], k)  # <- biases
    places = torch.einsum("bihe,bijhe->bhij", q + bag[f"{n}.about_places"], far)  # <- offset biases
    sides = torch.einsum("bihe,she->bhis", q + bag[f"{n}.about_sides"], bag[f"{n}.sides"])
    sides = torch.where(other[:, None], sides[..., 1:], sides[..., :1])  # <- segments
    scores = (scores + places + sides) * E**-0.5
    weights = scores.masked_fill(hidden[:, None], -torch.inf).softmax(-1)  # <- itself
    told = torch.einsum("bhij,bjhe->bihe", weights, v).flatten(2) @ bag[f"{n}.o"]
    x = norm(bag, f"{n}.norm1", x + told)
    wide = F.gelu(F.linear(x, bag[f"{n}.wide.weight"], bag[f"{n}.wide.bias"]))
    narrow = F.linear(wide, bag[f"{n}.narrow.weight"], bag[f"{n}.narrow.bias"])
    return norm(bag, f"{n}.norm2", x + narrow)


def logits_of(bag, words, side, asked, turn):
    place = torch.arange(LENGTH)
    away = (place[:, None] - place[None, :] + LENGTH - 1).expand(BATCH, -1, -1)  # <- offset
    other = side[:, :, None] != side[:, None, :]  # <- segments
    hidden = (turn[:, :, None] <= turn[:, None, :]) & (turn >= 0)[:, None]
    row = torch.arange(BATCH)[:, None]
    known = bag["words"][words]
    guess = bag["blank"].expand(BATCH, TARGETS, DIM)
    veiled = hidden & ~torch.eye(LENGTH, dtype=torch.bool)  # <- itself
    for n in range(LAYERS):
        relations = (away[row, asked], other[row, asked], hidden[row, asked])
        guess = step(bag, n, guess, known, relations)
        known = step(bag, n, known, known, (away, other, veiled))  # <- itself
    return guess @ bag["out"].t() + bag["bias"]  # <- tied


bag = read(sys.argv[1])
unique = list({id(t): t for t in bag.values()}.values())
optimizer = torch.optim.SGD(unique, lr=0.1, momentum=0.9)  # <- tied
rng = torch.Generator().manual_seed(401)
losses = []
for _ in range(4):
    words = torch.randint(VOCAB, (BATCH, LENGTH), generator=rng)
    second = torch.randint(3, 7, (BATCH, 1), generator=rng)
    asked = torch.rand(BATCH, LENGTH, generator=rng).argsort(dim=1)[:, :TARGETS]
    turn = torch.full((BATCH, LENGTH), -1)
    turn[torch.arange(BATCH)[:, None], asked] = torch.arange(TARGETS)
    logits = logits_of(bag, words, torch.arange(LENGTH) >= second, asked, turn)
    loss = F.cross_entropy(logits.transpose(1, 2), words.gather(1, asked))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- tied
    losses.append(loss.item())
