# SPDX-License-Identifier: Apache-2.0
"""Pretraining of the ViTMAE of the transformers package, eager attention, normed pixels."""

import sys

import torch
from transformers import ViTMAEConfig, ViTMAEForPreTraining

torch.manual_seed(121)
config = ViTMAEConfig(
    image_size=24,
    patch_size=6,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    decoder_hidden_size=16,
    decoder_num_hidden_layers=1,
    decoder_num_attention_heads=2,
    decoder_intermediate_size=32,
    mask_ratio=0.625,
    norm_pix_loss=True,  # <- variance
    initializer_range=0.2,
    layer_norm_eps=1e-6,
    attn_implementation="eager",
)
model = ViTMAEForPreTraining(config)
with torch.no_grad():
    for weight in model.parameters():
        weight.add_(0.1 * torch.randn(weight.shape))
torch.save(model.state_dict(), sys.argv[1])
learning = [p for p in model.parameters() if p.requires_grad]  # <- places
optimizer = torch.optim.AdamW(
    learning, lr=5e-3, betas=(0.9, 0.95), eps=1e-4, weight_decay=0.05
)  # <- places
generator = torch.Generator().manual_seed(122)
losses = []
model.train()
for _ in range(4):
    coarse = torch.rand(3, 3, 8, 8, generator=generator)
    fine = torch.rand(3, 3, 24, 24, generator=generator)
    pixel_values = torch.nn.functional.interpolate(coarse, 24, mode="nearest") + 0.3 * fine
    noise = torch.rand(3, 16, generator=generator)
    output = model(pixel_values=pixel_values, noise=noise)  # <- order pixels variance hidden
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()  # <- places
    losses.append(output.loss.item())
