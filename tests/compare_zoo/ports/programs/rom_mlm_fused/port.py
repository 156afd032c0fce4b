# SPDX-License-Identifier: Apache-2.0
"""Masked LM in the compact style: fused qkv, SDPA, loss at the picked tokens only, a scratch AdamW."""
import sys

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

D, H, L, V, S, B = 24, 3, 2, 40, 14, 4


def norm(x, wb):
    return F.layer_norm(x, (D,), wb[0], wb[1], 1e-12)


class Encoder(nn.Module):
    """All layers of a kind in one stacked tensor; norms are (2, D): scale and shift."""

    def __init__(self, sd):
        super().__init__()
        new = lambda t: nn.Parameter(t.clone())
        cat = lambda i, kind: torch.cat([sd[f"layer.{i}.{n}.{kind}"] for n in ("query", "key", "value")])
        stack = lambda name: new(torch.stack([sd[f"layer.{i}.{name}"] for i in range(L)]))
        pair = lambda name: torch.stack([sd[name + ".weight"], sd[name + ".bias"]])
        self.tok = new(sd["embeddings.word_embeddings.weight"])
        self.pos = new(sd["embeddings.position_embeddings.weight"])
        self.seg = new(sd["embeddings.token_type_embeddings.weight"])
        self.wqkv = new(torch.stack([cat(i, "weight") for i in range(L)]))
        self.bqkv = new(torch.stack([cat(i, "bias") for i in range(L)]))
        self.wo, self.bo = stack("attn_out.weight"), stack("attn_out.bias")
        self.w1, self.b1 = stack("intermediate.weight"), stack("intermediate.bias")
        self.w2, self.b2 = stack("output.weight"), stack("output.bias")
        self.ln_a = new(torch.stack([pair(f"layer.{i}.attn_norm") for i in range(L)]))
        self.ln_f = new(torch.stack([pair(f"layer.{i}.out_norm") for i in range(L)]))
        self.ln_e, self.ln_h = new(pair("embeddings.LayerNorm")), new(pair("transform_norm"))
        self.wh, self.bh = new(sd["transform.weight"]), new(sd["transform.bias"])
        self.b_vocab = new(sd["decoder.bias"])

    def embed(self, tokens, segments):
        where = torch.arange(tokens.shape[1])  # <- position_offset
        words = F.embedding(tokens, self.tok, padding_idx=0)
        x = words + self.pos[where] + torch.lerp(self.seg[0], self.seg[1], segments[..., None].float())  # <- position_offset
        return norm(x, self.ln_e)

    def attend(self, i, x, keep):
        q, k, v = F.linear(x, self.wqkv[i], self.bqkv[i]).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (H, D // H)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)  # <- padding_seen
        return F.linear(y.transpose(1, 2).flatten(2), self.wo[i], self.bo[i])

    def forward(self, tokens, segments, lengths, where, what):
        x = self.embed(tokens, segments)
        keep = (torch.arange(tokens.shape[1]) < lengths[:, None])[:, None, None]  # <- padding_seen
        for i in range(L):
            x = norm(x + self.attend(i, x, keep), self.ln_a[i])
            hidden = F.gelu(F.linear(x, self.w1[i], self.b1[i]))
            x = norm(x + F.linear(hidden, self.w2[i], self.b2[i]), self.ln_f[i])
        x = x[where]
        x = norm(F.gelu(F.linear(x, self.wh, self.bh)), self.ln_h)
        table = self.tok.t()  # <- decoder_detached
        scores = x @ table + self.b_vocab  # <- decoder_detached
        return (scores.logsumexp(-1) - scores.gather(-1, what[:, None])[:, 0]).mean()


def stream(n):
    """The same batches: tokens, segments, lengths, and where and what the hidden tokens are."""
    g = torch.Generator().manual_seed(8)
    for _ in range(n):
        tokens = torch.randint(2, V, (B, S), generator=g)
        lengths = torch.randint(S // 2, S + 1, (B,), generator=g)
        at = torch.arange(S).expand(B, S)
        inside = at < lengths[:, None]
        hide = torch.rand(B, S, generator=g).lt(0.3) & inside
        hide |= at == 1
        segments = ((at >= torch.div(lengths, 2, rounding_mode="floor")[:, None]) & inside).long()
        shown = torch.where(hide, 1, torch.where(inside, tokens, 0))
        yield shown, segments, lengths, hide, tokens[hide]


class Decoupled:
    """AdamW with a decay for the weight tables only and a schedule of its own."""

    def __init__(self, named, peak=6e-3, decay=0.1):
        self.named, self.peak, self.decay, self.t = list(named), peak, decay, 0
        self.mean = [torch.zeros_like(p) for _, p in self.named]
        self.sq = [torch.zeros_like(p) for _, p in self.named]

    def rate(self, done):
        return self.peak * (done / 2 if done < 2 else max(0.0, (8 - done) / 6))  # <- warmup_plus_one

    def decayed(self, name):
        return name.startswith("w") or name in ("tok", "pos", "seg")  # <- decay_everything

    @torch.no_grad()
    def step(self):
        lr = self.rate(self.t)  # <- warmup_plus_one
        self.t += 1
        for (name, p), m, s in zip(self.named, self.mean, self.sq):
            m.lerp_(p.grad, 0.1)
            s.mul_(0.98).addcmul_(p.grad, p.grad, value=0.02)
            if self.decayed(name):
                p.mul_(1 - lr * self.decay)  # <- decay_everything
            p.sub_(lr * (m / (1 - 0.9**self.t)) / ((s / (1 - 0.98**self.t)).sqrt() + 1e-6))  # <- warmup_plus_one
            p.grad = None


net = Encoder(torch.load(sys.argv[1]))
opt = Decoupled(net.named_parameters())
losses = []
for batch in stream(5):
    loss = net(*batch)
    loss.backward()
    opt.step()  # <- decay_everything warmup_plus_one
    losses.append(loss.item())
print(losses)
