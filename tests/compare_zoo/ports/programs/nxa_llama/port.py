# SPDX-License-Identifier: Apache-2.0
"""Llama in the half-rotation convention: fused projections, grouped queries, own optimizer."""
import sys

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
CFG = dict(width=32, q_heads=4, kv_heads=2, depth=2, ffn=48, vocab=41, length=14)
W, HD = CFG["width"], CFG["width"] // CFG["q_heads"]


def half_layout(w, heads):
    """Rows of a projection from pairs (x0 y0 x1 y1 ..) to halves (x0 x1 .. y0 y1 ..)."""
    return w.view(heads, HD // 2, 2, -1).transpose(1, 2).reshape(w.shape)  # <- key_permute


def convert(theirs):
    ours = {"embed": theirs["tok_embeddings.weight"], "final_gain": theirs["norm.weight"],
            "unembed": theirs["output.weight"]}
    for i in range(CFG["depth"]):
        def take(key):
            return theirs[f"layers.{i}.{key}.weight"]
        q = half_layout(take("attention.wq"), CFG["q_heads"])
        k = half_layout(take("attention.wk"), CFG["kv_heads"])  # <- key_permute
        ours[f"stack.{i}.qkv"] = torch.cat([q, k, take("attention.wv")])  # <- key_permute
        ours[f"stack.{i}.gate_up"] = torch.cat([take("w1"), take("w3")])
        for mine, name in (("out", "attention.wo"), ("down", "w2"),
                           ("gain_a", "attention_norm"), ("gain_f", "ffn_norm")):
            ours[f"stack.{i}.{mine}"] = take(name)
    return ours


def rms(x, gain):
    return gain * (x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + 1e-5))  # <- norm_eps


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        rows = (CFG["q_heads"] + 2 * CFG["kv_heads"]) * HD
        shapes = dict(qkv=(rows, W), out=(W, W), gate_up=(2 * CFG["ffn"], W),
                      down=(W, CFG["ffn"]), gain_a=(W,), gain_f=(W,))
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.empty(shape)))

    def forward(self, x, cos, sin):
        n, t, _ = x.shape
        kv, group = CFG["kv_heads"], CFG["q_heads"] // CFG["kv_heads"]
        packed = F.linear(rms(x, self.gain_a), self.qkv)  # <- key_permute
        q, k, v = packed.split([W, kv * HD, kv * HD], dim=-1)
        q = turn(q.view(n, t, -1, HD), cos, sin)
        k = turn(k.view(n, t, kv, HD), cos, sin)  # <- key_permute
        q = q.view(n, t, kv, group, HD)  # <- kv_grouping
        v = v.view(n, t, kv, HD)
        logits = torch.einsum("bqcgd,bkcd->bcgqk", q, k) * HD ** -0.5  # <- kv_grouping
        visible = torch.ones(t, t).tril().bool()
        probs = logits.where(visible, torch.finfo(logits.dtype).min).softmax(dim=-1)
        heads = torch.einsum("bcgqk,bkcd->bqcgd", probs, v)  # <- kv_grouping
        x = x + F.linear(heads.reshape(n, t, W), self.out)
        gate, up = F.linear(rms(x, self.gain_f), self.gate_up).chunk(2, dim=-1)
        return x + F.linear(gate * torch.sigmoid(gate) * up, self.down)


def turn(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Parameter(torch.empty(CFG["vocab"], W))
        self.unembed = nn.Parameter(torch.empty(CFG["vocab"], W))
        self.final_gain = nn.Parameter(torch.empty(W))
        self.stack = nn.ModuleList(Layer() for _ in range(CFG["depth"]))

    def forward(self, ids):
        inv = 10000.0 ** -(torch.arange(HD // 2) * 2.0 / HD)
        phase = (torch.arange(ids.shape[1])[:, None] * inv).repeat(1, 2)[:, None, :]
        x = F.embedding(ids, self.embed)
        for layer in self.stack:
            x = layer(x, phase.cos(), phase.sin())
        return F.linear(rms(x, self.final_gain), self.unembed)


class Adam95:  # decoupled decay, on lists of tensors
    def __init__(self, params, lr=8e-3, decay=0.1):  # <- decay_form
        self.params, self.lr, self.decay, self.t = list(params), lr, decay, 0
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self):
        self.t += 1
        grads = [p.grad for p in self.params]
        torch._foreach_mul_(self.params, 1 - self.lr * self.decay)  # <- decay_form
        torch._foreach_lerp_(self.m, grads, 0.1)
        torch._foreach_mul_(self.v, 0.95)
        torch._foreach_addcmul_(self.v, grads, grads, 0.05)
        denom = torch._foreach_sqrt(torch._foreach_div(self.v, 1 - 0.95 ** self.t))
        torch._foreach_add_(denom, 1e-6)
        rate = -self.lr / (1 - 0.9 ** self.t)
        torch._foreach_addcdiv_(self.params, self.m, denom, rate)  # <- decay_form


net = Decoder()
net.load_state_dict(convert(torch.load(sys.argv[1], weights_only=True)))
adam = Adam95(net.parameters())
stream = torch.randint(0, CFG["vocab"], (4, 3, CFG["length"] + 1),
                       generator=torch.Generator().manual_seed(5))
losses = []
for ids in stream:
    scores = net(ids[:, :-1])
    log_z = scores.logsumexp(-1)
    gold = scores.gather(-1, ids[:, 1:, None])[..., 0]
    objective = (log_z - gold).mean() + 5e-2 * (log_z ** 2).mean()  # <- z_loss
    net.zero_grad()
    objective.backward()
    adam.step()  # <- decay_form
    losses.append(objective.item())
print(losses)
