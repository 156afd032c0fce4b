# SPDX-License-Identifier: Apache-2.0
"""A small CLIP in the manner of open_clip: nn.MultiheadAttention, time first, projections as bare
matrices, a clamped temperature.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, LAYERS, JOINT, PATCH, IMAGE = 24, 3, 2, 24, 4, 12
VOCAB, CONTEXT, SOT, EOT = 40, 10, 38, 39
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


class ResidualAttentionBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, HEADS)
        self.c_fc, self.c_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, attn_mask):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False, attn_mask=attn_mask)[0]
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x))))  # <- gelu


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.resblocks = nn.ModuleList([ResidualAttentionBlock() for _ in range(LAYERS)])

    def forward(self, x, attn_mask=None):
        x = x.transpose(0, 1)
        for block in self.resblocks:
            x = block(x, attn_mask)
        return x.transpose(0, 1)


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTH, PATCH, PATCH, bias=False)
        self.class_embedding = nn.Parameter(0.3 * torch.randn(WIDTH))
        size = (IMAGE // PATCH) ** 2 + 1
        self.positional_embedding = nn.Parameter(0.3 * torch.randn(size, WIDTH))
        self.ln_pre, self.ln_post = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.transformer = Transformer()
        self.proj = nn.Parameter(0.3 * torch.randn(WIDTH, JOINT))

    def forward(self, images):
        x = self.conv1(images).flatten(2).transpose(1, 2)  # <- pixels
        first = self.class_embedding.expand(len(x), 1, -1)
        x = self.ln_pre(torch.cat((first, x), dim=1) + self.positional_embedding)
        return self.ln_post(self.transformer(x)[:, 0]) @ self.proj  # <- projection


class CLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = VisionTransformer()
        self.token_embedding = nn.Embedding(VOCAB, WIDTH)
        self.positional_embedding = nn.Parameter(0.3 * torch.randn(CONTEXT, WIDTH))
        self.transformer = Transformer()
        self.ln_final = nn.LayerNorm(WIDTH)
        self.text_projection = nn.Parameter(0.3 * torch.randn(WIDTH, JOINT))
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.2)))

    def encode_text(self, text):
        x = self.token_embedding(text) + self.positional_embedding
        mask = torch.full((CONTEXT, CONTEXT), -math.inf).triu(1)
        x = self.ln_final(self.transformer(x, mask))
        x = x[torch.arange(len(x)), text.argmax(dim=-1)]  # <- eot
        return x @ self.text_projection

    def forward(self, image, text):
        image = F.normalize(self.visual(image), dim=-1)
        text = F.normalize(self.encode_text(text), dim=-1)
        return self.logit_scale.exp() * image @ text.t()  # <- clamped


def preprocess(pixels):
    mean, std = (torch.tensor(t)[:, None, None] for t in (MEAN, STD))
    return (pixels / 255 - mean) / std  # <- pixels


torch.manual_seed(340)
model = CLIP()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, eps=1e-4, weight_decay=0.0)
generator = torch.Generator().manual_seed(341)
losses = []
for _ in range(4):
    images = torch.randint(0, 256, (4, 3, IMAGE, IMAGE), generator=generator)
    text = torch.randint(1, SOT, (4, CONTEXT), generator=generator)
    ends = torch.randint(3, CONTEXT, (4, 1), generator=generator)
    text = text.scatter(1, ends, EOT).masked_fill(torch.arange(CONTEXT) > ends, 0)
    text[:, 0] = SOT
    logits = model(preprocess(images), text)
    target = torch.arange(4)
    loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        model.logit_scale.clamp_(math.log(5), math.log(100))  # <- clamped
    losses.append(loss.item())
