# SPDX-License-Identifier: Apache-2.0
"""Noise-prediction training of a tiny diffusers UNet2DModel with DDPM noising, clipping and warm-up."""
import sys

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup

torch.set_num_threads(1)

SIDE, BATCH, STEPS = 8, 4, 5

torch.manual_seed(101)
model = UNet2DModel(
    sample_size=SIDE,
    in_channels=2,
    out_channels=2,
    block_out_channels=(8, 16),
    layers_per_block=1,
    norm_num_groups=4,
    attention_head_dim=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    dropout=0.0,
)
torch.save(model.state_dict(), sys.argv[1])
model.train()

noise_scheduler = DDPMScheduler(num_train_timesteps=100, beta_start=1e-3, beta_end=0.05)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2, eps=1e-6)
lr_scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=2, num_training_steps=8)


def batches(seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        clean = torch.rand(BATCH, 2, SIDE, SIDE, generator=g) * 2 - 1
        noise = torch.randn(clean.shape, generator=g)
        timesteps = torch.randint(0, 100, (BATCH,), generator=g)
        yield clean, noise, timesteps


losses = []
for clean, noise, timesteps in batches(500):
    noisy = noise_scheduler.add_noise(clean, noise, timesteps)
    noise_pred = model(noisy, timesteps, return_dict=False)[0]
    loss = F.mse_loss(noise_pred, noise)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    lr_scheduler.step()
    optimizer.zero_grad()
    losses.append(loss.detach().item())

print(losses)
