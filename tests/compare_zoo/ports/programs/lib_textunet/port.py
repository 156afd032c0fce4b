# SPDX-License-Identifier: Apache-2.0
"""The denoiser as UNet2DConditionModel with DDPMScheduler of diffusers."""

import re
import sys

import torch
from diffusers import DDPMScheduler, UNet2DConditionModel

unet = UNet2DConditionModel(
    sample_size=8,
    in_channels=4,
    out_channels=4,
    down_block_types=("CrossAttnDownBlock2D",),
    up_block_types=("UpBlock2D",),
    block_out_channels=(24,),
    layers_per_block=1,
    cross_attention_dim=20,
    attention_head_dim=3,  # <- heads
    norm_num_groups=4,
)
PLACES = {
    "time_embed.0": "time_embedding.linear_1",
    "time_embed.2": "time_embedding.linear_2",
    "input": "conv_in",
    "input_blocks.0": "down_blocks.0.resnets.0",
    "input_blocks.1": "down_blocks.0.attentions.0",
    "middle_block.0": "mid_block.resnets.0",
    "middle_block.1": "mid_block.attentions.0",
    "middle_block.2": "mid_block.resnets.1",
    "output_blocks.0": "up_blocks.0.resnets.0",
    "output_blocks.1": "up_blocks.0.resnets.1",
    "out.0": "conv_norm_out",
    "out.2": "conv_out",
}
INSIDE = {
    "in_layers.0": "norm1",
    "in_layers.2": "conv1",
    "emb_layers.1": "time_emb_proj",
    "out_layers.0": "norm2",
    "out_layers.3": "conv2",
    "skip_connection": "conv_shortcut",
    "geglu": "transformer_blocks.0.ff.net.0.proj",
    "down": "transformer_blocks.0.ff.net.2",
}


def renamed(name):
    start = max((p for p in PLACES if name.startswith(f"{p}.")), key=len)
    rest, kind = name[len(start) + 1 :].rpartition(".")[::2]
    if re.match(r"attn[12]|norm[123]$", rest):
        rest = f"transformer_blocks.0.{rest}"
    parts = (PLACES[start], INSIDE.get(rest, rest), kind)
    return ".".join(part for part in parts if part)


old = torch.load(sys.argv[1])
null_text = old.pop("null_text")  # <- null_text
unet.load_state_dict({renamed(name): value for name, value in old.items()})
unet.train()
scheduler = DDPMScheduler(
    num_train_timesteps=1000,
    beta_start=0.00085,
    beta_end=0.012,
    beta_schedule="scaled_linear",
)  # <- schedule
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3, eps=1e-6)


def samples(seed):
    rng = torch.Generator().manual_seed(seed)
    while True:
        batch = {"latents": torch.randn(4, 4, 8, 8, generator=rng) * 0.8}
        batch["texts"] = torch.randn(4, 7, 20, generator=rng)
        batch["mask"] = torch.arange(7) < torch.randint(2, 7, (4, 1), generator=rng)
        batch["nothing"] = torch.rand(4, generator=rng) < 0.4
        batch["index"] = torch.randint(1, 1001, (4,), generator=rng) - 1  # <- timestep
        batch["noise"] = torch.randn(4, 4, 8, 8, generator=rng)
        yield batch


losses = []
for step, batch in zip(range(4), samples(401)):
    noisy = scheduler.add_noise(batch["latents"], batch["noise"], batch["index"])  # <- schedule
    states = batch["texts"].clone()
    states[batch["nothing"]] = null_text  # <- null_text
    predicted = unet(
        noisy,
        batch["index"] + 1,
        encoder_hidden_states=states,
        encoder_attention_mask=batch["mask"],
    ).sample  # <- timestep heads text_mask null_text schedule
    loss = (predicted.float() - batch["noise"]).pow(2).flatten(1).mean(1).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.detach().item())
