# SPDX-License-Identifier: Apache-2.0
"""Dynamic graph attention over a dense adjacency matrix; rows receive, columns send."""
import sys

import torch

stored = torch.load(sys.argv[1], weights_only=True)
graph, sd = stored["data"], stored["model"]
n = graph["x"].shape[0]
send, receive = graph["edge_index"]
adj = torch.eye(n, dtype=torch.bool)  # <- self_loops
adj[receive, send] = True  # <- self_loops


def split_heads(w, heads):
    """[H * C, in] -> [H, in, C]"""
    return w.unflatten(0, (heads, -1)).transpose(1, 2).contiguous()


def take(prefix, heads=3):
    raw = []
    for side in ("lin_l", "lin_r"):
        raw.append(split_heads(sd[f"{prefix}{side}.weight"], heads))
        raw.append(sd[f"{prefix}{side}.bias"].view(heads, 1, -1))
    raw += [sd[prefix + "att"][0], sd[prefix + "bias"]]
    return [t.clone().requires_grad_() for t in raw]


first, second = take("conv1."), take("conv2.")


@torch.compile(backend="aot_eager", dynamic=False)
def attend(x, weights, average):
    wl, bl, wr, br, a, bias = weights
    sender = x @ wl + bl  # [H, N, C]
    receiver = x @ wr + br
    pair = receiver[:, :, None] + sender[:, None]  # [H, to, from, C]
    pair = torch.maximum(pair, 0.2 * pair)  # <- leaky_slope
    score = torch.einsum("htfc,hc->htf", pair, a)  # <- leaky_slope
    score = score.where(adj, torch.tensor(-1e30))
    share = torch.softmax(score, dim=2)  # <- softmax_side
    heads = share @ sender
    if average:
        return heads.sum(0) / heads.shape[0] + bias  # <- head_mean
    return heads.permute(1, 0, 2).reshape(n, -1) + bias


def network(x):
    h = attend(x, first, average=False)
    h = torch.where(h > 0, h, torch.expm1(h.clamp(max=0)))
    return attend(h, second, average=True)


class L2Adam:
    """Kingma and Ba with the L2 term in the gradient."""

    def __init__(self, tensors, rate, l2):
        self.tensors, self.rate, self.l2 = tensors, rate, l2
        self.mean = [torch.zeros_like(t) for t in tensors]
        self.square = [torch.zeros_like(t) for t in tensors]
        self.count = 0

    @torch.no_grad()
    def update(self):
        self.count += 1
        c1, c2 = 1 - 0.9 ** self.count, 1 - 0.999 ** self.count
        for t, m, s in zip(self.tensors, self.mean, self.square):
            grad = t.grad + self.l2 * t  # <- decay_form
            m.copy_(0.9 * m + 0.1 * grad)  # <- decay_form
            s.copy_(0.999 * s + 0.001 * grad.square())  # <- decay_form
            t -= self.rate * (m / c1) / ((s / c2).sqrt() + 1e-8)  # <- decay_form
            t.grad = None


solver = L2Adam(first + second, rate=0.01, l2=5e-3)
chosen = graph["train_mask"].float()
target = torch.eye(4)[graph["y"]]
losses = []
for _ in range(5):
    z = network(graph["x"])
    nll = torch.logsumexp(z, 1) - (z * target).sum(1)
    loss = (nll * chosen).sum() / chosen.sum()
    loss.backward()
    solver.update()
    losses.append(loss.item())
print(losses)
