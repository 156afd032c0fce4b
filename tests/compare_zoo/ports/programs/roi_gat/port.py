# SPDX-License-Identifier: Apache-2.0
"""Dense-adjacency graph attention with per-head weights and own batch statistics."""
import sys

import torch
from torch import nn

torch.set_num_threads(1)
N, FEATS, LABELS = 48, 20, 4


class HeadBank(nn.Module):
    """All heads of one attention layer; adj[i, j] is true where node i receives from node j."""

    def __init__(self, w, left, right, merge, bias=None):
        super().__init__()
        self.w = nn.Parameter(w)
        self.sender = nn.Parameter(left)
        self.receiver = nn.Parameter(right)
        self.bias = nn.Parameter(bias) if bias is not None else 0.0
        self.merge = merge

    @classmethod
    def from_state(cls, state, prefix, merge):
        left, right = state[prefix + "att_src"], state[prefix + "att_dst"]
        heads, width = left.shape
        w = state[prefix + "lin.weight"].view(heads, width, -1).transpose(1, 2).contiguous()
        return cls(w, left.unsqueeze(-1).clone(), right.unsqueeze(-1).clone(), merge, state.get(prefix + "bias"))

    def forward(self, feats, adj):
        z = torch.matmul(feats, self.w)
        logits = z @ self.receiver + (z @ self.sender).mT
        logits = torch.where(logits > 0, logits, 0.2 * logits)
        logits = logits.masked_fill(~adj, -torch.inf)  # <- self_loops
        att = torch.softmax(logits, dim=2)  # <- softmax_axis
        mixed = att @ z
        if self.merge == "cat":
            return mixed.permute(1, 0, 2).reshape(len(feats), -1) + self.bias
        return mixed.mean(0) + self.bias


class BatchStats(nn.Module):
    """Batch normalisation over nodes that keeps its own running estimates."""

    def __init__(self, gain, offset, mean, var, keep=0.9, eps=1e-5):
        super().__init__()
        self.gain, self.offset = nn.Parameter(gain.clone()), nn.Parameter(offset.clone())
        self.mean, self.var = mean.clone(), var.clone()
        self.keep, self.eps = keep, eps

    def forward(self, h, frozen):
        if frozen:
            mu, var = self.mean, self.var  # <- bn_momentum
        else:
            mu = h.mean(0)
            var = (h - mu).square().mean(0)
            with torch.no_grad():
                unbiased = var * len(h) / (len(h) - 1)
                self.mean = self.keep * self.mean + (1 - self.keep) * mu  # <- bn_momentum
                self.var = self.keep * self.var + (1 - self.keep) * unbiased  # <- bn_momentum
        return (h - mu) / (var + self.eps).sqrt() * self.gain + self.offset


class DenseGAT(nn.Module):
    def __init__(self, state):
        super().__init__()
        self.first = HeadBank.from_state(state, "conv1.", "cat")
        self.second = HeadBank.from_state(state, "conv2.", "avg")
        self.bn = BatchStats(state["bn.weight"], state["bn.bias"],
                             state["bn.running_mean"], state["bn.running_var"])

    def forward(self, feats, adj, frozen):
        h = self.bn(self.first(feats, adj), frozen)
        h = torch.where(h > 0, h, torch.expm1(h.clamp(max=0)))
        return self.second(h, adj)


def dataset():
    rng = torch.Generator().manual_seed(123)
    label = torch.randint(0, LABELS, (N,), generator=rng)
    feats = torch.randn(N, FEATS, generator=rng)
    feats[torch.arange(N), label] += 1.5
    chance = torch.full((N, N), 0.06)
    chance[label.unsqueeze(1).eq(label)] = 0.3
    sends = torch.rand(N, N, generator=rng).lt(chance) & ~torch.eye(N, dtype=torch.bool)
    adj = sends.t() | torch.eye(N, dtype=torch.bool)  # <- self_loops
    known = torch.rand(N, generator=rng).lt(0.5)  # <- train_mask
    return feats, label, adj, known


def masked_nll(scores, label, known):
    nll = scores.logsumexp(1) - scores.gather(1, label[:, None])[:, 0]
    weight = known.float()
    return (nll * weight).sum() / weight.sum()  # <- train_mask


feats, label, adj, known = dataset()
net = DenseGAT(torch.load(sys.argv[1]))
early = list(net.first.parameters()) + list(net.bn.parameters())
late = list(net.second.parameters())
opt = torch.optim.Adam(early + late, lr=0.02)

losses = []
for epoch in range(5):
    scores = net(feats, adj, frozen=epoch > 2)
    loss = masked_nll(scores, label, known)  # <- train_mask
    opt.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in early:  # <- l2_scope
            p.grad.add_(p, alpha=0.05)  # <- l2_scope
    opt.step()
    losses.append(loss.item())
print(losses)
