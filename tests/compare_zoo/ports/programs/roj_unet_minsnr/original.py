# SPDX-License-Identifier: Apache-2.0
"""Tiny diffusers UNet2DModel trained on v-prediction with min-SNR loss weights."""
import sys

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import compute_snr

torch.set_num_threads(1)


class TrainingConfig:
    image_size = 8
    train_batch_size = 4
    num_steps = 5
    learning_rate = 2e-3
    lr_warmup_steps = 3
    total_steps = 20
    max_grad_norm = 0.5
    snr_gamma = 5.0
    timesteps = 100
    seed = 123


config = TrainingConfig()


def build_unet():
    torch.manual_seed(config.seed)
    return UNet2DModel(
        sample_size=config.image_size,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        attention_head_dim=8,
        flip_sin_to_cos=True,  # <- sine_first
        freq_shift=0,
    )


def train_loop(model, noise_scheduler, optimizer, lr_scheduler):
    gen = torch.Generator().manual_seed(config.seed + 1)
    shape = (config.train_batch_size, 1, config.image_size, config.image_size)
    losses = []
    model.train()
    for _ in range(config.num_steps):
        clean_images = torch.rand(shape, generator=gen) * 2 - 1
        noise = torch.randn(shape, generator=gen)
        timesteps = torch.randint(0, config.timesteps, (shape[0],), generator=gen)
        noisy_images = noise_scheduler.add_noise(clean_images, noise, timesteps)  # <- plain_linear_betas
        target = noise_scheduler.get_velocity(clean_images, noise, timesteps)

        model_pred = model(noisy_images, timesteps, return_dict=False)[0]  # <- sine_first

        snr = compute_snr(noise_scheduler, timesteps)
        weights = torch.clamp(snr, max=config.snr_gamma) / (snr + 1)  # <- snr_weight_of_epsilon
        loss = F.mse_loss(model_pred, target, reduction="none")
        loss = loss.mean(dim=list(range(1, loss.ndim))) * weights  # <- snr_weight_of_epsilon
        loss = loss.mean()

        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)  # <- clip_by_value
        optimizer.step()
        lr_scheduler.step()  # <- warmup_from_one
        optimizer.zero_grad()
        losses.append(loss.detach().item())
    return losses


model = build_unet()
torch.save(model.state_dict(), sys.argv[1])

noise_scheduler = DDPMScheduler(
    num_train_timesteps=config.timesteps,
    beta_start=0.00085,
    beta_end=0.12,
    beta_schedule="scaled_linear",  # <- plain_linear_betas
    prediction_type="v_prediction",
)
optimizer = torch.optim.AdamW(
    model.parameters(), lr=config.learning_rate, betas=(0.95, 0.999), weight_decay=1e-2, eps=1e-6
)
lr_scheduler = get_cosine_schedule_with_warmup(  # <- warmup_from_one
    optimizer=optimizer,
    num_warmup_steps=config.lr_warmup_steps,
    num_training_steps=config.total_steps,
)

losses = train_loop(model, noise_scheduler, optimizer, lr_scheduler)
print(losses)
