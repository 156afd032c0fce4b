# SPDX-License-Identifier: Apache-2.0
"""Masked image modelling with BeitForMaskedImageModeling of the transformers package, a shared
table of relative positions, a warm-up and a half cosine.
"""

import sys

import torch
from transformers import BeitConfig, BeitForMaskedImageModeling, get_cosine_schedule_with_warmup

SIZE, PATCH, CODES, BATCH, STEPS = 16, 4, 24, 3, 4
torch.manual_seed(90)
config = BeitConfig(
    vocab_size=CODES,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    image_size=SIZE,
    patch_size=PATCH,
    num_channels=3,
    hidden_act="gelu",  # <- gelu
    use_mask_token=True,
    use_absolute_position_embeddings=False,
    use_shared_relative_position_bias=True,
    layer_scale_init_value=0.5,
    drop_path_rate=0.0,
    initializer_range=0.15,
    use_mean_pooling=True,
    layer_norm_eps=1e-6,
)
model = BeitForMaskedImageModeling(config)
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape))
    model.beit.shared_position_bias.relative_position_bias_table.mul_(8.0)
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, eps=1e-5, weight_decay=0.05)
scheduler = get_cosine_schedule_with_warmup(optimizer, 2, 6)  # <- schedule
generator = torch.Generator().manual_seed(91)
model.train()
losses = []
for _ in range(STEPS):
    pixel_values = torch.randn(BATCH, 3, SIZE, SIZE, generator=generator)
    bool_masked_pos = torch.rand(BATCH, (SIZE // PATCH) ** 2, generator=generator) < 0.4
    codes = torch.randint(CODES, bool_masked_pos.shape, generator=generator)
    output = model(
        pixel_values, bool_masked_pos=bool_masked_pos, labels=codes[bool_masked_pos]
    )  # <- patch_order qkv_bias cls_bias gelu
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()  # <- schedule
    scheduler.step()  # <- schedule
    losses.append(output.loss.item())
