# SPDX-License-Identifier: Apache-2.0
"""The Llama in the first authors' layout (fused matrices, RoPE by pairs, scaled_dot_product_attention), compiled."""
import sys
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

torch.set_num_threads(1)


class Args(NamedTuple):
    vocab: int = 64
    dim: int = 32
    n_heads: int = 4
    n_kv: int = 2
    n_layers: int = 1
    ffn: int = 48
    seq: int = 16

    @property
    def head(self):
        return self.dim // self.n_heads


def rms(x, gain):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], gain, 1e-5)


def rotary(x, table):
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)  # <- rope_layout
    c, s = table[:, None].unbind(-1)
    return torch.stack((even * c - odd * s, even * s + odd * c), -1).flatten(-2)  # <- rope_layout


class TransformerBlock(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.wqkv = nn.Linear(a.dim, (a.n_heads + 2 * a.n_kv) * a.head, bias=False)
        self.wo = nn.Linear(a.dim, a.dim, bias=False)
        self.w13, self.w2 = nn.Linear(a.dim, 2 * a.ffn, bias=False), nn.Linear(a.ffn, a.dim, bias=False)
        self.attention_norm, self.ffn_norm = nn.Parameter(torch.ones(a.dim)), nn.Parameter(torch.ones(a.dim))

    def widen(self, t):
        return t.repeat_interleave(self.a.n_heads // self.a.n_kv, dim=2)  # <- kv_repeat

    def forward(self, x, table, visible):
        a = self.a
        joint = self.wqkv(rms(x, self.attention_norm)).unflatten(-1, (-1, a.head))
        q, k, v = joint.split((a.n_heads, a.n_kv, a.n_kv), dim=2)
        q, k, v = rotary(q, table), self.widen(rotary(k, table)), self.widen(v)  # <- kv_repeat
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        mixed = scaled_dot_product_attention(q, k, v, attn_mask=visible)  # <- packing_mask
        x = x + self.wo(mixed.transpose(1, 2).flatten(2))
        gate, up = self.w13(rms(x, self.ffn_norm)).chunk(2, -1)
        return x + self.w2(silu(gate) * up)


class Transformer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.tok_embeddings = nn.Embedding(a.vocab, a.dim)
        self.blocks = nn.ModuleList(TransformerBlock(a) for _ in range(a.n_layers))
        self.norm = nn.Parameter(torch.ones(a.dim))
        self.output = nn.Linear(a.dim, a.vocab, bias=False)
        angle = torch.arange(a.seq)[:, None] / 10000.0 ** (torch.arange(0, a.head, 2) / a.head)
        self.register_buffer("table", torch.stack((angle.cos(), angle.sin()), -1), persistent=False)
        self.register_buffer("causal", torch.ones(a.seq, a.seq, dtype=torch.bool).tril(), persistent=False)

    def forward(self, tokens, docs):
        same = docs.unsqueeze(2) == docs.unsqueeze(1)  # <- packing_mask
        visible = (self.causal & same).unsqueeze(1)  # <- packing_mask
        x = self.tok_embeddings(tokens)
        for block in self.blocks:
            x = block(x, self.table, visible)
        return self.output(rms(x, self.norm))


def pairs(w, a):
    """Rows by halves become rows by neighbours, head by head."""
    return w.view(-1, 2, a.head // 2, a.dim).transpose(1, 2).reshape(w.shape)  # <- rope_layout


def convert(sd, a):
    out = {"tok_embeddings.weight": sd["embed_tokens.weight"], "norm": sd["norm.weight"], "output.weight": sd["lm_head.weight"]}
    for i in range(a.n_layers):
        old = {k.removeprefix(f"layers.{i}."): v for k, v in sd.items() if k.startswith(f"layers.{i}.")}
        q, k, v, o = (old[f"self_attn.{n}_proj.weight"] for n in "qkvo")
        new = {"wqkv.weight": torch.cat((pairs(q, a), pairs(k, a), v)), "wo.weight": o,  # <- rope_layout
               "w13.weight": torch.cat((old["gate_proj.weight"], old["up_proj.weight"])), "w2.weight": old["down_proj.weight"],
               "attention_norm": old["input_layernorm.weight"], "ffn_norm": old["post_attention_layernorm.weight"]}
        out.update({f"blocks.{i}.{k}": v for k, v in new.items()})
    return out


def token_losses(logits, targets):
    return logits.logsumexp(-1) - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def stream(a, steps):
    g = torch.Generator().manual_seed(6)

    def micro(share):
        tokens = torch.randint(0, a.vocab, (3, a.seq + 1), generator=g)
        docs = (torch.rand(3, a.seq + 1, generator=g) < 0.15).cumsum(1)
        keep = (torch.rand(3, a.seq, generator=g) < share) & (docs.diff(dim=1) == 0)
        return tokens[:, :-1].contiguous(), docs[:, :-1].contiguous(), tokens[:, 1:].contiguous(), keep

    for _ in range(steps):
        yield [micro(0.9), micro(0.3)]


args = Args()
network = Transformer(args)
network.load_state_dict(convert(torch.load(sys.argv[1]), args))
model = torch.compile(network, backend="inductor")
optimizer = torch.optim.AdamW(network.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.1)

losses = []
for micros in stream(args, 5):
    count = sum(int(keep.sum()) for *_, keep in micros)  # <- accumulation_mean
    seen = 0.0
    for tokens, docs, targets, keep in micros:
        part = token_losses(model(tokens, docs), targets)[keep].sum() / count  # <- accumulation_mean
        part.backward()  # <- zero_grad_in_loop
        seen += part.item()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)  # <- zero_grad_in_loop
    losses.append(seen)
print(losses)
