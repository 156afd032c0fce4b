# SPDX-License-Identifier: Apache-2.0
"""The translator from the layers of torch.nn, with packed in_proj and a NoamOpt as in the annotated transformer."""
import math
import re
import sys

import torch
from torch import nn

torch.set_num_threads(1)

PAD, BOS = 72, 72  # <- start_with_eos


def positions(length, dim):
    """Sines in the first half of the columns, cosines in the second."""
    inv = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))
    angle = torch.arange(length, dtype=torch.float64)[:, None] * inv
    table = torch.cat([angle.sin(), angle.cos()], dim=1)  # <- sinusoid_interleaved
    return table.float()


class Translator(nn.Module):
    def __init__(self, vocab=73, dim=32, heads=4, ffn=64, depth=2):
        super().__init__()
        kind = dict(d_model=dim, nhead=heads, dim_feedforward=ffn, dropout=0.0, activation=nn.functional.silu,
                    batch_first=True, norm_first=False)
        self.table = nn.Parameter(torch.empty(vocab, dim))
        self.encoder = nn.ModuleList([nn.TransformerEncoderLayer(**kind) for _ in range(depth)])
        self.decoder = nn.ModuleList([nn.TransformerDecoderLayer(**kind) for _ in range(depth)])
        self.register_buffer("out_bias", torch.zeros(vocab))
        self.register_buffer("pe", positions(32, dim), persistent=False)  # <- sinusoid_interleaved

    def embed(self, ids):
        rows = nn.functional.embedding(ids, self.table, padding_idx=PAD)  # no gradient into the row of padding
        return rows * math.sqrt(self.table.shape[1]) + self.pe[: ids.shape[1]]  # <- sinusoid_interleaved

    def forward(self, src, src_pad, tgt):
        memory = self.embed(src)
        for layer in self.encoder:
            memory = layer(memory, src_key_padding_mask=src_pad)
        later = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).triu(1)
        x = self.embed(tgt)
        for layer in self.decoder:
            x = layer(x, memory, tgt_mask=later, memory_key_padding_mask=src_pad)
        return torch.addmm(self.out_bias, x.flatten(0, 1), self.table.t()).view(*tgt.shape, -1)  # <- tie_detached


RENAMES = [
    (r"^model\.(encoder|decoder)\.layers", r"\1"),
    (r"self_attn\.out_proj", "self_attn.out_proj"),
    (r"encoder_attn\.", "multihead_attn."),
    (r"self_attn_layer_norm", "norm1"),
    (r"encoder_attn_layer_norm", "norm2"),
    (r"\.fc1\.", ".linear1."),
    (r"\.fc2\.", ".linear2."),
]


def load(model, path):
    """Rename by patterns, then stack q, k and v."""
    got = {"table": None}
    thirds = {}
    for name, value in torch.load(path).items():
        if name == "model.shared.weight":
            got["table"] = value
        elif name == "final_logits_bias":
            got["out_bias"] = value[0]
        elif ".layers." in name:
            norm = "norm3" if name.startswith("model.decoder") else "norm2"
            name = name.replace("final_layer_norm", norm)
            for pattern, new in RENAMES:
                name = re.sub(pattern, new, name)
            hit = re.match(r"(.*)\.([qkv])_proj\.(weight|bias)$", name)
            if hit:
                thirds.setdefault(f"{hit[1]}.in_proj_{hit[3]}", {})[hit[2]] = value
            else:
                got[name] = value
    got.update({k: torch.cat([t["q"], t["k"], t["v"]]) for k, t in thirds.items()})
    model.load_state_dict(got)


class NoamOpt:
    def __init__(self, params, dim, factor, warmup):
        self.inner = torch.optim.Adam(params, lr=0.0, betas=(0.9, 0.98), eps=1e-9)
        self.dim, self.factor, self.warmup, self.count = dim, factor, warmup, 0  # <- noam_shift

    def step(self):
        """Set the rate of this update, update, clear."""
        self.count += 1  # <- noam_shift
        rate = self.factor * self.dim ** -0.5 * min(self.count ** -0.5, self.count * self.warmup ** -1.5)
        for group in self.inner.param_groups:
            group["lr"] = rate
        self.inner.step()  # <- noam_shift
        self.inner.zero_grad()


class SmoothedLoss(nn.Module):
    def __init__(self, smoothing, pad):
        super().__init__()
        self.smoothing, self.pad = smoothing, pad

    def forward(self, scores, gold):
        """Mean over the target tokens that are not padding."""
        logp = torch.log_softmax(scores, -1)
        keep = gold.ne(self.pad).float()
        hit = logp.gather(-1, gold.unsqueeze(-1)).squeeze(-1)
        each = (1 - self.smoothing) * hit + self.smoothing * logp.mean(-1)
        return -(each * keep).sum() / keep.sum()  # <- mean_over_padding


def sentences(rng, eos=0):
    while True:
        n = torch.randint(3, 10, (1,), generator=rng).item()
        yield torch.randint(1, 72, (n,), generator=rng).tolist() + [eos]


def tensor_of(rows, fill):
    width = max(map(len, rows))
    return torch.tensor([r + [fill] * (width - len(r)) for r in rows])


model = Translator()
load(model, sys.argv[1])
model.train()
criterion = SmoothedLoss(0.1, PAD)
opt = NoamOpt(model.parameters(), dim=32, factor=0.1, warmup=4)
flow = sentences(torch.Generator().manual_seed(5))

losses = []
for _ in range(5):
    rows = [next(flow) for _ in range(8)]
    src, tgt = tensor_of(rows[0::2], PAD), tensor_of([[BOS] + r for r in rows[1::2]], PAD)  # <- start_with_eos
    loss = criterion(model(src, src == PAD, tgt[:, :-1]), tgt[:, 1:])  # <- start_with_eos mean_over_padding
    loss.backward()
    opt.step()
    losses.append(loss.item())

print(losses)
