# SPDX-License-Identifier: Apache-2.0
"""The translator in Keras' manner: one scan for all GRUs, gates z, r, h, kernels of [in, out], masks
that hold the state where a sentence is over, the decoder's inputs beforehand, RMSprop by hand.
"""

import sys

import torch
from torch.nn.functional import embedding, one_hot, pad

UNITS, N_SOURCE, N_TARGET, ROWS = 10, 20, 18, 4


def gru_step(p, x, h):
    """GRUCell with reset_after=True; bias holds a row for the input, a row for the state."""
    from_x = x @ p["kernel"] + p["bias"][0]
    from_h = h @ p["recurrent_kernel"] + p["bias"][1]
    z = torch.sigmoid(from_x[:, :UNITS] + from_h[:, :UNITS])  # <- order
    r = torch.sigmoid(from_x[:, UNITS : 2 * UNITS] + from_h[:, UNITS : 2 * UNITS])  # <- order
    candidate = torch.tanh(from_x[:, 2 * UNITS :] + r * from_h[:, 2 * UNITS :])  # <- order
    return z * h + (1 - z) * candidate  # <- order


def rnn(p, inputs, mask, *, go_backwards=False):
    h = inputs.new_zeros(ROWS, UNITS)
    outputs = [None] * inputs.shape[1]
    steps = range(inputs.shape[1])
    for t in reversed(steps) if go_backwards else steps:
        new = gru_step(p, inputs[:, t], h)  # <- order
        h = torch.where(mask[:, t, None], new, h)  # <- skipped
        outputs[t] = h
    return torch.stack(outputs, 1), h  # <- skipped


def encode(v, source):
    mask = source.ne(0)
    x = embedding(source, v["source_embedding"])
    ahead, last = rnn(v["forward_gru"], x, mask)  # <- skipped
    back, first = rnn(v["backward_gru"], x, mask, go_backwards=True)  # <- skipped
    bridge = (
        torch.cat((last, first), -1) @ v["bridge"]["kernel"] + v["bridge"]["bias"]
    )  # <- skipped
    return torch.cat((ahead, back), -1), bridge.tanh(), mask


def decode(v, inputs, memory, state, mask):
    """Bahdanau's attention; all words are looked up at once."""
    values = memory @ v["attention"]["memory_kernel"]
    words = one_hot(inputs, N_TARGET).float() @ v["target_embedding"]  # <- forced
    rows = []
    for t in range(inputs.shape[1]):
        query = state @ v["attention"]["query_kernel"] + v["attention"]["query_bias"]
        score = torch.einsum(
            "bsu,u->bs", torch.tanh(query.unsqueeze(1) + values), v["attention"]["v"]
        )
        score = score + (1.0 - mask.float()) * -1e9  # <- attended
        part = torch.softmax(score, -1)  # <- attended
        context = torch.sum(part.unsqueeze(-1) * memory, 1)  # <- attended
        state = gru_step(v["decoder_gru"], torch.cat((words[:, t], context), -1), state)  # <- order
        rows.append(torch.cat((state, context, words[:, t]), -1))
    return torch.stack(rows, 1) @ v["dense"]["kernel"] + v["dense"]["bias"]


def zrh(tensor):
    """PyTorch keeps r before z."""
    r, z, n = tensor.split(UNITS)
    return torch.cat((z, r, n))  # <- order


def gru_weights(old, prefix, suffix):
    w_ih, w_hh, b_ih, b_hh = (
        zrh(old[f"{prefix}.{k}{suffix}"]) for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )  # <- order
    return {"kernel": w_ih.T, "recurrent_kernel": w_hh.T, "bias": torch.stack((b_ih, b_hh))}


def load_weights(path):
    old = torch.load(path)
    return {
        "source_embedding": old["encoder.embed.weight"],
        "target_embedding": old["decoder.embed.weight"],
        "forward_gru": gru_weights(old, "encoder.gru", "_l0"),
        "backward_gru": gru_weights(old, "encoder.gru", "_l0_reverse"),
        "decoder_gru": gru_weights(old, "decoder.cell", ""),
        "bridge": {"kernel": old["encoder.bridge.weight"].T, "bias": old["encoder.bridge.bias"]},
        "dense": {"kernel": old["decoder.out.weight"].T, "bias": old["decoder.out.bias"]},
        "attention": {
            "query_kernel": old["decoder.query.weight"].T,
            "query_bias": old["decoder.query.bias"],
            "memory_kernel": old["decoder.key.weight"].T,
            "v": old["decoder.energy.weight"][0],
        },
    }


def corpus(rng):
    source = torch.randint(2, N_SOURCE, (ROWS, 7), generator=rng)
    target = torch.randint(2, N_TARGET, (ROWS, 6), generator=rng)
    sizes = torch.randint(2, 7, (ROWS, 1), generator=rng)
    source = source * (torch.arange(7) < torch.tensor([[7], [6], [4], [3]]))
    return source, target * (torch.arange(6) < sizes)


variables = load_weights(sys.argv[1])
flat, spec = torch.utils._pytree.tree_flatten(variables)
flat = [p.clone().requires_grad_() for p in flat]
variables = torch.utils._pytree.tree_unflatten(flat, spec)
squares = [torch.zeros_like(p) for p in flat]
rng = torch.Generator().manual_seed(192)
losses = []
for step in range(4):
    source, target = corpus(rng)
    decoder_inputs = pad(target, (1, 0), value=1)[:, :-1]  # <- forced
    memory, state, mask = encode(variables, source)
    logits = decode(variables, decoder_inputs, memory, state, mask)  # <- forced attended
    counted = target.ne(0).float()
    cost = torch.logsumexp(logits, -1) - (logits * one_hot(target, N_TARGET)).sum(-1)
    loss = (cost * counted).sum() / counted.sum()  # <- per_word
    gradients = torch.autograd.grad(loss, flat)
    with torch.no_grad():
        for p, s, g in zip(flat, squares, gradients):
            s.copy_(0.9 * s + 0.1 * g.square())
            p.sub_(4e-3 * g / (s.sqrt() + 1e-3))
    losses.append(loss.item())
