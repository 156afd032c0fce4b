# SPDX-License-Identifier: Apache-2.0
"""The classifier on Cait of timm, with timm's optimizer factory, scheduler and loss."""

import sys

import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.models.cait import Cait
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

model = Cait(
    img_size=24,
    patch_size=6,
    num_classes=6,
    embed_dim=32,
    depth=3,
    num_heads=4,
    mlp_ratio=3.0,
    mlp_ratio_token_only=3.0,
    qkv_bias=True,
    depth_token_only=2,
)
RENAMED = {
    "mix.to_out": "attn.proj",
    "ln_mix": "norm1",
    "ln_mlp": "norm2",
    "up": "mlp.fc1",
    "down": "mlp.fc2",
}
SCALES = {"scale_mix": "gamma_1", "scale_mlp": "gamma_2"}  # <- scale
TALK = {"before": "proj_l", "after": "proj_w"}  # <- talking


def convert_block(old, theirs, ours, fused):
    new = {}
    for kind in ("weight", "bias"):
        for a, b in RENAMED.items():
            new[f"{ours}.{b}.{kind}"] = old[f"{theirs}.{a}.{kind}"]
        qkv = [old[f"{theirs}.mix.to_{part}.{kind}"] for part in "qkv"]
        if fused:
            new[f"{ours}.attn.qkv.{kind}"] = torch.cat(qkv)
        else:
            new.update({f"{ours}.attn.{part}.{kind}": t for part, t in zip("qkv", qkv)})
    for a, b in SCALES.items():
        new[f"{ours}.{b}"] = old[f"{theirs}.{a}"]  # <- scale
    if fused:
        for a, b in TALK.items():
            new[f"{ours}.attn.{b}.weight"] = old[f"{theirs}.mix.{a}"]  # <- talking
            new[f"{ours}.attn.{b}.bias"] = old[f"{theirs}.mix.{a}_bias"]  # <- talking
    return new


def convert(old):
    kernel = old["patches.weight"].view(32, 6, 6, 3).permute(0, 3, 1, 2)  # <- patches
    new = {
        "patch_embed.proj.weight": kernel,
        "patch_embed.proj.bias": old["patches.bias"],
        "pos_embed": old["places"][None],
        "cls_token": old["asker"].view(1, 1, -1),
    }
    for a, b in (("ln_end", "norm"), ("head", "head")):
        for kind in ("weight", "bias"):
            new[f"{b}.{kind}"] = old[f"{a}.{kind}"]
    for i in range(3):
        new.update(convert_block(old, f"early.{i}", f"blocks.{i}", fused=True))
    for i in range(2):
        new.update(convert_block(old, f"late.{i}", f"blocks_token_only.{i}", fused=False))
    return new


model.load_state_dict(convert(torch.load(sys.argv[1])), strict=True)
optimizer = create_optimizer_v2(
    model, opt="adamw", lr=2e-3, weight_decay=0.2, filter_bias_and_bn=True, eps=1e-5
)  # <- decay
scheduler = CosineLRScheduler(
    optimizer, t_initial=8, warmup_t=2, warmup_lr_init=1e-4, lr_min=0.0
)  # <- warmup
loss_fn = LabelSmoothingCrossEntropy(smoothing=0.1)
rng = torch.Generator().manual_seed(321)


def loader():
    for index in range(5):
        images = torch.randn(6, 24, 24, 3, generator=rng)
        yield index, images.permute(0, 3, 1, 2), torch.randint(0, 6, (6,), generator=rng)


losses = []
model.train()
for index, images, target in loader():
    output = model(images)  # <- patches talking scale
    loss = loss_fn(output, target)
    model.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay warmup
    scheduler.step(index + 1)  # <- warmup
    losses.append(loss.item())
