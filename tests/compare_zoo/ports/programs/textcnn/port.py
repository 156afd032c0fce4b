# SPDX-License-Identifier: Apache-2.0
"""The same sentence classifier as one has it in TensorFlow 1: channels last, windows of words times
a matrix, variables in a dictionary, Adadelta with its two accumulators by hand.
"""

import sys

import numpy as np
import torch

SIZES, MAXIMUM = (3, 4, 5), 0.5


def conv1d(sentence, kernel, bias):
    """sentence: batch, time, dim, channels; kernel: width, dim, channels, filters."""
    width = kernel.shape[0]
    steps = sentence.shape[1] - width + 1  # <- windows
    out = bias
    for k in range(width):
        part = sentence[:, k : k + steps]  # <- windows
        out = out + torch.tensordot(part, kernel[k], dims=([2, 3], [0, 1]))  # <- windows
    return out


def text_cnn(variables, word_ids):
    frozen, trained = variables["lookup/static"], variables["lookup/tuned"]
    sentence = torch.stack((frozen[word_ids], trained[word_ids]), dim=-1)  # <- channels
    maxima = []
    for size in SIZES:
        name = f"conv-maxpool-{size}"
        h = conv1d(sentence, variables[f"{name}/W"], variables[f"{name}/b"])
        h = torch.clamp_min(h, 0.0)
        maxima.append(h.amax(1))  # <- pooling
    flat = torch.cat(maxima, dim=-1)  # <- widths
    return torch.addmm(variables["output/b"], flat, variables["output/W"])


def softmax_cross_entropy(logits, one_hot):
    shifted = logits - logits.max(-1, keepdim=True).values.detach()
    log_probabilities = shifted - shifted.exp().sum(-1, keepdim=True).log()
    return -(one_hot * log_probabilities).sum(-1)


def restore(checkpoint):
    variables = {
        "lookup/static": checkpoint["static.weight"],
        "lookup/tuned": checkpoint["tuned.weight"],
        "output/W": checkpoint["fc.weight"].t().contiguous(),
        "output/b": checkpoint["fc.bias"],
    }
    for i, size in enumerate(SIZES):
        kernel = checkpoint[f"convs.{i}.weight"]
        variables[f"conv-maxpool-{size}/W"] = kernel.permute(2, 3, 1, 0).contiguous()
        variables[f"conv-maxpool-{size}/b"] = checkpoint[f"convs.{i}.bias"]
    return variables


def adadelta(variable, gradient, slots, rho=0.95, epsilon=1e-6):
    accumulated, accumulated_update = slots
    accumulated.mul_(rho).addcmul_(gradient, gradient, value=1 - rho)  # <- rho
    root = torch.sqrt(accumulated + epsilon)  # <- epsilon rho
    update = torch.sqrt(accumulated_update + epsilon) / root * gradient  # <- epsilon
    accumulated_update.mul_(rho).addcmul_(update, update, value=1 - rho)  # <- rho deltas
    variable.sub_(update)


def constrained(kernel):
    norms = kernel.square().sum(dim=0, keepdim=True).sqrt()  # <- constraint
    return kernel * (norms.clamp(max=MAXIMUM) / (norms + 1e-7))  # <- constraint


def next_batch(rng, words=67, classes=4):
    word_ids = torch.tensor(rng.integers(0, words, (8, 16)))
    one_hot = torch.eye(classes)[torch.tensor(rng.integers(0, classes, 8))]
    return word_ids, one_hot


rng = np.random.default_rng(22)
rng.uniform(-0.5, 0.5, (67, 14))  # the vectors, which the checkpoint holds
variables = restore(torch.load(sys.argv[1]))
trainable = [name for name in variables if name != "lookup/static"]
slots = {n: (torch.zeros_like(variables[n]), torch.zeros_like(variables[n])) for n in trainable}
losses = []
for _ in range(3):
    word_ids, one_hot = next_batch(rng)
    for name in trainable:
        variables[name].requires_grad_()
    loss = softmax_cross_entropy(text_cnn(variables, word_ids), one_hot).mean()
    gradients = torch.autograd.grad(loss, [variables[name] for name in trainable])
    with torch.no_grad():
        for name, gradient in zip(trainable, gradients):
            adadelta(variables[name], gradient, slots[name])
        variables["output/W"] = constrained(variables["output/W"])
    losses.append(loss.item())
