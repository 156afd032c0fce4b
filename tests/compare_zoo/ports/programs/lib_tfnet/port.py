# SPDX-License-Identifier: Apache-2.0
"""The little EfficientNet from timm's blocks, variables renamed from TensorFlow scopes."""

import re
import sys
from functools import partial

import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.models._efficientnet_builder import decode_arch_def
from timm.models.efficientnet import EfficientNet
from timm.optim import create_optimizer_v2
from torch import nn

model = EfficientNet(
    decode_arch_def(
        [
            ["ds_r1_k3_s1_e1_c8_se0.25"],
            ["ir_r2_k5_s2_e3_c16_se0.25"],
            ["ir_r1_k3_s2_e2_c20_se0.25"],
        ]
    ),
    num_classes=5,
    num_features=32,
    stem_size=8,
    pad_type="same",  # <- same
    round_chs_fn=lambda channels: channels,
    act_layer=nn.SiLU,
    norm_layer=partial(nn.BatchNorm2d, eps=1e-3, momentum=0.1),  # <- epsilon
)
WHERE = {"blocks_0": "blocks.0.0", "blocks_1": "blocks.1.0"}
WHERE |= {"blocks_2": "blocks.1.1", "blocks_3": "blocks.2.0"}
FIRST = {"depthwise": "conv_dw", "depthwise_bn": "bn1", "project": "conv_pw", "project_bn": "bn2"}
LATER = {"expand": "conv_pw", "expand_bn": "bn1", "depthwise": "conv_dw", "depthwise_bn": "bn2"}
LATER |= {"project": "conv_pwl", "project_bn": "bn3"}
SQUEEZE = {"reduce": "se.conv_reduce", "excite": "se.conv_expand"}
TOP = {"stem/conv2d": "conv_stem", "stem/bn": "bn1", "head/conv2d": "conv_head", "head/bn": "bn2"}
TOP["head/dense"] = "classifier"
KIND = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
KIND |= {"moving_mean": "running_mean", "moving_variance": "running_var"}


def module_of(scope):
    if scope in TOP:
        return TOP[scope]
    block, part = scope.split("/")
    names = {**(FIRST if block == "blocks_0" else LATER), **SQUEEZE}
    return f"{WHERE[block]}.{names[part]}"


def import_tensorflow(module, variables):
    state = module.state_dict()
    for name, array in variables.items():
        value = array
        scope, kind = re.fullmatch(r"(.*)/(\w+)", name).groups()
        if value.dim() == 2:
            value = value.t()
        elif scope.endswith("depthwise") and value.dim() == 4:
            value = value.permute(2, 3, 0, 1)  # <- depthwise
        elif value.dim() == 4:
            value = value.permute(3, 2, 0, 1)
        key = f"{module_of(scope)}.{KIND[kind]}"
        assert state[key].shape == value.shape, (key, value.shape)
        state[key] = value.contiguous()
    module.load_state_dict(state)


import_tensorflow(model, torch.load(sys.argv[1]))
criterion = LabelSmoothingCrossEntropy(0.1)
optimizer = create_optimizer_v2(
    model, opt="rmsproptf", lr=0.02, weight_decay=1e-3, momentum=0.9, alpha=0.9, eps=1e-3
)  # <- rmsprop
rng = torch.Generator().manual_seed(391)


def batch():
    images = torch.rand(8, 32, 32, 3, generator=rng).sub_(0.5).div_(0.5)
    return images.permute(0, 3, 1, 2), torch.randint(0, 5, (8,), generator=rng)


losses = []
model.train()
for _ in range(4):
    images, target = batch()
    loss = criterion(model(images), target)  # <- same epsilon depthwise
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rmsprop
    losses.append(loss.item())
model.eval()  # <- evaluated
with torch.inference_mode():
    images, target = batch()
    losses.append(criterion(model(images), target).item())  # <- evaluated
