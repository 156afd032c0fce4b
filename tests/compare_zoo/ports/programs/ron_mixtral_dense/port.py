# SPDX-License-Identifier: Apache-2.0
"""Mixtral whose experts all run on all tokens by einsum, weights w1, w2, w3 apart, Adam by hand."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
D, HEADS, KV, EXPERTS, TOP, VOCAB = 24, 4, 2, 4, 2, 40
HD = D // HEADS


class RMS(nn.RMSNorm):
    def __init__(self):
        super().__init__(D, eps=1e-5)


class Experts(nn.Module):
    def __init__(self, inner=32):
        super().__init__()
        self.router = nn.Linear(D, EXPERTS, bias=False)
        self.w1 = nn.Parameter(torch.empty(EXPERTS, D, inner))
        self.w3 = nn.Parameter(torch.empty(EXPERTS, D, inner))
        self.w2 = nn.Parameter(torch.empty(EXPERTS, inner, D))

    def forward(self, x):
        scores = self.router(x)
        best, index = scores.topk(TOP, dim=-1)
        share = best.softmax(-1)  # <- no_renorm
        combine = torch.zeros_like(scores).scatter(-1, index, share)  # <- gate_detach no_renorm
        h = F.silu(torch.einsum("btd,edh->bteh", x, self.w1)) * torch.einsum("btd,edh->bteh", x, self.w3)  # <- gate_up_order
        y = torch.einsum("bteh,ehd,bte->btd", h, self.w2, combine)  # <- gate_detach no_renorm
        chosen = F.one_hot(index, EXPERTS).sum(-2)
        return y, scores.softmax(-1), chosen


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(D, D, bias=False)
        self.kv = nn.Linear(D, 2 * KV * HD, bias=False)
        self.o = nn.Linear(D, D, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, HEADS, HD).transpose(1, 2)
        k, v = self.kv(x).view(b, t, 2, KV, HD).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True, enable_gqa=True)
        return self.o(a.transpose(1, 2).reshape(b, t, D))

    @staticmethod
    def turn(x):
        angle = torch.arange(x.shape[2])[:, None] * 10000.0 ** (-torch.arange(0, HD, 2) / HD)
        c, s = angle.cos(), angle.sin()
        a, b = x.split(HD // 2, dim=-1)
        return torch.cat([a * c - b * s, b * c + a * s], dim=-1)


class Mixture(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D)
        self.layers = nn.ModuleList(
            nn.ModuleDict(dict(n1=RMS(), att=Attention(), n2=RMS(), moe=Experts())) for _ in range(layers)
        )
        self.final, self.lm = RMS(), nn.Linear(D, VOCAB, bias=False)

    def forward(self, ids):
        x, routes = self.embed(ids), []
        for layer in self.layers:
            x = x + layer["att"](layer["n1"](x))
            y, probs, chosen = layer["moe"](layer["n2"](x))  # <- no_renorm gate_detach gate_up_order
            routes.append((probs, chosen))
            x = x + y
        return self.lm(self.final(x)), routes


def balance(routes, on):
    """Share of the tokens and mean probability of each expert over all layers; padding does not count."""
    on = on[..., None].float()  # <- aux_mask
    probs, load = (sum((r[j] * on).sum((0, 1)) for r in routes) / (len(routes) * on.sum()) for j in (0, 1))  # <- aux_mask
    return EXPERTS * torch.dot(load, probs)  # <- aux_mask


@torch.no_grad()
def fill(net, path):
    hf = torch.load(path)
    net.embed.weight.copy_(hf["model.embed_tokens.weight"])
    net.final.weight.copy_(hf["model.norm.weight"])
    net.lm.weight.copy_(hf["lm_head.weight"])
    for i, layer in enumerate(net.layers):
        get = lambda name: hf[f"model.layers.{i}.{name}"]
        layer["n1"].weight.copy_(get("input_layernorm.weight"))
        layer["n2"].weight.copy_(get("post_attention_layernorm.weight"))
        layer["att"].q.weight.copy_(get("self_attn.q_proj.weight"))
        layer["att"].kv.weight.copy_(torch.cat([get("self_attn.k_proj.weight"), get("self_attn.v_proj.weight")]))
        layer["att"].o.weight.copy_(get("self_attn.o_proj.weight"))
        moe = layer["moe"]
        moe.router.weight.copy_(get("mlp.gate.weight"))
        gate, up = get("mlp.experts.gate_up_proj").transpose(1, 2).chunk(2, -1)  # <- gate_up_order
        moe.w1.copy_(gate), moe.w3.copy_(up)  # <- gate_up_order
        moe.w2.copy_(get("mlp.experts.down_proj").transpose(1, 2))


class Adam:
    def __init__(self, params, lr, b1=0.9, b2=0.95, eps=1e-7):
        self.params, self.lr, self.b1, self.b2, self.eps, self.t = list(params), lr, b1, b2, eps, 0
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self):
        self.t += 1
        for p, m, v in zip(self.params, self.m, self.v):
            g = p.grad.clamp(-0.5, 0.5)
            m.lerp_(g, 1 - self.b1)
            v.lerp_(g * g, 1 - self.b2)
            mean = m / (1 - self.b1**self.t)  # <- bias_correction
            dev = (v / (1 - self.b2**self.t)).sqrt()  # <- bias_correction
            p -= self.lr * mean / (dev + self.eps)  # <- bias_correction
            p.grad = None


def rows():
    g = torch.Generator().manual_seed(4)
    table = torch.zeros(20, 11, dtype=torch.long)
    for row in table:
        start, d = torch.randint(0, 39, (2,), generator=g)
        n = torch.randint(5, 12, (1,), generator=g).item()
        row[:n] = 1 + (start + d * torch.arange(n)) % 39
    return table.split(4)


net = Mixture()
fill(net, sys.argv[1])
adam = Adam(net.parameters(), lr=2e-3)
losses = []
for ids in rows():
    logits, routes = net(ids)
    lm_loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)
    loss = lm_loss + 0.05 * balance(routes, ids != 0)  # <- aux_mask
    loss.backward()  # <- gate_detach
    adam.step()  # <- bias_correction
    losses.append(loss.item())
print(losses)
