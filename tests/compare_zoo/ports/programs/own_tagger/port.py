# SPDX-License-Identifier: Apache-2.0
"""The tagger in the manner of Keras: kernels of gates z, r and candidate, time first, a mask that
holds the state in the padding; losses by sample weights and RMSprop written out.
"""

import sys

import torch

U = 9
CLASS_WEIGHT = torch.tensor([0.5, 1.0, 2.0, 1.0, 3.0, 1.5])


def zrh(tensor):
    """From torch's order of gates to that of Keras."""
    r, z, n = tensor.split(U)  # <- gates
    return torch.cat((z, r, n))  # <- gates


class GRULayer:
    def __init__(self, theirs, suffix):
        self.kernel = zrh(theirs[f"rnn.weight_ih_{suffix}"]).t().contiguous()
        self.recurrent = zrh(theirs[f"rnn.weight_hh_{suffix}"]).t().contiguous()
        self.bias = torch.stack([zrh(theirs[f"rnn.bias_{k}_{suffix}"]) for k in ("ih", "hh")])

    def variables(self):
        return [self.kernel, self.recurrent, self.bias]

    def step(self, from_x, h):
        xz, xr, xh = from_x.split(U, 1)
        hz, hr, hh = torch.addmm(self.bias[1], h, self.recurrent).split(U, 1)
        z = torch.sigmoid(xz + hz)  # <- gates
        r = torch.sigmoid(xr + hr)  # <- gates
        proposed = r * hh  # <- reset
        return z * h + (1 - z) * torch.tanh(xh + proposed)  # <- gates reset

    def __call__(self, xs, mask, go_backwards=False):
        h, outs = torch.zeros(xs.shape[1], U), [None] * len(xs)
        from_xs = xs @ self.kernel + self.bias[0]
        for t in reversed(range(len(xs))) if go_backwards else range(len(xs)):
            new = self.step(from_xs[t], h)
            h = torch.where(mask[t][:, None], new, h)  # <- held
            outs[t] = h
        return torch.stack(outs)


class KerasTagger:
    def __init__(self, theirs):
        self.table = theirs["embed.weight"].clone()
        self.layers = [
            tuple(GRULayer(theirs, f"l{n}{way}") for way in ("", "_reverse")) for n in (0, 1)
        ]
        self.score, self.score_bias = theirs["attend.weight"][0].clone(), theirs["attend.bias"]
        self.local, self.whole = (w.t().contiguous() for w in theirs["out.weight"].split(2 * U, 1))
        self.out_bias = theirs["out.bias"].clone()
        self.trainable = [self.table, self.score, self.score_bias, self.local, self.whole]
        self.trainable += [self.out_bias]
        self.trainable += [v for pair in self.layers for layer in pair for v in layer.variables()]
        for variable in self.trainable:
            variable.requires_grad_()

    def __call__(self, ids):
        mask = ids != 0
        x = self.table[ids]
        for ahead, behind in self.layers:
            x = torch.cat((ahead(x, mask), behind(x, mask, go_backwards=True)), 2)  # <- held
        e = torch.exp(x @ self.score + self.score_bias) * mask
        summary = torch.einsum("tb,tbd->bd", e / e.sum(0), x)
        return x @ self.local + summary @ self.whole + self.out_bias


def sequence(rng):
    sizes = torch.randint(2, 7, (5,), generator=rng).tolist()
    ids = torch.zeros(max(sizes), 5, dtype=torch.long)
    labels = torch.zeros_like(ids)
    for b, n in enumerate(sizes):
        w = torch.randint(1, 40, (n,), generator=rng)
        ids[:n, b] = w
        labels[:n, b] = (w * 7 + torch.cat((w[-1:], w[:-1]))) % 6
    return ids, labels


tagger = KerasTagger(torch.load(sys.argv[1]))
slots = [(torch.zeros_like(v), torch.zeros_like(v)) for v in tagger.trainable]
rng = torch.Generator().manual_seed(72)
losses = []
for _ in range(4):
    ids, labels = sequence(rng)
    sample_weight = CLASS_WEIGHT[labels] * (ids != 0)  # <- weighted
    log_p = torch.log_softmax(tagger(ids), 2)
    nll = -torch.gather(log_p, 2, labels[..., None])[..., 0]
    loss = (nll * sample_weight).sum() / sample_weight.sum()  # <- weighted
    grads = torch.autograd.grad(loss, tagger.trainable)
    with torch.no_grad():
        for v, g, (mean_square, moment) in zip(tagger.trainable, grads, slots, strict=True):
            mean_square.mul_(0.9).add_(0.1 * g * g)
            scaled = g / (mean_square.sqrt() + 1e-3)  # <- rooted
            moment.mul_(0.5).add_(scaled)  # <- rooted
            v.sub_(0.01 * moment)  # <- rooted
    losses.append(loss.item())
