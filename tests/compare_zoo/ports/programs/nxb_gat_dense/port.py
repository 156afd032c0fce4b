# SPDX-License-Identifier: Apache-2.0
"""Dense-adjacency graph attention, heads first, written with einsum and a hand-made Adam."""
import math
import sys

import torch
import torch.nn.functional as F

NODES, FEATURES, CLASSES = 20, 10, 4


def load_params(path):
    sd = torch.load(path, weights_only=True)
    params = {}
    for name, heads in (("conv1", 3), ("conv2", 2)):
        w = sd[f"{name}.lin.weight"]                      # [heads * out, in]
        params[name] = {
            "w": w.reshape(heads, -1, w.shape[1]).transpose(1, 2).contiguous(),  # [h, in, out]
            "a": torch.cat([sd[f"{name}.att_dst"][0], sd[f"{name}.att_src"][0]], dim=-1),
            "b": sd[f"{name}.bias"].clone(),
        }
    for group in params.values():
        for tensor in group.values():
            tensor.requires_grad_(True)
    return params


def attend(p, feats, adj):
    """feats [n, in], adj[i, j] != 0 when i listens to j -> [h, n, out]"""
    z = torch.einsum("ni,hio->hno", feats, p["w"])
    out_dim = z.shape[-1]
    left = torch.einsum("hno,ho->hn", z, p["a"][:, :out_dim])
    right = torch.einsum("hno,ho->hn", z, p["a"][:, out_dim:])
    e = F.leaky_relu(left[:, :, None] + right[:, None, :], 0.2)  # <- leaky_slope
    e = e.masked_fill(adj == 0, -1e9)  # <- edge_direction
    att = torch.softmax(e, dim=-1)
    return att @ z  # <- edge_direction


def network(params, feats, adj):
    h = attend(params["conv1"], feats, adj)
    h = h.permute(1, 0, 2).reshape(NODES, -1)  # <- head_concat
    h = F.elu(h + params["conv1"]["b"])  # <- head_concat
    scores = attend(params["conv2"], h, adj)  # <- head_concat
    return scores.mean(dim=0) + params["conv2"]["b"]


def masked_loss(scores, onehot, weight):
    logp = scores - scores.logsumexp(dim=1, keepdim=True)
    per_node = -(onehot * logp).sum(dim=1)
    return (per_node * weight).sum() / weight.sum()  # <- train_rows


class Adam:
    def __init__(self, tensors, lr, b1=0.9, b2=0.999, eps=1e-8):
        self.tensors, self.lr, self.b1, self.b2, self.eps = tensors, lr, b1, b2, eps
        self.m = [torch.zeros_like(t) for t in tensors]
        self.v = [torch.zeros_like(t) for t in tensors]
        self.t = 0

    @torch.no_grad()
    def apply(self, grads):
        self.t += 1
        fix_m = 1 - self.b1 ** self.t  # <- moment_correction
        fix_v = 1 - self.b2 ** self.t  # <- moment_correction
        for x, g, m, v in zip(self.tensors, grads, self.m, self.v):
            m.lerp_(g, 1 - self.b1)
            v.mul_(self.b2).addcmul_(g, g, value=1 - self.b2)
            denom = v.sqrt() / math.sqrt(fix_v) + self.eps  # <- moment_correction
            x -= self.lr * (m / fix_m) / denom  # <- moment_correction


def make_problem():
    rng = torch.Generator().manual_seed(42)
    feats = torch.randn(NODES, FEATURES, generator=rng)
    label = torch.randint(0, CLASSES, (NODES,), generator=rng)
    sends = torch.rand(NODES, NODES, generator=rng) < 0.2
    known = torch.rand(NODES, generator=rng) < 0.6
    eye = torch.eye(NODES)
    adj = sends.float().t() * (1 - eye) + eye  # <- edge_direction
    return feats, F.one_hot(label, CLASSES).float(), adj, known.float()


params = load_params(sys.argv[1])
flat = [t for group in params.values() for t in group.values()]
adam = Adam(flat, lr=0.01)
feats, onehot, adj, known = make_problem()

losses = []
for _ in range(5):
    loss = masked_loss(network(params, feats, adj), onehot, known)  # <- train_rows
    adam.apply(torch.autograd.grad(loss, flat))  # <- moment_correction
    losses.append(float(loss.detach()))
print(losses)
