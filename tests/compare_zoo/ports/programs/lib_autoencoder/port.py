# SPDX-License-Identifier: Apache-2.0
"""The autoencoder as AutoencoderKL of diffusers, its weights renamed from the first stage."""

import re
import sys

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL

vae = AutoencoderKL(
    down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
    up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
    block_out_channels=(12, 12),
    layers_per_block=1,
    latent_channels=3,
    norm_num_groups=4,
    sample_size=16,
)
MID = {"0": "resnets.0", "1": "attentions.0", "2": "resnets.1"}
ATTENTION = {
    "norm": "group_norm",
    "q": "to_q",
    "k": "to_k",
    "v": "to_v",
    "proj_out": "to_out.0",
}


def up_name(match):
    level, layer = int(match[1]), match[2]
    return f"up_blocks.{1 - level}.resnets.{layer}."  # <- up_order


def renamed(name):
    name = re.sub(r"\bmid\.(\d)", lambda m: f"mid_block.{MID[m[1]]}", name)
    name = re.sub(r"\bdown\.(\d)\.", r"down_blocks.\1.resnets.0.", name)
    name = re.sub(r"\bup\.(\d)\.(\d)\.", up_name, name)  # <- up_order
    name = name.replace(".downsample.", ".down_blocks.0.downsamplers.0.conv.")
    name = name.replace(".upsample.", ".up_blocks.0.upsamplers.0.conv.")
    name = name.replace(".norm_out.", ".conv_norm_out.")
    if ".attentions." in name:
        head, part, kind = name.rsplit(".", 2)
        name = f"{head}.{ATTENTION[part]}.{kind}"
    return name


def convert(checkpoint):
    state = {}
    for key, tensor in checkpoint.items():
        name, value = renamed(key), tensor
        if ".attentions." in name and value.dim() == 4:
            value = value.squeeze(-1).squeeze(-1)  # <- transposed
        state[name] = value  # <- up_order transposed
    return state


vae.load_state_dict(convert(torch.load(sys.argv[1])))
vae.train()
optimizer = torch.optim.Adam(
    [{"params": part.parameters()} for part in vae.children()], lr=1e-3, betas=(0.5, 0.9)
)  # <- betas
rng = torch.Generator().manual_seed(341)
losses = []
for _ in range(4):
    pixels = torch.randint(0, 256, (4, 16, 16, 3), generator=rng, dtype=torch.uint8)
    batch = pixels.float().div(255.0).sub(0.5).mul(2.0).movedim(-1, 1)  # <- range
    posterior = vae.encode(batch).latent_dist  # <- range transposed
    latents = posterior.sample(generator=rng)  # <- posterior
    restored = vae.decode(latents).sample  # <- posterior up_order transposed
    loss = F.l1_loss(restored, batch) + 1e-3 * posterior.kl().mean()  # <- range
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()  # <- betas
    losses.append(loss.item())
