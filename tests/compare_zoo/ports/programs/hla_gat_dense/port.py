# SPDX-License-Identifier: Apache-2.0
"""Dense GAT: attention as an N x N x head array with a mask, weights in a buffer-backed
module, explicit updates."""
import math
import sys

import torch

sd = torch.load(sys.argv[1], weights_only=True)


class DenseGAT(torch.nn.Module):
    """Weights are buffers (the trainer below owns them); attention vectors are held as one [2,
    heads, c] array."""

    def __init__(self):
        super().__init__()
        for i, heads in ((1, 3), (2, 2)):
            p = f"conv{i}."
            w = sd[p + "lin.weight"]
            self.register_buffer(f"w{i}", w.view(heads, -1, w.shape[1]).transpose(1, 2).clone())
            self.register_buffer(f"a{i}", torch.cat([sd[p + "att_dst"], sd[p + "att_src"]]).clone())
            self.register_buffer(f"r{i}", sd[p + "edge_bias.weight"].T.clone())
            self.register_buffer(f"b{i}", sd[p + "bias"].clone())
        # classifier and skip as affine maps in homogeneous form
        self.register_buffer("skip", torch.cat([sd["skip.bias"][:, None], sd["skip.weight"]], 1))
        self.register_buffer("cls", torch.cat([sd["cls.bias"][:, None], sd["cls.weight"]], 1))
        self.register_buffer("bil", sd["rel.weight"][0].clone())
        self.register_buffer("bil_b", sd["rel.bias"].clone())
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def attention(self, i, x, into, relation):
        """into[t, s]: an edge s -> t; relation[t, s, 3] one-hot."""
        w, a, r = getattr(self, f"w{i}"), getattr(self, f"a{i}"), getattr(self, f"r{i}")
        h = torch.einsum("nf,hfc->hnc", x, w)
        dst, src = torch.einsum("khc,hnc->khn", a, h)
        e = dst[:, :, None] + src[:, None, :] + torch.einsum("tsr,hr->hts", relation, r)
        e = torch.maximum(e, 0.2 * e).masked_fill(~into, float("-inf"))  # <- edge_direction
        return torch.softmax(e, -1) @ h                     # h n c

    def embed(self, x, into, relation):
        y = self.attention(1, x, into, relation).permute(1, 0, 2).reshape(len(x), -1) + self.b1
        y = torch.where(y > 0, y, torch.exp(torch.minimum(y, y.new_zeros(()))) - 1)
        y = self.attention(2, y, into, relation).sum(0) / 2 + self.b2  # <- head_mean
        return y + x @ self.skip[:, 1:].T + self.skip[:, 0]

    def forward(self, x, into, relation):
        self.calls += 1
        h = self.embed(x, into, relation)
        return h @ self.cls[:, 1:].T + self.cls[:, 0], (h @ self.bil) @ h.T + self.bil_b


rng = torch.Generator().manual_seed(40)
n = 30
x = torch.randn(n, 8, generator=rng)
edges = torch.rand(n, n, generator=rng) < 0.12
rel = torch.randint(0, 2, (n, n), generator=rng)
target = torch.eye(4)[torch.randint(0, 4, (n,), generator=rng)]
used = (torch.rand(n, generator=rng) < 0.6).float()
eye = torch.eye(n, dtype=torch.bool)
edges = edges & ~eye
count = int(edges.sum())
into = (edges | eye).T  # <- edge_direction
relation = torch.nn.functional.one_hot(torch.where(eye, 2, rel).T, 3).float()

net = DenseGAT()
trained = {k: b for k, b in net.named_buffers() if b.is_floating_point()}
avg = {k: torch.zeros_like(b) for k, b in trained.items()}
peak = {k: torch.zeros_like(b) for k, b in trained.items()}
losses = []
for ep in range(5):
    for b in trained.values():
        b.requires_grad_(True)
    fake = torch.randint(0, n, (2, count), generator=rng)
    # how often each ordered pair is drawn as a negative
    times = torch.zeros(n * n).index_add_(0, fake[0] * n + fake[1], torch.ones(count)).view(n, n)
    logits, pair = net(x, into, relation)
    soft = lambda a: torch.nn.functional.softplus(a)
    link = ((soft(-pair) * edges).sum() + (soft(pair) * times).sum()) / (2 * count)  # <- link_mean
    nll = (torch.logsumexp(logits, 1) - (logits * target).sum(1)) @ used / used.sum()
    loss = 0.5 * link + nll  # <- link_mean
    grads = torch.autograd.grad(loss, list(trained.values()))
    lr = 1e-3 + 9e-3 * (1 + math.cos(math.pi * (ep % 3) / 3)) / 2  # <- restart
    with torch.no_grad():
        for (k, b), g in zip(trained.items(), grads):
            b.requires_grad_(False)
            g = g + 5e-3 * b  # <- decoupled_decay
            avg[k] = 0.9 * avg[k] + 0.1 * g  # <- decoupled_decay
            peak[k] = torch.fmax(0.999 * peak[k], g.abs() + 1e-6)  # <- decoupled_decay
            b -= lr / (1 - 0.9 ** (ep + 1)) * (avg[k] / peak[k])  # <- restart decoupled_decay
    losses.append(loss.item())
print(losses)
