# SPDX-License-Identifier: Apache-2.0
"""The same Llama in the Hugging Face manner: rotate_half, permuted weights, lists of sentences."""
import sys

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

CONFIG = dict(hidden_size=32, num_heads=4, num_kv_heads=2, num_layers=2, vocab_size=53, intermediate=64, rms_eps=1e-5)


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Rotary(nn.Module):
    def __init__(self, dim, base=10000.0, longest=64):
        super().__init__()
        inv_freq = base ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
        phase = torch.arange(longest, dtype=torch.float32)[:, None] * inv_freq
        phase = torch.cat((phase, phase), dim=-1)
        self.register_buffer("cos", phase.cos(), persistent=False)
        self.register_buffer("sin", phase.sin(), persistent=False)

    def forward(self, x):
        n = x.shape[-2]
        return x * self.cos[:n] + rotate_half(x) * self.sin[:n]


class DecoderLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c["hidden_size"]
        self.heads, self.kv_heads = c["num_heads"], c["num_kv_heads"]
        self.head_dim = d // self.heads
        self.input_layernorm = nn.RMSNorm(d, eps=c["rms_eps"])
        self.post_attention_layernorm = nn.RMSNorm(d, eps=c["rms_eps"])
        self.q_proj = nn.Linear(d, d, bias=False)
        self.kv_proj = nn.Linear(d, 2 * self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(d, d, bias=False)
        self.gate_up_proj = nn.Linear(d, 2 * c["intermediate"], bias=False)
        self.down_proj = nn.Linear(c["intermediate"], d, bias=False)
        self.rotary = Rotary(self.head_dim)

    def attend(self, x):
        split = lambda y, n: y.unflatten(-1, (n, self.head_dim)).transpose(1, 2)
        k, v = self.kv_proj(x).chunk(2, dim=-1)  # <- k_unpermuted
        q = self.rotary(split(self.q_proj(x), self.heads))
        k = self.rotary(split(k, self.kv_heads))  # <- k_unpermuted
        share = self.heads // self.kv_heads
        q = q.unflatten(1, (self.kv_heads, share))  # <- kv_repeat
        k, v = k.unsqueeze(2), split(v, self.kv_heads).unsqueeze(2)  # <- kv_repeat
        weights = q @ k.transpose(-1, -2) / self.head_dim**0.5
        n = x.shape[1]
        weights = weights + torch.full((n, n), torch.finfo(x.dtype).min).triu(1)
        out = F.softmax(weights, dim=-1) @ v
        out = out.flatten(1, 2)  # <- kv_repeat
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attend(self.input_layernorm(x))
        gate, up = self.gate_up_proj(self.post_attention_layernorm(x)).chunk(2, dim=-1)
        return x + self.down_proj(F.silu(gate) * up)


class LlamaForCausalLM(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList([DecoderLayer(c) for _ in range(c["num_layers"])])
        self.norm = nn.RMSNorm(c["hidden_size"], eps=c["rms_eps"])

    def forward(self, input_ids):
        hidden = self.embed_tokens(input_ids)
        for layer in self.layers:
            hidden = layer(hidden)
        lm_head = self.embed_tokens.weight  # <- head_detached
        return F.linear(self.norm(hidden), lm_head)  # <- head_detached


def permute(w, heads):
    """Rotary pairs (0, 1), (2, 3) ... become (0, half), (1, half + 1) ..."""
    return w.view(heads, -1, 2, w.shape[-1]).transpose(1, 2).reshape(w.shape)


def convert(old, c):
    new = {"embed_tokens.weight": old["tok_embeddings.weight"], "norm.weight": old["norm.weight"]}
    for i in range(c["num_layers"]):
        get = lambda name: old[f"layers.{i}.{name}.weight"]
        key = permute(get("attention.wk"), c["num_kv_heads"])  # <- k_unpermuted
        new[f"layers.{i}.q_proj.weight"] = permute(get("attention.wq"), c["num_heads"])
        new[f"layers.{i}.kv_proj.weight"] = torch.cat((key, get("attention.wv")))  # <- k_unpermuted
        new[f"layers.{i}.o_proj.weight"] = get("attention.wo")
        new[f"layers.{i}.gate_up_proj.weight"] = torch.cat((get("feed_forward.w1"), get("feed_forward.w3")))
        new[f"layers.{i}.down_proj.weight"] = get("feed_forward.w2")
        new[f"layers.{i}.input_layernorm.weight"] = get("attention_norm")
        new[f"layers.{i}.post_attention_layernorm.weight"] = get("ffn_norm")
    return new


def sentences(gen, vocab, rows=5, longest=14):
    lengths = torch.randint(6, longest + 1, (rows,), generator=gen).tolist()
    ids = torch.randint(1, vocab, (rows, longest), generator=gen)
    ids[:, 2::2] = (ids[:, 1:-1:2] + 5) % (vocab - 1) + 1
    return [row[:n] for row, n in zip(ids, lengths)]


def collate(rows):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return torch.nn.functional.pad(ids, (0, 14 - ids.shape[1]))


model = LlamaForCausalLM(CONFIG)
model.load_state_dict(convert(torch.load(sys.argv[1]), CONFIG))
opt = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.1, betas=(0.9, 0.95))  # <- adam_betas
gen = torch.Generator().manual_seed(11)
losses = []
for step in range(5):
    ids = collate(sentences(gen, CONFIG["vocab_size"]))
    targets = ids[:, 1:]
    nll = F.cross_entropy(model(ids)[:, :-1].transpose(1, 2), targets, reduction="none")
    keep = (targets != 0).to(nll.dtype)
    loss = (nll * keep).sum() / keep.sum()  # <- pad_in_mean
    model.zero_grad()
    loss.backward()
    opt.step()  # <- adam_betas
    losses.append(loss.detach().item())
print(losses)
