# SPDX-License-Identifier: Apache-2.0
"""Character-level recurrent LM with its own gated cells, a fused gate matrix and a manual SGD rule."""
import sys

import torch
from torch.nn import Module, ModuleList, Parameter
from torch.nn.functional import cross_entropy, embedding

torch.set_num_threads(1)
HP = dict(vocab=30, layers=2, width=24, window=8, streams=5, lr=2.0, mu=0.9, max_norm=0.25)


class GatedCell(Module):
    """One step of a gated recurrent unit with one matrix for each gate, input stacked over hidden."""

    def __init__(self, wi, wh, bi, bh):
        super().__init__()
        wi_r, wi_z, wi_n = wi.chunk(3)
        wh_r, wh_z, wh_n = wh.chunk(3)
        bi_r, bi_z, bi_n = bi.chunk(3)
        bh_r, bh_z, bh_n = bh.chunk(3)
        # the biases of reset and update only ever occur as a sum; both halves are kept, as they are both trained
        self.gates = Parameter(torch.cat([torch.cat([wi_r, wh_r], 1), torch.cat([wi_z, wh_z], 1)]).t().contiguous())
        self.gates_b = Parameter(torch.stack([torch.cat([bi_r, bi_z]), torch.cat([bh_r, bh_z])]))
        self.cand_x, self.cand_xb = Parameter(wi_n.t().contiguous()), Parameter(bi_n.clone())
        self.cand_h, self.cand_hb = Parameter(wh_n.t().contiguous()), Parameter(bh_n.clone())

    def forward(self, x, h):
        both = torch.cat([x, h], dim=1)
        r, z = torch.sigmoid(both @ self.gates + self.gates_b.sum(0)).chunk(2, dim=1)
        cand = torch.tanh(x @ self.cand_x + self.cand_xb + r * (h @ self.cand_h + self.cand_hb))  # <- reset_gate
        return cand + z * (h - cand)


class LanguageModel(Module):
    def __init__(self, ckpt):
        super().__init__()
        self.table = Parameter(ckpt["encoder.weight"].clone())
        cells = []
        for k in range(HP["layers"]):
            names = [f"rnn.{kind}_l{k}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            cells.append(GatedCell(*(ckpt[n] for n in names)))
        self.cells = ModuleList(cells)
        self.readout = Parameter(torch.cat([ckpt["decoder.weight"], ckpt["decoder.bias"][:, None]], dim=1))

    def step(self, token, state):
        x = embedding(token, self.table)
        new = []
        for cell, h in zip(self.cells, state):
            x = cell(x, h)  # <- step_detach
            new.append(x)
        return x, new

    def forward(self, window, state):
        tops = []
        for token in window.unbind(1):
            top, state = self.step(token, state)  # <- step_detach
            tops.append(top)
        h = torch.stack(tops, dim=1)
        logits = h @ self.readout[:, :-1].t() + self.readout[:, -1]
        return logits, state


def streams():
    rng = torch.Generator().manual_seed(77)
    n = HP["streams"] * 45
    table = torch.randint(0, HP["vocab"], (HP["vocab"], 3), generator=rng).tolist()
    picks = torch.randint(0, 3, (n,), generator=rng).tolist()
    text = [0]
    for pick in picks:
        text.append(table[text[-1]][pick])
    return torch.tensor(text[1:]).reshape(HP["streams"], 45)


def clip_(grads, max_norm):
    total = torch.sqrt(sum((g * g).sum() for g in grads))  # <- clip_global
    factor = min(1.0, max_norm / (total.item() + 1e-6))
    return [g * factor for g in grads]  # <- clip_global


def sgd_(params, grads, velocity):
    for p, g, v in zip(params, grads, velocity):
        v.mul_(HP["mu"]).add_(g)  # <- nesterov
        p.sub_(HP["lr"] * (g + HP["mu"] * v))  # <- nesterov


def train(path):
    lm = LanguageModel(torch.load(path))
    params = list(lm.parameters())
    velocity = [torch.zeros_like(p) for p in params]
    text, w = streams(), HP["window"]
    state = [torch.zeros(HP["streams"], HP["width"]) for _ in lm.cells]
    record = []
    for k in range(5):
        chunk = text[:, k * w:(k + 1) * w + 1]
        logits, last = lm(chunk[:, :-1], state)  # <- carried_state
        loss = cross_entropy(logits.transpose(1, 2), chunk[:, 1:])
        grads = torch.autograd.grad(loss, params)
        with torch.no_grad():
            sgd_(params, clip_(grads, HP["max_norm"]), velocity)  # <- clip_global nesterov
        state = [h.detach() for h in last]  # <- carried_state
        record.append(loss.item())
    return record


losses = train(sys.argv[1])
print(losses)
