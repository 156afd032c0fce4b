# SPDX-License-Identifier: Apache-2.0
"""SigLIP of the transformers package, two tiny towers trained on pairs of images and captions."""

import sys

import torch
from transformers import SiglipConfig, SiglipModel

torch.manual_seed(50)
config = SiglipConfig(
    text_config={
        "vocab_size": 43,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "max_position_embeddings": 10,
        "projection_size": 24,
    },
    vision_config={
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 12,
        "patch_size": 4,
    },
)
model = SiglipModel(config)
with torch.no_grad():
    for name, p in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            p.add_(0.2 * torch.randn_like(p))
    model.logit_scale.fill_(1.5)
    model.logit_bias.fill_(-2.0)
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.AdamW(
    model.parameters(), lr=5e-3, betas=(0.9, 0.95), eps=1e-5, weight_decay=1e-4
)
generator = torch.Generator().manual_seed(51)
losses = []
for _ in range(4):
    batch = {
        "pixel_values": torch.randn(6, 3, 12, 12, generator=generator).clamp(-1, 1),
        "input_ids": torch.randint(2, 43, (6, 10), generator=generator),
    }
    output = model(**batch, return_loss=True)  # <- residual pooled gelu diagonal patches
    optimizer.zero_grad()
    output.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- clip
    optimizer.step()
    losses.append(output.loss.item())
