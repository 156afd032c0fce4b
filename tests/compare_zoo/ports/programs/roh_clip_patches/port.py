# SPDX-License-Identifier: Apache-2.0
"""CLIP in the open_clip manner: sequence-first towers, fused attention input, patches as matrix rows."""
import re
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class ResidualBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x, mask=None):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, attn_mask=mask, need_weights=False)[0]
        y = self.up(self.ln_2(x))
        return x + self.down(y * torch.sigmoid(1.702 * y))  # <- gelu_exact


class ImageTower(nn.Module):
    def __init__(self, width=32, heads=4, layers=1, out=16):
        super().__init__()
        self.patch = nn.Linear(48, width, bias=False)
        self.cls = nn.Parameter(torch.zeros(width))
        self.place = nn.Parameter(torch.zeros(10, width))
        self.ln_pre, self.ln_post = nn.LayerNorm(width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(ResidualBlock(width, heads) for _ in range(layers))
        self.proj = nn.Parameter(torch.zeros(width, out))

    def forward(self, image):
        patches = F.unfold(image, kernel_size=4, stride=4).permute(2, 0, 1)
        tokens = self.patch(patches)
        x = torch.cat([self.cls.expand(1, tokens.shape[1], -1), tokens]) + self.place[:, None]
        x = self.ln_pre(x)
        for block in self.blocks:
            x = block(x)
        return self.ln_post(x[0]) @ self.proj


class TextTower(nn.Module):
    def __init__(self, vocab=40, width=24, heads=3, layers=2, length=9, out=16):
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.place = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(ResidualBlock(width, heads) for _ in range(layers))
        self.ln_final = nn.LayerNorm(width)
        self.proj = nn.Parameter(torch.zeros(width, out))
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1), persistent=False)

    def forward(self, ids):
        x = self.words(ids.T) + self.place[:, None]
        for block in self.blocks:
            x = block(x, self.mask)
        x = self.ln_final(x)
        return x[ids.argmax(-1), torch.arange(len(ids))] @ self.proj  # <- pooled_at_last


class CLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual, self.text = ImageTower(), TextTower()
        self.logit_scale = nn.Parameter(torch.zeros(()))

    def forward(self, image, ids):
        a = F.normalize(self.visual(image), dim=-1)
        b = F.normalize(self.text(ids), dim=-1)
        return self.logit_scale.exp() * a @ b.T  # <- scale_detached


TABLE = [
    (r"^vision_model\.", "visual."),
    (r"^text_model\.", "text."),
    (r"encoder\.layers\.", "blocks."),
    (r"embeddings\.class_embedding", "cls"),
    (r"embeddings\.patch_embedding", "patch"),
    (r"embeddings\.position_embedding\.weight", "place"),
    (r"embeddings\.token_embedding", "words"),
    (r"pre_layrnorm", "ln_pre"),
    (r"post_layernorm", "ln_post"),
    (r"final_layer_norm", "ln_final"),
    (r"layer_norm(\d)", r"ln_\1"),
    (r"mlp\.fc1", "up"),
    (r"mlp\.fc2", "down"),
    (r"self_attn\.out_proj", "attn.out_proj"),
    (r"^visual_projection\.weight", "visual.proj"),
    (r"^text_projection\.weight", "text.proj"),
]


def from_hf(state):
    new = {}
    for key, value in state.items():
        if "position_ids" in key or re.search(r"\.[kv]_proj\.", key):
            continue
        if ".q_proj." in key:
            value = torch.cat([state[key.replace("q_proj", c + "_proj")] for c in "qkv"])
            key = re.sub(r"self_attn\.q_proj\.", "attn.in_proj_", key)
        for pattern, text in TABLE:
            key = re.sub(pattern, text, key)
        if key.endswith("proj") and value.ndim == 2:
            value = value.T
        if key == "visual.patch.weight":
            value = value.flatten(1)
        new[key] = value
    return new


def dataset():
    rng = torch.Generator().manual_seed(13)
    images, texts = [], torch.ones(30, 9, dtype=torch.long)
    for n in range(30):
        colour = torch.rand(3, 1, 1, generator=rng)
        y, x = (int(v) for v in torch.randint(0, 7, (2,), generator=rng))
        noise = 0.3 * torch.randn(3, 12, 12, generator=rng)
        images.append(noise + colour * F.pad(torch.ones(1, 5, 5), (x, 7 - x, y, 7 - y)))
        extra = torch.randint(20, 38, (int(torch.randint(0, 4, (1,), generator=rng)),), generator=rng)
        words = [38, 2 + int(colour.argmax()), 5 + y, 12 + x, *extra.tolist(), 39]
        texts[n, : len(words)] = torch.tensor(words)
    return torch.stack(images).split(6), texts.split(6)


clip = CLIP()
clip.load_state_dict(from_hf(torch.load(sys.argv[1])))
named = dict(clip.named_parameters())
plain = {n for n in named if n == "logit_scale" or n.endswith((".cls", "bias")) or re.search(r"ln_\w+\.weight", n)}  # <- gains_decayed
groups = [{"params": [p for n, p in named.items() if n not in plain], "weight_decay": 0.2}]  # <- gains_decayed
groups.append({"params": [named[n] for n in sorted(plain)], "weight_decay": 0.0})
opt = torch.optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.98), eps=1e-6, foreach=True)

losses = []
for image, ids in zip(*dataset()):
    logits = clip(image, ids)
    truth = torch.arange(len(logits))
    loss = F.cross_entropy(torch.cat([logits, logits.T]), truth.repeat(2))  # <- images_only
    opt.zero_grad()
    loss.backward()  # <- scale_detached
    opt.step()  # <- gains_decayed
    losses.append(loss.item())

print(losses)
