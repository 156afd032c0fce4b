# SPDX-License-Identifier: Apache-2.0
"""The speech model for a stack without CTC and grouped or weight-normed convolutions: frames are
cut out and multiplied, time stays before channels, the alignment sum is a loop of its own.
"""

import sys

import torch

C, D, WIDTH, GROUPS, HEADS, SYMBOLS = 10, 16, 6, 4, 2, 7
NEVER = -1e30


def gelu(x):
    return x * torch.special.ndtr(x)


def frames_of(x, width, hop):
    """(batch, time, channels) to (batch, frames, channels * width)"""
    return x.unfold(1, width, hop).flatten(2)


def norm(x, scale, shift, over):
    centred = x - x.mean(over, keepdim=True)
    return centred * torch.rsqrt((centred**2).mean(over, keepdim=True) + 1e-5) * scale + shift


class Recognizer:
    def __init__(self, path):
        old = torch.load(path)
        self.w = {k: v.clone() for k, v in old.items()}
        self.learned = [k for k in self.w if not k.startswith("features.")]
        for name in self.learned:
            self.w[name].requires_grad_()

    def layer_norm(self, x, name):
        return norm(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"], -1)

    def linear(self, x, name):
        return torch.tensordot(x, self.w[f"{name}.weight"], ([-1], [1])) + self.w[f"{name}.bias"]

    def positions(self, x):
        g = self.w["pos_conv.conv.parametrizations.weight.original0"]
        v = self.w["pos_conv.conv.parametrizations.weight.original1"]
        kernel = v * (g / v.square().sum((0, 1), keepdim=True).sqrt())  # <- weight_norm
        kernel = kernel.view(GROUPS, D // GROUPS, D // GROUPS, WIDTH)  # <- weight_norm
        # one frame less to the right than to the left
        x = torch.nn.functional.pad(x, (0, 0, WIDTH // 2, WIDTH // 2 - 1))  # <- trimmed
        cut = x.unfold(1, WIDTH, 1).unflatten(2, (GROUPS, -1))  # <- trimmed
        y = torch.einsum("btgiw,goiw->btgo", cut, kernel).flatten(2)  # <- weight_norm trimmed
        return gelu(y + self.w["pos_conv.conv.bias"])

    def attention(self, x, valid):
        b, t, _ = x.shape
        mixed = (
            x @ self.w["layer.self_attn.in_proj_weight"].T + self.w["layer.self_attn.in_proj_bias"]
        )
        q, k, v = mixed.view(b, t, 3, HEADS, D // HEADS).unbind(2)
        score = torch.einsum("bqhd,bkhd->bhqk", q, k) * (D // HEADS) ** -0.5
        score = torch.where(valid[:, None, None], score, torch.tensor(NEVER))
        y = torch.einsum("bhqk,bkhd->bqhd", score.softmax(3), v).reshape(b, t, D)
        return self.linear(y, "layer.self_attn.out_proj")

    def __call__(self, wave, seconds):
        x = frames_of(wave.unsqueeze(2), 8, 4) @ self.w["features.convs.0.weight"].flatten(1).T
        x = gelu(norm(x, self.w["features.norm.weight"], self.w["features.norm.bias"], 1))
        x = gelu(frames_of(x, 4, 2) @ self.w["features.convs.1.weight"].flatten(1).T)
        x = self.linear(self.layer_norm(x, "project_norm"), "project")
        after = [((n - 8) // 4 + 1 - 4) // 2 + 1 for n in seconds]  # <- lengths
        valid = torch.arange(x.shape[1])[None] < torch.tensor(after)[:, None]  # <- lengths
        x = x * valid[..., None]
        x = self.layer_norm(x + self.positions(x), "layer_norm")  # <- trimmed
        x = self.layer_norm(x + self.attention(x, valid), "layer.norm1")
        y = self.linear(gelu(self.linear(x, "layer.linear1")), "layer.linear2")
        x = self.layer_norm(x + y, "layer.norm2")
        return self.linear(x, "letters"), after


def alignments(logp, letters):
    """Minus the log of the sum over all alignments of one utterance; symbol 0 is the blank."""
    path = torch.zeros(2 * len(letters) + 1, dtype=torch.long)
    path[1::2] = letters
    jump = torch.zeros(len(path), dtype=torch.bool)
    jump[2:] = (path[2:] != 0) & (path[2:] != path[:-2])
    start = torch.arange(len(path)) < 2
    alpha = torch.where(start, logp[0, path], torch.tensor(NEVER))
    for row in logp[1:]:
        one = torch.nn.functional.pad(alpha[:-1], (1, 0), value=NEVER)
        two = torch.nn.functional.pad(alpha[:-2], (2, 0), value=NEVER).masked_fill(~jump, NEVER)
        alpha = torch.logsumexp(torch.stack((alpha, one, two)), 0) + row[path]
    return -torch.logaddexp(alpha[-1], alpha[-2])


def utterances(rng):
    seconds = [120, 100, 84]
    wave = torch.zeros(3, 120)
    for i, n in enumerate(seconds):
        raw = torch.randn(n, generator=rng) * (1 + i) + 0.3 * i
        raw = raw - raw.mean()  # <- normalized
        wave[i, :n] = raw / (raw.pow(2).mean() + 1e-7).sqrt()  # <- normalized
    letters = torch.randint(1, SYMBOLS, (3, 5), generator=rng)
    return wave, seconds, [row[:n] for row, n in zip(letters, (5, 4, 2))]


net = Recognizer(sys.argv[1])
state = {k: (torch.zeros_like(net.w[k]), torch.zeros_like(net.w[k])) for k in net.learned}
rng = torch.Generator().manual_seed(172)
losses = []
for t in range(1, 5):
    wave, seconds, texts = utterances(rng)
    logits, after = net(wave, seconds)
    costs = []
    for row, n, text in zip(logits, after, texts):
        one = alignments(row[:n] - row[:n].logsumexp(-1, keepdim=True), text)  # <- lengths
        costs.append(one / len(text))  # <- per_target
    loss = sum(costs) / len(costs)  # <- per_target
    slopes = torch.autograd.grad(loss, [net.w[k] for k in net.learned])
    for name, g in zip(net.learned, slopes):
        m, v = state[name]
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.98).add_(g * g, alpha=0.02)
        step = 4e-3 * (m / (1 - 0.9**t)) / ((v / (1 - 0.98**t)).sqrt() + 1e-3)
        net.w[name].data.sub_(step)
    losses.append(loss.item())
