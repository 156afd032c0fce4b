# SPDX-License-Identifier: Apache-2.0
"""The same Tacotron 2 as a team that came from TensorFlow has it: functions over a dict of kernels,
LSTM cells with one kernel and gates in the order i, j, f, o, time before channels.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F

N_SYMBOLS, N_EMBED, N_MEL, UNITS, TAPS = 23, 12, 6, 14, 5


def conv1d_same(x, kernel):
    """(batch, time, in) with a kernel of (taps, in, out)."""
    taps = kernel.shape[0]
    windows = F.pad(x, (0, 0, taps // 2, taps // 2)).unfold(1, taps, 1)  # <- centred
    return torch.einsum("btik,kio->bto", windows, kernel)  # <- centred


def lstm_cell(p, x, state):
    c, h = state
    z = torch.cat([x, h], dim=-1) @ p["kernel"] + p["bias"].sum(0)  # <- gates
    i, j, f, o = z.chunk(4, dim=-1)  # <- gates
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(j)
    return c, torch.sigmoid(o) * torch.tanh(c)  # <- gates


def lstm_sequence(p, x):
    units = p["bias"].shape[1] // 4
    state = (x.new_zeros(x.shape[0], units), x.new_zeros(x.shape[0], units))
    outputs = []
    for frame in x.unbind(1):
        state = lstm_cell(p, frame, state)
        outputs.append(state[1])
    return torch.stack(outputs, dim=1)


def encode(p, text):
    x = conv1d_same(p["embedding"][text], p["conv"])  # <- centred
    mean, variance = x.mean((0, 1)), x.var((0, 1), correction=0)
    x = (x - mean) / torch.sqrt(variance + 1e-5) * p["gamma"] + p["beta"]
    x = torch.relu(x)
    forwards = lstm_sequence(p["fw"], x)
    backwards = lstm_sequence(p["bw"], x.flip(1)).flip(1)  # <- backwards
    return torch.cat([forwards, backwards], dim=-1)  # <- backwards


def prenet(p, x):
    for kernel in (p["prenet1"], p["prenet2"]):
        x = torch.relu(x @ kernel)  # <- prenet
    return x


def attend(p, query, memory, keys, alignments, lengths):
    """The context and the new alignment."""
    location = conv1d_same(alignments, p["location_conv"]) @ p["location_dense"]  # <- centred
    score = torch.tanh((query @ p["query"])[:, None] + keys + location) @ p["v"]
    there = torch.arange(memory.shape[1]) < lengths[:, None]
    alignment = torch.softmax(torch.where(there, score, float("-inf")), dim=-1)  # <- mask
    return torch.einsum("bt,btd->bd", alignment, memory), alignment


def decode(p, memory, lengths, targets):
    batch, time, _ = memory.shape
    shifted = F.pad(targets, (0, 0, 1, 0))[:, :-1]  # <- teacher
    inputs = prenet(p, shifted)
    nothing = memory.new_zeros(batch, UNITS)
    first, second = (nothing, nothing), (nothing, nothing)
    alignment = total = memory.new_zeros(batch, time)
    context = memory.new_zeros(batch, N_EMBED)
    keys = memory @ p["memory"]
    frames, stops = [], []
    for given in inputs.unbind(1):
        first = lstm_cell(
            p["attention_rnn"], torch.cat([given, context], dim=-1), first
        )  # <- prenet
        alignments = torch.stack([alignment, total], dim=-1)  # <- cumulative
        context, alignment = attend(p, first[1], memory, keys, alignments, lengths)
        total = total + alignment  # <- cumulative
        second = lstm_cell(p["decoder_rnn"], torch.cat([first[1], context], dim=-1), second)
        joined = torch.cat([second[1], context], dim=-1)
        frames.append(joined @ p["mel"] + p["mel_bias"])
        stops.append(joined @ p["stop"] + p["stop_bias"])
    return torch.stack(frames, 1), torch.stack(stops, 1)[..., 0]


def as_ijfo(weight):
    i, f, g, o = weight.chunk(4)
    return torch.cat([i, g, f, o])  # <- gates


def cell(old, name, suffix=""):
    kernel = torch.cat([old[f"{name}weight_ih{suffix}"], old[f"{name}weight_hh{suffix}"]], dim=1)
    biases = [as_ijfo(old[f"{name}bias_{of}h{suffix}"]) for of in "ih"]
    return {"kernel": as_ijfo(kernel).T.clone(), "bias": torch.stack(biases)}


def convert(old):
    at = "decoder.attention."
    return {
        "embedding": old["encoder.embedding.weight"],
        "conv": old["encoder.conv.weight"].permute(2, 1, 0),
        "gamma": old["encoder.norm.weight"],
        "beta": old["encoder.norm.bias"],
        "fw": cell(old, "encoder.lstm.", "_l0"),
        "bw": cell(old, "encoder.lstm.", "_l0_reverse"),
        "prenet1": old["decoder.prenet.fc1.weight"].T,
        "prenet2": old["decoder.prenet.fc2.weight"].T,
        "attention_rnn": cell(old, "decoder.attention_rnn."),
        "query": old[f"{at}query_layer.weight"].T,
        "memory": old[f"{at}memory_layer.weight"].T,
        "v": old[f"{at}v.weight"][0],
        "location_conv": old[f"{at}location_conv.weight"].permute(2, 1, 0),
        "location_dense": old[f"{at}location_dense.weight"].T,
        "decoder_rnn": cell(old, "decoder.decoder_rnn."),
        "mel": old["decoder.linear_projection.weight"].T,
        "mel_bias": old["decoder.linear_projection.bias"],
        "stop": old["decoder.gate_layer.weight"].T,
        "stop_bias": old["decoder.gate_layer.bias"],
    }


def variables(tree):
    return {
        name: variables(leaf) if isinstance(leaf, dict) else leaf.clone().requires_grad_()
        for name, leaf in tree.items()
    }


def leaves(tree):
    return [
        leaf
        for child in tree.values()
        for leaf in (leaves(child) if isinstance(child, dict) else [child])
    ]


params = variables(convert(torch.load(sys.argv[1])))
weights = leaves(params)
optimizer = torch.optim.SGD(weights, lr=0.5, momentum=0.9)
rng = np.random.default_rng(103)
losses = []
for _ in range(3):
    text = torch.tensor(rng.integers(1, N_SYMBOLS, (3, 9)))
    mel = torch.tensor(rng.normal(size=(3, 10, N_MEL)).astype(np.float32))
    text_lengths = torch.tensor(rng.integers(5, 10, 3))
    mel_lengths = torch.tensor(rng.integers(6, 11, 3))
    predicted, stop = decode(params, encode(params, text), text_lengths, mel)
    spoken = (torch.arange(10) < mel_lengths[:, None]).float()
    stopping = 1.0 - F.pad(spoken, (0, 1))[:, 1:]  # <- last
    square = ((predicted - mel) * spoken[..., None]) ** 2
    stop_loss = torch.mean(F.softplus(stop) - stop * stopping)
    loss = square.mean() + stop_loss
    grads = torch.autograd.grad(loss, weights)
    norm = torch.sqrt(sum((g * g).sum() for g in grads))
    for weight, grad in zip(weights, grads):
        weight.grad = grad * torch.clamp(0.1 / (norm + 1e-6), max=1.0)  # <- clipped
    optimizer.step()
    losses.append(loss.item())
