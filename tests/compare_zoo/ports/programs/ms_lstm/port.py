# SPDX-License-Identifier: Apache-2.0
"""The tagger on MindSpore in graph mode, cells written out; value_and_grad under ms.jit."""

import sys

import mindspore as ms
import numpy as np
from mindspore import nn, ops

ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
VOCAB, EMBED, HIDDEN, TAGS, LENGTH = 45, 12, 10, 6, 8


class LSTMLayer(nn.Cell):
    """One direction of an LSTM; the gates stand in the order i, f, g, o as in PyTorch."""

    def __init__(self, reverse):
        super().__init__()
        self.input = nn.Dense(EMBED, 4 * HIDDEN)
        self.hidden = nn.Dense(HIDDEN, 4 * HIDDEN)  # <- bias_hh
        self.steps = tuple(reversed(range(LENGTH))) if reverse else tuple(range(LENGTH))

    def construct(self, x):
        h = ops.zeros((x.shape[0], HIDDEN), ms.float32)
        c = ops.zeros((x.shape[0], HIDDEN), ms.float32)
        out = []
        for t in self.steps:
            gates = self.input(x[:, t]) + self.hidden(h)  # <- bias_hh reverse
            i, f, g, o = ops.split(gates, HIDDEN, axis=-1)
            c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
            h = ops.sigmoid(o) * ops.tanh(c)
            out.append(h)
        return ops.stack(out, axis=1), h  # <- reverse


class GRUCell(nn.Cell):
    def __init__(self):
        super().__init__()
        self.input = nn.Dense(2 * HIDDEN, 3 * HIDDEN)
        self.hidden = nn.Dense(HIDDEN, 3 * HIDDEN)

    def construct(self, x, h):
        xr, xz, xn = ops.split(self.input(x), HIDDEN, axis=-1)
        hr, hz, hn = ops.split(self.hidden(h), HIDDEN, axis=-1)
        r, z = ops.sigmoid(xr + hr), ops.sigmoid(xz + hz)  # <- gates
        n = ops.tanh(xn + r * hn)  # <- gates
        return (1 - z) * n + z * h  # <- gates


class Tagger(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, EMBED, padding_idx=0)
        self.forward_lstm = LSTMLayer(reverse=False)
        self.backward_lstm = LSTMLayer(reverse=True)
        self.bridge = nn.Dense(2 * HIDDEN, HIDDEN)
        self.cell = GRUCell()
        self.tag = nn.Dense(HIDDEN, TAGS)

    def construct(self, tokens):
        real = (tokens != 0).astype(ms.float32).expand_dims(-1)
        x = self.embed(tokens) * real
        ahead, last_ahead = self.forward_lstm(x)
        back, last_back = self.backward_lstm(x)  # <- reverse
        back = ops.flip(back, (1,))  # <- reverse
        states = ops.cat((ahead, back), axis=-1)  # <- reverse
        h = ops.tanh(self.bridge(ops.cat((last_ahead, last_back), axis=-1)))
        out = []
        for t in range(LENGTH):
            h = self.cell(states[:, t], h)  # <- gates reverse
            out.append(self.tag(h))
        return ops.stack(out, axis=1)


def convert(w):
    new = {"embed.embedding_table": w["embed.weight"]}
    for kind in ("weight", "bias"):
        new[f"bridge.{kind}"], new[f"tag.{kind}"] = w[f"bridge.{kind}"], w[f"tag.{kind}"]
        new[f"cell.input.{kind}"] = w[f"cell.{kind}_ih"]
        new[f"cell.hidden.{kind}"] = w[f"cell.{kind}_hh"]
    for layer, end in (("forward_lstm", ""), ("backward_lstm", "_reverse")):
        for part, cell in (("ih", "input"), ("hh", "hidden")):
            new[f"{layer}.{cell}.weight"] = w[f"lstm.weight_{part}_l0{end}"]
        new[f"{layer}.input.bias"] = w[f"lstm.bias_ih_l0{end}"]  # <- bias_hh
        new[f"{layer}.hidden.bias"] = w[f"lstm.bias_hh_l0{end}"]  # <- bias_hh
    return {name: ms.Parameter(ms.Tensor(value), name=name) for name, value in new.items()}


net = Tagger()
ms.load_param_into_net(net, convert(np.load(sys.argv[1])))  # <- bias_hh
net.set_train()
optimizer = nn.Momentum(net.trainable_params(), 2.0, 0.9)


def forward_fn(tokens, tags, mask):
    logits = net(tokens)
    each = ops.cross_entropy(logits.transpose(0, 2, 1), tags, reduction="none")
    return (each * mask).sum() / mask.sum()  # <- loss_mean


grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters)


@ms.jit
def train_step(tokens, tags, mask):
    loss, grads = grad_fn(tokens, tags, mask)
    grads = ops.clip_by_global_norm(grads, 0.5)  # <- clip
    optimizer(grads)
    return loss


random = np.random.RandomState(10)
losses = []
for _ in range(4):
    tokens = random.randint(1, VOCAB, (5, LENGTH))
    length = random.randint(3, LENGTH + 1, (5, 1))
    mask = ms.Tensor((np.arange(LENGTH) < length).astype(np.float32))
    tokens = ms.Tensor(np.where(np.arange(LENGTH) < length, tokens, 0), ms.int32)
    tags = ms.Tensor(random.randint(0, TAGS, (5, LENGTH)), ms.int32)
    losses.append(float(train_step(tokens, tags, mask).asnumpy()))
print(losses)
