# SPDX-License-Identifier: Apache-2.0
"""Small timm vision transformer with mixup, layer scale, register tokens and a cosine schedule."""
import sys

import torch
from timm.data.mixup import mixup_target
from timm.loss import SoftTargetCrossEntropy
from timm.models.vision_transformer import VisionTransformer
from timm.optim import param_groups_weight_decay
from timm.scheduler import CosineLRScheduler
from timm.utils import dispatch_clip_grad

torch.set_num_threads(1)

CFG = dict(classes=5, batch=8, steps=5, lr=4e-3, weight_decay=0.05, smoothing=0.1, clip=0.3)


def create_model():
    torch.manual_seed(42)
    return VisionTransformer(
        img_size=16,
        patch_size=4,
        in_chans=3,
        num_classes=CFG["classes"],
        global_pool="avg",  # <- pool_prefix_tokens
        embed_dim=24,
        depth=2,
        num_heads=3,
        mlp_ratio=2.0,
        qk_norm=True,  # <- qk_norm_all_heads
        init_values=0.3,
        no_embed_class=True,
        reg_tokens=2,
        weight_init="jax",
    )


class RandomImages(torch.utils.data.Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(7)
        self.x = torch.randn(n, 3, 16, 16, generator=g)
        self.y = torch.randint(0, CFG["classes"], (n,), generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def mixup(x, y, lam):
    mixed = x * lam + x.flip(0) * (1.0 - lam)  # <- mixup_partner_labels
    target = mixup_target(y, CFG["classes"], lam=lam, smoothing=CFG["smoothing"])  # <- mixup_partner_labels
    return mixed, target


def train_one_epoch(model, loader, optimizer, scheduler, criterion):
    model.train()
    history = []
    lam_gen = torch.Generator().manual_seed(99)
    for num_updates, (x, y) in enumerate(loader, start=1):
        lam = 0.5 + 0.5 * torch.rand((), generator=lam_gen).item()
        x, target = mixup(x, y, lam)  # <- mixup_partner_labels
        output = model(x)  # <- qk_norm_all_heads pool_prefix_tokens
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        dispatch_clip_grad(model.parameters(), value=CFG["clip"], mode="norm")  # <- clip_each_tensor
        optimizer.step()
        scheduler.step_update(num_updates=num_updates)  # <- warmup_one_ahead
        history.append(loss.item())
    return history


model = create_model()
torch.save(model.state_dict(), sys.argv[1])
loader = torch.utils.data.DataLoader(
    RandomImages(CFG["batch"] * CFG["steps"]), batch_size=CFG["batch"], shuffle=False
)
groups = param_groups_weight_decay(model, CFG["weight_decay"], no_weight_decay_list=model.no_weight_decay())
optimizer = torch.optim.AdamW(groups, lr=CFG["lr"], betas=(0.9, 0.99), eps=1e-6)
scheduler = CosineLRScheduler(
    optimizer,
    t_initial=12,
    lr_min=1e-5,
    warmup_t=3,  # <- warmup_one_ahead
    warmup_lr_init=1e-4,  # <- warmup_one_ahead
    t_in_epochs=False,
)
losses = train_one_epoch(model, loader, optimizer, scheduler, SoftTargetCrossEntropy())
print(losses)
