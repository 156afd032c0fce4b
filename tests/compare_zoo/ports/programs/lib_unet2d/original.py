# SPDX-License-Identifier: Apache-2.0
"""Training UNet2DModel of diffusers for velocities with min-SNR weights, then one sampling step."""

import sys

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DModel

torch.manual_seed(350)
model = UNet2DModel(
    sample_size=12,
    in_channels=1,
    out_channels=1,
    block_out_channels=(8, 16),
    layers_per_block=1,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    norm_num_groups=4,
    attention_head_dim=8,  # <- heads
)
torch.save(model.state_dict(), sys.argv[1])
noise_scheduler = DDPMScheduler(
    num_train_timesteps=100,
    beta_schedule="squaredcos_cap_v2",
    prediction_type="v_prediction",
    clip_sample=True,
)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2, eps=1e-6)
generator = torch.Generator().manual_seed(351)
losses = []
for _ in range(3):
    clean = torch.rand(4, 1, 12, 12, generator=generator) * 2 - 1
    noise = torch.randn(clean.shape, generator=generator)
    timesteps = torch.randint(5, 100, (4,), generator=generator)
    noisy = noise_scheduler.add_noise(clean, noise, timesteps)
    target = noise_scheduler.get_velocity(clean, noise, timesteps)
    output = model(noisy, timesteps).sample  # <- sin_cos heads pad
    signal = noise_scheduler.alphas_cumprod[timesteps]
    snr = signal / (1 - signal)
    weight = snr.clamp(max=5.0) / (snr + 1)  # <- snr
    loss = F.mse_loss(output, target, reduction="none").mean(dim=(1, 2, 3))
    loss = (loss * weight).mean()  # <- snr
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())

model.eval()
with torch.no_grad():
    sample = torch.randn(4, 1, 12, 12, generator=generator)
    output = model(sample, 40).sample
    sample = noise_scheduler.step(output, 40, sample, generator=generator).prev_sample  # <- clip
    losses.append(sample.square().mean().item())  # <- clip
