# SPDX-License-Identifier: Apache-2.0
"""Mixture of experts in torch only: every expert sees every token, the router weighs them."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
DIM, HIDDEN, HEADS, KV, EXPERTS, TOP, WINDOW, VOCAB = 32, 40, 4, 2, 4, 2, 4, 59


def visible(t):
    """True where the query (row) may look at the key (column)."""
    back = torch.arange(t)[:, None] - torch.arange(t)
    return (back >= 0) & (back < WINDOW)  # <- window


def turn(x):
    """Rotary position, x of shape (batch, heads, time, size)."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** -(torch.arange(half) / half)
    angle = torch.arange(x.shape[-2])[:, None] * rates
    left, right = x.split(half, dim=-1)
    c, s = angle.cos(), angle.sin()
    return torch.cat([left * c - right * s, right * c + left * s], dim=-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        size = DIM // HEADS
        self.q, self.o = nn.Linear(DIM, DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.kv = nn.Linear(DIM, 2 * KV * size, bias=False)

    def forward(self, x):
        q = self.q(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        k, v = self.kv(x).unflatten(-1, (2, KV, -1)).permute(2, 0, 3, 1, 4)
        mask = visible(x.shape[1])
        y = F.scaled_dot_product_attention(turn(q), turn(k), v, attn_mask=mask, enable_gqa=True)  # <- window
        return self.o(y.transpose(1, 2).flatten(2))


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.w1 = nn.Parameter(torch.empty(EXPERTS, HIDDEN, DIM))
        self.w2 = nn.Parameter(torch.empty(EXPERTS, DIM, HIDDEN))
        self.w3 = nn.Parameter(torch.empty(EXPERTS, HIDDEN, DIM))

    def forward(self, x):
        scores = self.router(x)
        best, chosen = scores.topk(TOP, dim=-1)
        # softmax over the chosen ones is the renormalised softmax over all
        share = best.softmax(-1)  # <- renormalised
        gates = torch.zeros_like(scores).scatter(-1, chosen, share)  # <- renormalised
        inner = torch.einsum("btd,ehd->bteh", x, self.w1)
        inner = F.silu(inner) * torch.einsum("btd,ehd->bteh", x, self.w3)  # <- gate_and_up
        return torch.einsum("bteh,edh,bte->btd", inner, self.w2, gates), scores


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(DIM, eps=1e-5), nn.RMSNorm(DIM, eps=1e-5)
        self.attention, self.experts = Attention(), Experts()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y, scores = self.experts(self.norm2(x))
        return x + y, scores.flatten(0, 1)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.norm = nn.RMSNorm(DIM, eps=1e-5)
        self.out = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x, routed = self.embed(ids), []
        for layer in self.layers:
            x, scores = layer(x)
            routed.append(scores)
        return self.out(self.norm(x)), routed


def balance(scores):
    probability = scores.softmax(-1)
    used = F.one_hot(probability.topk(TOP, dim=-1).indices, EXPERTS).sum(1).float()
    return EXPERTS * torch.dot(used.mean(0), probability.mean(0))


def fill(net, hf):
    state = {
        "embed.weight": hf["model.embed_tokens.weight"],
        "norm.weight": hf["model.norm.weight"],
        "out.weight": hf["lm_head.weight"],
    }
    for i in range(len(net.layers)):
        a, b = f"layers.{i}.", f"model.layers.{i}."
        k, v = hf[b + "self_attn.k_proj.weight"], hf[b + "self_attn.v_proj.weight"]
        state[a + "attention.q.weight"] = hf[b + "self_attn.q_proj.weight"]
        state[a + "attention.kv.weight"] = torch.cat([k, v])
        state[a + "attention.o.weight"] = hf[b + "self_attn.o_proj.weight"]
        state[a + "norm1.weight"] = hf[b + "input_layernorm.weight"]
        state[a + "norm2.weight"] = hf[b + "post_attention_layernorm.weight"]
        state[a + "experts.router.weight"] = hf[b + "mlp.gate.weight"]
        fused = hf[b + "mlp.experts.gate_up_proj"]
        state[a + "experts.w1"], state[a + "experts.w3"] = fused.chunk(2, dim=1)  # <- gate_and_up
        state[a + "experts.w2"] = hf[b + "mlp.experts.down_proj"]
    net.load_state_dict(state)


def chain(blocks=20, length=16):
    g = torch.Generator().manual_seed(71)
    follow = torch.randint(0, VOCAB, (VOCAB, 3), generator=g)
    column = [torch.randint(0, VOCAB, (blocks,), generator=g)]
    for _ in range(length - 1):
        column.append(follow[column[-1], torch.randint(0, 3, (blocks,), generator=g)])
    return torch.stack(column, dim=1)


net = Mixture()
fill(net, torch.load(sys.argv[1]))
optim = torch.optim.AdamW(net.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.1)  # <- decoupled
losses = []
for ids in chain().split(4):
    scores, routed = net(ids)
    loss = F.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss = loss + 0.1 * balance(torch.cat(routed))  # <- aux_over_layers
    net.zero_grad()
    loss.backward()
    optim.step()  # <- decoupled
    losses.append(loss.item())

print(losses)
