# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning timm's VisionTransformer (registers, normalized queries and keys, averaged tokens)
with mixed images, layer-wise rates, LAMB and a cosine schedule, all of timm.
"""

import sys

import torch
from timm.data.mixup import mixup_target
from timm.loss import SoftTargetCrossEntropy
from timm.models.vision_transformer import VisionTransformer
from timm.optim import Lamb
from timm.optim._param_groups import param_groups_layer_decay
from timm.scheduler import CosineLRScheduler
from torch import nn

CLASSES, STEPS = 5, 5
torch.manual_seed(430)
model = VisionTransformer(
    img_size=24,
    patch_size=6,
    num_classes=CLASSES,
    embed_dim=24,
    depth=3,
    num_heads=3,
    mlp_ratio=2,
    qk_norm=True,
    init_values=0.5,
    reg_tokens=2,
    no_embed_class=True,
    global_pool="avg",  # <- registers fc_norm
)
with torch.no_grad():
    for name, p in model.named_parameters():
        if "norm" in name or "gamma" in name:
            p.add_(0.2 * torch.randn(p.shape))
        elif "token" in name or "pos" in name:
            p.normal_(0.0, 0.5)
    nn.init.normal_(model.head.weight, 0.0, 0.3)
torch.save(model.state_dict(), sys.argv[1])

groups = param_groups_layer_decay(
    model, weight_decay=0.05, no_weight_decay_list=model.no_weight_decay(), layer_decay=0.75
)  # <- scales
optimizer = Lamb(groups, lr=0.02, weight_decay=0.05, eps=1e-5, max_grad_norm=1.0)  # <- trust scales
scheduler = CosineLRScheduler(optimizer, t_initial=STEPS, lr_min=1e-3)  # <- scales
criterion = SoftTargetCrossEntropy()
generator = torch.Generator().manual_seed(431)
losses = []
for step in range(STEPS):
    images = torch.randn(6, 3, 24, 24, generator=generator)
    labels = torch.randint(0, CLASSES, (6,), generator=generator)
    share = float(torch.rand(1, generator=generator))
    mixed = images * share + images.flip(0) * (1.0 - share)
    target = mixup_target(labels, CLASSES, share, smoothing=0.1)  # <- smoothing
    loss = criterion(model(mixed), target)  # <- registers fc_norm smoothing
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- trust scales
    scheduler.step(step + 1)  # <- scales
    losses.append(loss.item())
