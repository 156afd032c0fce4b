# SPDX-License-Identifier: Apache-2.0
"""Conformer with its CTC written out: linear layers on windows, a bias by gather, the alpha recursion."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

N_HEAD, CLIP_AT, WIDTH, N_OUT, N_BATCH, N_FRAME, N_FEAT = 3, 12, 5, 7, 4, 52, 10
NEVER = -1e30


class Weights(dict):
    """Flat weights; every product is input @ matrix, convolutions are [taps * in, out]."""

    @classmethod
    def read(cls, path):
        w = cls()
        for key, value in torch.load(path).items():
            if key in ("front.conv1.weight", "front.conv2.weight"):
                value = value.permute(2, 1, 0).flatten(0, 1)
            elif key == "conv.depth.weight":
                value = value[:, 0].t()
            elif key.startswith("conv.") and value.ndim == 3:
                value = value[..., 0].t()
            elif key == "att.bias.weight":
                value = value.t()
            elif value.ndim == 2:
                value = value.t()
            w[key] = value.clone().contiguous().requires_grad_()
        return w

    def linear(self, name, x):
        return x @ self[name + ".weight"] + self[name + ".bias"]

    def layer_norm(self, name, x):
        var, mean = torch.var_mean(x, -1, unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(var + 1e-5) * self[name + ".weight"] + self[name + ".bias"]

    def stride_two(self, name, x):
        windows = F.pad(x, (0, 0, 1, 1)).unfold(1, 3, 2)
        return torch.relu(self.linear(name, windows.transpose(2, 3).flatten(2)))

    def feed_forward(self, name, x):
        return self.linear(name + ".3", F.silu(self.linear(name + ".1", self.layer_norm(name + ".0", x))))

    def attention(self, x, valid):
        n = x.shape[1]
        q, k, v = self.linear("att.qkv", x).unflatten(-1, (3, N_HEAD, -1)).unbind(2)
        score = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        rows, cols = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
        index = (cols - rows).clip(-CLIP_AT, CLIP_AT) + CLIP_AT  # <- rel_sign
        score = score + self["att.bias.weight"][:, index]
        score = torch.where(valid[:, None, None], score, NEVER)
        return self.linear("att.out", torch.einsum("bhqk,bkhd->bqhd", score.softmax(-1), v).flatten(2))

    def convolution(self, x, valid):
        a, b = self.linear("conv.expand", self.layer_norm("conv.norm", x)).chunk(2, dim=-1)
        gated = a * torch.sigmoid(b)
        gated = gated * valid[..., None]
        padded = F.pad(gated, (0, 0, WIDTH // 2, WIDTH // 2))
        taps = self["conv.depth.weight"]
        y = sum(padded[:, i : i + x.shape[1]] * taps[i] for i in range(WIDTH)) + self["conv.depth.bias"]
        var, mean = torch.var_mean(y, (1, 2), unbiased=False, keepdim=True)
        y = (y - mean) * torch.rsqrt(var + 1e-5) * self["conv.scale.weight"] + self["conv.scale.bias"]
        return self.linear("conv.shrink", F.silu(y))

    def forward(self, x, lengths):
        x = self.stride_two("front.conv2", self.stride_two("front.conv1", x))
        short = torch.div(lengths + 3, 4, rounding_mode="floor")  # <- out_length
        valid = torch.arange(x.shape[1])[None] < short[:, None]
        x = x + self.feed_forward("ff1", x) / 2
        x = x + self.attention(self.layer_norm("norm_att", x), valid)
        x = x + self.convolution(x, valid)
        x = x + self.feed_forward("ff2", x) / 2
        return F.log_softmax(self.linear("ctc", self.layer_norm("norm", x)), -1), short


def ctc_nll(logp, n_frames, labels, n_labels):
    """-log p of each utterance by the forward variables over blank, l1, blank, l2, …, blank."""
    states = torch.zeros(len(labels), 2 * labels.shape[1] + 1, dtype=torch.long)
    states[:, 1::2] = labels
    skip = torch.zeros_like(states, dtype=torch.bool)
    skip[:, 2:] = (states[:, 2:] != 0) & (states[:, 2:] != states[:, :-2])  # <- ctc_skip
    emit = logp.gather(2, states[:, None].expand(-1, logp.shape[1], -1))
    start = torch.arange(states.shape[1]) < 2
    alpha = torch.where(start, emit[:, 0], NEVER)
    for t in range(1, logp.shape[1]):
        one = F.pad(alpha, (1, 0), value=NEVER)[:, :-1]
        two = torch.where(skip, F.pad(alpha, (2, 0), value=NEVER)[:, :-2], NEVER)
        moved = torch.logsumexp(torch.stack([alpha, one, two]), 0) + emit[:, t]
        alpha = torch.where((t < n_frames)[:, None], moved, alpha)
    last = alpha.gather(1, torch.stack([2 * n_labels - 1, 2 * n_labels], 1))
    return -torch.logsumexp(last, 1)


def corpus(n):
    g = torch.Generator().manual_seed(8)
    prototypes = torch.randn(N_OUT, N_FEAT, generator=g)
    for _ in range(n):
        frames = torch.randint(37, 52, (N_BATCH,), generator=g)
        labels = torch.randint(1, N_OUT, (N_BATCH, 5), generator=g)
        labels[0, 1] = labels[0, 0]
        n_labels = torch.randint(3, 6, (N_BATCH,), generator=g)
        rows = []
        for f, y, m in zip(frames.tolist(), labels, n_labels.tolist()):
            clean = prototypes[y.gather(0, torch.arange(f) * m // f)]
            rows.append(F.pad(clean + 0.3 * torch.randn(f, N_FEAT, generator=g), (0, 0, 0, N_FRAME - f)))
        yield torch.stack(rows), frames, labels, n_labels


net = Weights.read(sys.argv[1])
velocity = {k: torch.zeros_like(v) for k, v in net.items()}
losses = []
for audio, frames, labels, n_labels in corpus(5):
    logp, short = net.forward(audio, frames)
    nll = ctc_nll(logp, short, labels, n_labels)
    loss = (nll / n_labels).mean()  # <- ctc_norm
    grads = torch.autograd.grad(loss, list(net.values()))
    shrink = min(1.0, 5.0 / (torch.cat([g.flatten() for g in grads]).norm().item() + 1e-6))
    with torch.no_grad():
        for (name, w), g in zip(net.items(), grads):
            g = g * shrink
            velocity[name] = 0.9 * velocity[name] + g
            w -= 0.05 * (g + 0.9 * velocity[name])  # <- nesterov
    losses.append(loss.item())
print(losses)
