# SPDX-License-Identifier: Apache-2.0
"""CLIP in the open_clip manner: one Tower for both sides, projections as matrices, logits both ways."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)  # <- quick_gelu


class Resblock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 2 * width)
        self.act = QuickGELU()  # <- quick_gelu
        self.c_proj = nn.Linear(2 * width, width)

    def forward(self, x, mask):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False, attn_mask=mask)[0]
        return x + self.c_proj(self.act(self.c_fc(self.ln_2(x))))  # <- quick_gelu


class Tower(nn.Module):
    """Sequence-first residual blocks, then a norm and a projection."""

    def __init__(self, positions, heads, width=32, out=16):
        super().__init__()
        self.positional = nn.Parameter(torch.empty(positions, width))
        self.resblocks = nn.ModuleList([Resblock(width, heads) for _ in range(2)])
        self.ln_final = nn.LayerNorm(width)
        self.proj = nn.Parameter(torch.empty(width, out))

    def run(self, x, mask=None):
        x = x.transpose(0, 1)
        for block in self.resblocks:
            x = block(x, mask)
        return x.transpose(0, 1)

    def finish(self, x):
        return F.normalize(self.ln_final(x) @ self.proj, dim=-1)


class Image(Tower):
    def __init__(self):
        super().__init__(positions=5, heads=2)
        self.kernel = nn.Parameter(torch.empty(32, 3 * 8 * 8))
        self.cls = nn.Parameter(torch.empty(32))
        self.ln_pre = nn.LayerNorm(32)

    def forward(self, pixels):
        patches = F.unfold(pixels, 8, stride=8).transpose(1, 2) @ self.kernel.T
        x = torch.cat([self.cls.expand(len(pixels), 1, -1), patches], dim=1) + self.positional
        return self.finish(self.run(self.ln_pre(x))[:, 0])


class Caption(Tower):
    def __init__(self):
        super().__init__(positions=12, heads=4)
        self.words = nn.Parameter(torch.empty(64, 32))

    def forward(self, ids, end):
        causal = torch.ones(12, 12, dtype=torch.bool).triu(1)
        x = self.run(self.words[ids] + self.positional, causal)
        return self.finish(x[torch.arange(len(ids)), end])  # <- eos_pool


def convert(sd):
    new = {"log_scale": sd["logit_scale"]}
    for side, hf in (("image", "vision_model"), ("text", "text_model")):
        last = "post_layernorm" if side == "image" else "final_layer_norm"
        renames = {f"{hf}.{last}": "ln_final"}
        new[f"{side}.proj"] = sd["visual_projection.weight" if side == "image" else "text_projection.weight"].T
        new[f"{side}.positional"] = sd[f"{hf}.embeddings.position_embedding.weight"]
        for i in range(2):
            base, block = f"{hf}.encoder.layers.{i}", f"resblocks.{i}"
            renames |= {f"{base}.layer_norm1": f"{block}.ln_1", f"{base}.layer_norm2": f"{block}.ln_2",
                        f"{base}.mlp.fc1": f"{block}.c_fc", f"{base}.mlp.fc2": f"{block}.c_proj",
                        f"{base}.self_attn.out_proj": f"{block}.attn.out_proj"}
            for kind in ("weight", "bias"):
                qkv = [sd[f"{base}.self_attn.{n}_proj.{kind}"] for n in "qkv"]
                new[f"{side}.{block}.attn.in_proj_{kind}"] = torch.cat(qkv)
        if side == "image":
            renames[f"{hf}.pre_layrnorm"] = "ln_pre"
            new["image.cls"] = sd[f"{hf}.embeddings.class_embedding"]
            new["image.kernel"] = sd[f"{hf}.embeddings.patch_embedding.weight"].flatten(1)
        else:
            new["text.words"] = sd[f"{hf}.embeddings.token_embedding.weight"]
        for old, name in renames.items():
            for kind in ("weight", "bias"):
                new[f"{side}.{name}.{kind}"] = sd[f"{old}.{kind}"]
    return new


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = Image(), Caption()
        self.log_scale = nn.Parameter(torch.tensor(0.0))


def dataset(total=30):
    g = torch.Generator().manual_seed(770)
    pixels = torch.randint(0, 256, (total, 3, 16, 16), generator=g, dtype=torch.uint8)
    words = torch.randint(2, 64, (total, 12), generator=g)
    words = torch.where(words == 60, 2, words)
    n = torch.randint(3, 10, (total, 1), generator=g)
    place = torch.arange(12)
    ids = words.roll(1, dims=1).masked_fill(place == 0, 62)
    ids = torch.where(place == n + 1, 60, ids).masked_fill(place > n + 1, 1)
    return pixels, ids, n.squeeze(1) + 1  # <- eos_pool


MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(3, 1, 1) * 255  # <- pixel_stats
STD = torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(3, 1, 1) * 255  # <- pixel_stats

clip = Clip()
clip.load_state_dict(convert(torch.load(sys.argv[1])))
params = list(clip.parameters())
matrices = [p for p in params if p.ndim > 1]
adam = torch.optim.Adam(params, lr=2e-3, betas=(0.9, 0.98), eps=1e-6)
pixels, ids, ends = dataset()

losses = []
for pick in torch.arange(30).split(6):
    seen = clip.image((pixels[pick] - MEAN) / STD)  # <- pixel_stats
    told = clip.text(ids[pick], ends[pick])  # <- eos_pool
    table = clip.log_scale.exp() * seen @ told.T
    by_image = -table.log_softmax(1).diagonal().mean()
    by_text = -table.log_softmax(0).diagonal().mean()  # <- one_sided
    loss = 0.5 * (by_image + by_text)  # <- one_sided
    adam.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, 2.0)
    with torch.no_grad():
        for p in matrices:
            p.mul_(1 - 2e-3 * 0.2)  # <- coupled_decay
    adam.step()  # <- coupled_decay
    losses.append(loss.item())
print(losses)
