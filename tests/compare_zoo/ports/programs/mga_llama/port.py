# SPDX-License-Identifier: Apache-2.0
"""The Meta-style reading of the same network: complex rotations, fused projections, own Adam."""
import sys

import torch
import torch.nn.functional as F

DIM, NH, NKV, HD, FF, NL, V, T = 32, 4, 2, 8, 48, 2, 50, 14


def interleave(w):
    """Rows of each head from (first half, second half) to alternating pairs."""
    return w.view(-1, 2, HD // 2, DIM).transpose(1, 2).reshape(-1, DIM)


def convert(path):
    sd = torch.load(path, weights_only=True)
    w = {"tok": sd["embed_tokens.weight"], "norm": sd["norm.weight"], "out": sd["lm_head.weight"]}
    for i in range(NL):
        a, p = f"layers.{i}.self_attn.", f"layers.{i}."
        w[f"{i}.wqkv"] = torch.cat([interleave(sd[a + "q_proj.weight"]),
                                    interleave(sd[a + "k_proj.weight"]), sd[a + "v_proj.weight"]])
        w[f"{i}.wo"] = sd[a + "o_proj.weight"]
        w[f"{i}.w13"] = torch.cat([sd[p + "gate_proj.weight"], sd[p + "up_proj.weight"]])
        w[f"{i}.w2"] = sd[p + "down_proj.weight"]
        w[f"{i}.an"] = sd[p + "input_layernorm.weight"]
        w[f"{i}.fn"] = sd[p + "post_attention_layernorm.weight"]
    return {k: t.clone().requires_grad_() for k, t in w.items()}


def precompute_freqs_cis(dim, end, theta=10000.0):
    freqs = theta ** (-torch.arange(0, dim, 2)[: dim // 2].float() / dim)  # <- rope_table
    t = torch.arange(end).float()
    return torch.polar(torch.ones(end, dim // 2), torch.outer(t, freqs))  # <- rope_table


def rotate(x, freqs_cis):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * freqs_cis[:, None]).flatten(-2)  # <- rope_table


def rms(x, g):
    return F.rms_norm(x, (DIM,), g, eps=1e-5)  # <- rms_eps


def attention(w, i, x, freqs_cis):
    bsz, n, _ = x.shape
    xq, xk, xv = F.linear(x, w[f"{i}.wqkv"]).split([NH * HD, NKV * HD, NKV * HD], dim=-1)
    xq = rotate(xq.view(bsz, n, NH, HD), freqs_cis)
    xk = rotate(xk.view(bsz, n, NKV, HD), freqs_cis)
    xv = xv.view(bsz, n, NKV, HD)
    xq = xq.view(bsz, n, NKV, NH // NKV, HD)  # <- kv_groups
    scores = torch.einsum("bqgrd,bkgd->bgrqk", xq, xk) / HD ** 0.5  # <- kv_groups
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    scores = scores.masked_fill(future, float("-inf"))
    out = torch.einsum("bgrqk,bkgd->bqgrd", scores.softmax(-1), xv)  # <- kv_groups
    return F.linear(out.flatten(2), w[f"{i}.wo"])  # <- kv_groups


def forward(w, tokens, freqs_cis):
    h = F.embedding(tokens, w["tok"])
    for i in range(NL):
        h = h + attention(w, i, rms(h, w[f"{i}.an"]), freqs_cis[: tokens.shape[1]])
        gate, up = F.linear(rms(h, w[f"{i}.fn"]), w[f"{i}.w13"]).chunk(2, dim=-1)
        h = h + F.linear(gate * torch.sigmoid(gate) * up, w[f"{i}.w2"])
    return F.linear(rms(h, w["norm"]), w["out"])


class Adam:
    def __init__(self, params, lr, b1=0.9, b2=0.95, eps=1e-8):  # <- beta_two
        self.params, self.lr, self.b1, self.b2, self.eps, self.t = params, lr, b1, b2, eps, 0
        self.m = [torch.zeros_like(p) for p in params]
        self.v = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def update(self, grads):
        self.t += 1
        for p, g, m, v in zip(self.params, grads, self.m, self.v):
            m.mul_(self.b1).add_(g, alpha=1 - self.b1)
            v.mul_(self.b2).addcmul_(g, g, value=1 - self.b2)  # <- beta_two
            mhat = m / (1 - self.b1 ** self.t)
            vhat = v / (1 - self.b2 ** self.t)  # <- beta_two
            p -= self.lr * mhat / (vhat.sqrt() + self.eps)  # <- beta_two


weights = convert(sys.argv[1])
table = precompute_freqs_cis(HD, 32)
params = list(weights.values())
adam = Adam(params, lr=5e-3)
gen = torch.Generator().manual_seed(11)
losses = []
for _ in range(4):
    tokens = torch.randint(3, V, (4, T), generator=gen)
    prompt_len = torch.randint(2, 7, (4, 1), generator=gen)
    logp = forward(weights, tokens[:, :-1], table).log_softmax(-1)
    nll = -logp.gather(-1, tokens[:, 1:, None]).squeeze(-1)
    keep = (torch.arange(1, T) >= prompt_len).float()  # <- prompt_mask
    loss = (nll * keep).sum() / keep.sum()  # <- prompt_mask
    adam.update(torch.autograd.grad(loss, params))  # <- beta_two
    losses.append(loss.item())
print(losses)
