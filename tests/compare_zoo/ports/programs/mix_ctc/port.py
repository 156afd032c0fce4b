# SPDX-License-Identifier: Apache-2.0
"""Utterance-at-a-time CTC trainer with its own recurrences and the forward algorithm in logs."""

import sys

import torch

MELS, HID, BLANK = 8, 10, 0
MINUS = torch.tensor([-1e30])


class Recurrence:
    """One GRU direction; gates r, z, n stacked on the last axis."""

    def __init__(self, sd, suffix):
        self.u = sd["rnn.weight_ih_l0" + suffix].t().clone()
        self.v = sd["rnn.weight_hh_l0" + suffix].t().clone()
        self.bu = sd["rnn.bias_ih_l0" + suffix].clone()
        self.bv = sd["rnn.bias_hh_l0" + suffix].clone()

    def scan(self, frames):
        pre = frames @ self.u + self.bu
        h = frames.new_zeros(HID)
        seen = []
        for x in pre:
            y = h @ self.v + self.bv
            r, z = torch.sigmoid(x[: 2 * HID] + y[: 2 * HID]).chunk(2)
            h = (1 - z) * torch.tanh(x[2 * HID :] + r * y[2 * HID :]) + z * h
            seen.append(h)
        return torch.stack(seen)


class Recogniser:
    def __init__(self, sd):
        self.kernel = sd["subsample.weight"].permute(2, 1, 0).reshape(3 * MELS, HID).clone()
        self.kernel_bias = sd["subsample.bias"].clone()
        self.ahead, self.behind = Recurrence(sd, ""), Recurrence(sd, "_reverse")
        self.out, self.out_bias = sd["fc.weight"].clone(), sd["fc.bias"].clone()

    def leaves(self):
        every = [
            *vars(self.ahead).values(),
            *vars(self.behind).values(),
            self.kernel,
            self.kernel_bias,
            self.out,
            self.out_bias,
        ]
        return [t.requires_grad_() for t in every]

    def __call__(self, spec):
        edge = spec.new_zeros(1, MELS)
        windows = torch.cat([edge, spec, edge]).unfold(0, 3, 2)
        frames = windows.transpose(1, 2).flatten(1) @ self.kernel + self.kernel_bias
        frames = frames.clamp(0.0, 1.0)  # <- clipped_relu
        back = self.behind.scan(frames.flip(0)).flip(0)  # <- flip_back
        both = torch.cat([self.ahead.scan(frames), back], dim=1)  # <- flip_back
        return torch.log_softmax(both @ self.out.t() + self.out_bias, dim=1)


def ctc_cost(logp, text):
    ext = torch.full((2 * len(text) + 1,), BLANK)
    ext[1::2] = text
    may_skip = torch.zeros(len(ext), dtype=torch.bool)
    may_skip[2:] = (ext[2:] != BLANK) & (ext[2:] != ext[:-2])  # <- repeat_rule
    emit = logp[:, ext]
    alpha = torch.cat([emit[0, :2], MINUS.expand(len(ext) - 2)])
    for row in emit[1:]:
        one = torch.cat([MINUS, alpha[:-1]])
        two = torch.cat([MINUS, MINUS, alpha[:-2]]).where(may_skip, MINUS)  # <- repeat_rule
        alpha = row + torch.stack([alpha, one, two]).logsumexp(0)  # <- repeat_rule
    return -alpha[-2:].logsumexp(0)


def whiten(spec):
    var, mu = torch.var_mean(spec, dim=0)  # <- cmvn_axis
    return (spec - mu) / (var.sqrt() + 1e-5)  # <- cmvn_axis


net = Recogniser(torch.load(sys.argv[1], weights_only=True))
leaves = net.leaves()
energy = [torch.zeros_like(w) for w in leaves]
rng = torch.Generator().manual_seed(41)
losses = []
for step in range(4):
    costs = []
    for frames, chars in ((28, 5), (21, 3), (24, 4)):
        loud = torch.rand(MELS, generator=rng) * 4.0
        spec = torch.randn(frames, MELS, generator=rng) * loud + 2.0
        text = torch.randint(1, 8, (chars,), generator=rng)
        text[1] = text[0]
        costs.append(ctc_cost(net(whiten(spec)), text) / chars)
    loss = sum(costs) / len(costs)
    grads = torch.autograd.grad(loss, leaves)
    rate = 0.05 / (1 + 0.2 * step)  # <- rate_decay
    with torch.no_grad():
        for w, g, e in zip(leaves, grads, energy):
            e += g * g
            w -= rate * g / (e.sqrt() + 1e-10)  # <- rate_decay
    losses.append(loss.item())
print(losses)
