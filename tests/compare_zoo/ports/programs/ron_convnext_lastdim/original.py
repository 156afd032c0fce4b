# SPDX-License-Identifier: Apache-2.0
"""A tiny timm ConvNeXt trained with a mean teacher: timm's optimizer factory, adaptive clipping and ModelEmaV3."""
import sys

import torch
import torch.nn.functional as F
from timm.models.convnext import ConvNeXt
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3, dispatch_clip_grad

torch.set_num_threads(1)


class Loader:
    """Labelled pictures and a second, noisier view for the teacher."""

    def __init__(self, steps, batch, seed=2024):
        self.steps, self.batch, self.seed = steps, batch, seed

    def __iter__(self):
        gen = torch.Generator().manual_seed(self.seed)
        for _ in range(self.steps):
            x = torch.randn(self.batch, 3, 64, 64, generator=gen)
            y = torch.randint(0, 5, (self.batch,), generator=gen)
            x = x * 0.5 + y.view(-1, 1, 1, 1) * 0.2
            view = x + 0.3 * torch.randn(x.shape, generator=gen)
            yield x, view, y


def main(path):
    torch.manual_seed(8)
    model = ConvNeXt(  # <- gelu norm_pool
        in_chans=3,
        num_classes=5,
        depths=(1, 1, 1, 1),
        dims=(8, 12, 16, 20),
        kernel_sizes=5,
        patch_size=4,
        ls_init_value=0.5,
        act_layer="gelu",  # <- gelu
        head_norm_first=False,  # <- norm_pool
        drop_rate=0.0,
        drop_path_rate=0.0,
    )
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    torch.save(model.state_dict(), path)

    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.4, momentum=0.9, weight_decay=0.01)  # <- nesterov
    scheduler = CosineLRScheduler(optimizer, t_initial=8, lr_min=0.01)
    ema = ModelEmaV3(model, decay=0.7)
    losses = []
    model.train()
    for update, (x, view, y) in enumerate(Loader(5, 6)):
        logits = model(x)  # <- gelu norm_pool
        with torch.no_grad():
            target = ema.module(view).softmax(-1)  # <- ema_order gelu norm_pool
        consistency = F.kl_div(logits.log_softmax(-1), target, reduction="batchmean")  # <- ema_order
        loss = F.cross_entropy(logits, y) + 2.0 * consistency
        optimizer.zero_grad()
        loss.backward()
        dispatch_clip_grad(model.parameters(), value=0.05, mode="agc")  # <- agc_axis
        optimizer.step()  # <- nesterov
        ema.update(model)  # <- ema_order
        scheduler.step(update + 1)
        losses.append(loss.item())
    return losses


losses = main(sys.argv[1])
print(losses)
