# SPDX-License-Identifier: Apache-2.0
"""BART written with einsum over per-head kernels (query, key and value stacked); the batch is a named tuple."""
import sys
from collections import namedtuple

import torch
from torch import einsum, nn

torch.set_num_threads(1)

Batch = namedtuple("Batch", "src src_ok tgt_in tgt_out")


class HeadKernels(nn.Module):
    """Attention with kernels [3, heads, width, head_size], then LayerNorm of the sum."""

    def __init__(self, width, heads):
        super().__init__()
        size = width // heads
        self.kernels = nn.Parameter(torch.zeros(3, heads, width, size))
        self.offsets = nn.Parameter(torch.zeros(3, heads, 1, size))
        self.mix = nn.Parameter(torch.zeros(heads, size, width))
        self.mix_offset = nn.Parameter(torch.zeros(width))
        self.norm = nn.LayerNorm(width)
        self.temperature = size**0.5

    def forward(self, x, memory, allowed):
        wq, wk, wv = self.kernels
        bq, bk, bv = self.offsets
        q = einsum("btd,hde->bhte", x, wq) + bq
        k = einsum("bsd,hde->bhse", memory, wk) + bk
        v = einsum("bsd,hde->bhse", memory, wv) + bv
        logits = einsum("bhte,bhse->bhts", q, k) / self.temperature
        weights = logits.masked_fill(~allowed, -1e30).softmax(-1)  # <- memory_unmasked
        mixed = einsum("bhts,bhse,hed->btd", weights, v, self.mix)
        return self.norm(x + mixed + self.mix_offset)


class FeedForward(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.body(x))


class Side(nn.Module):
    def __init__(self, width, heads, inner, depth, kinds):
        super().__init__()
        self.places = nn.Parameter(torch.zeros(18, width))
        self.norm = nn.LayerNorm(width)
        make = {"self_attn": lambda: HeadKernels(width, heads), "encoder_attn": lambda: HeadKernels(width, heads)}
        make["ffn"] = lambda: FeedForward(width, inner)
        self.layers = nn.ModuleList(nn.ModuleDict({k: make[k]() for k in kinds}) for _ in range(depth))

    def start(self, vectors):
        positions = torch.arange(vectors.shape[1]) + 2  # <- positions_from_zero
        return self.norm(vectors + self.places[positions])  # <- positions_from_zero


class Seq2Seq(nn.Module):
    def __init__(self, vocab=47, width=32, heads=4):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(vocab, width))
        self.enc = Side(width, heads, 64, 1, ["self_attn", "ffn"])
        self.dec = Side(width, heads, 48, 2, ["self_attn", "encoder_attn", "ffn"])

    def forward(self, batch):
        scale = self.table.shape[1] ** 0.5
        keys = batch.src_ok[:, None, None, :]
        memory = self.enc.start(self.table[batch.src] * scale)
        for layer in self.enc.layers:
            memory = layer["ffn"](layer["self_attn"](memory, memory, keys))
        y = self.dec.start(self.table[batch.tgt_in] * scale)
        past = torch.ones(y.shape[1], y.shape[1], dtype=torch.bool).tril()
        for layer in self.dec.layers:
            y = layer["self_attn"](y, y, past)
            y = layer["encoder_attn"](y, memory, keys)  # <- memory_unmasked
            y = layer["ffn"](y)
        return einsum("btd,vd->btv", y, self.table)  # <- head_detached


@torch.no_grad()
def fill(net, src):
    net.table.copy_(src["model.shared.weight"])
    for side, prefix in ((net.enc, "model.encoder."), (net.dec, "model.decoder.")):
        side.places.copy_(src[prefix + "embed_positions.weight"])
        copy_pair(side.norm, src, prefix + "layernorm_embedding")
        for i, layer in enumerate(side.layers):
            base = f"{prefix}layers.{i}."
            for kind in layer.keys() - {"ffn"}:
                att, at = layer[kind], base + kind + "."
                for j, letter in enumerate("qkv"):
                    att.kernels[j] = src[f"{at}{letter}_proj.weight"].T.unflatten(1, (4, -1)).transpose(0, 1)
                    att.offsets[j] = src[f"{at}{letter}_proj.bias"].view(4, 1, -1)
                att.mix.copy_(src[at + "out_proj.weight"].T.unflatten(0, (4, -1)))
                att.mix_offset.copy_(src[at + "out_proj.bias"])
                copy_pair(att.norm, src, base + kind + "_layer_norm")
            copy_pair(layer["ffn"].body[0], src, base + "fc1")
            copy_pair(layer["ffn"].body[2], src, base + "fc2")
            copy_pair(layer["ffn"].norm, src, base + "final_layer_norm")


def copy_pair(module, src, name):
    module.weight.copy_(src[name + ".weight"])
    module.bias.copy_(src[name + ".bias"])


def batches(rng, size=5, count=5):
    for _ in range(count):
        rows = [torch.randint(3, 47, (n,), generator=rng) for n in torch.randint(3, 10, (size,), generator=rng).tolist()]
        wide = max(map(len, rows))
        src, goal = torch.full((size, wide + 2), 1), torch.full((size, wide + 1), 1)
        for i, row in enumerate(rows):
            n = len(row)
            src[i, 0], src[i, 1 : n + 1], src[i, n + 1] = 0, row, 2
            goal[i, :n], goal[i, n] = row.sort().values, 2
        begin = torch.full((size, 1), 2)  # <- starts_with_bos
        yield Batch(src, src != 1, torch.cat([begin, goal[:, :-1]], 1), goal)  # <- starts_with_bos


net = Seq2Seq()
fill(net, torch.load(sys.argv[1]))
adam = torch.optim.Adam(net.parameters(), betas=(0.9, 0.98))

losses = []
for step, batch in enumerate(batches(torch.Generator().manual_seed(43)), start=1):  # <- noam_late
    logp = net(batch).log_softmax(-1).gather(-1, batch.tgt_out[..., None])[..., 0]
    real = batch.tgt_out != 1
    loss = -(logp * real).sum() / real.sum()
    adam.zero_grad()
    loss.backward()  # <- head_detached
    adam.param_groups[0]["lr"] = 0.08 * 32**-0.5 * min(step**-0.5, step / 3**1.5)  # <- noam_late
    adam.step()  # <- noam_late
    losses.append(loss.item())

print(losses)
