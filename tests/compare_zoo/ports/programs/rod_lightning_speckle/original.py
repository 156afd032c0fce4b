# SPDX-License-Identifier: Apache-2.0
"""Residual image classifier trained with lightning.Trainer, BatchNorm frozen late in training."""
import logging
import math
import sys
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
logging.getLogger("lightning.fabric").setLevel(logging.ERROR)

MAX_STEPS, WARMUP, FREEZE_AT = 5, 2, 2
CLASSES, WIDTH, SIDE = 6, 8, 6


class ConvNorm(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(cout, momentum=0.5)  # <- running_var_biased

    def forward(self, x):
        return self.norm(self.conv(x))  # <- running_var_biased


class SpeckleNet(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.stem = ConvNorm(3, WIDTH)
        self.left = ConvNorm(WIDTH, WIDTH)
        self.right = ConvNorm(WIDTH, WIDTH)
        self.pool = nn.AvgPool2d(2)
        self.head = nn.Linear(WIDTH * (SIDE // 2) ** 2, CLASSES)
        self.history = []

    def forward(self, x):
        x = F.gelu(self.stem(x))  # <- gelu_tanh
        h = F.gelu(self.left(x))  # <- gelu_tanh
        x = F.gelu(x + self.right(h))  # <- gelu_tanh
        return self.head(self.pool(x).flatten(1))

    def on_train_batch_start(self, batch, batch_idx):
        if self.global_step >= FREEZE_AT:
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y, label_smoothing=0.1)  # <- smoothing_others
        self.history.append(loss.item())
        return loss

    def configure_optimizers(self):
        decay = [p for p in self.parameters() if p.ndim > 1]
        plain = [p for p in self.parameters() if p.ndim <= 1]
        groups = [{"params": decay, "weight_decay": 5e-3}, {"params": plain, "weight_decay": 0.0}]
        optimizer = torch.optim.SGD(groups, lr=0.08, momentum=0.9, nesterov=True)

        def factor(step):
            if step < WARMUP:
                return (step + 1) / (WARMUP + 1)  # <- schedule_ahead
            return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (MAX_STEPS - WARMUP)))  # <- schedule_ahead

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)  # <- schedule_ahead
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def make_loader():
    gen = torch.Generator().manual_seed(31)
    labels = torch.randint(0, CLASSES, (MAX_STEPS * 4,), generator=gen)
    images = torch.randn(MAX_STEPS * 4, 3, SIDE, SIDE, generator=gen)
    images = images + 0.4 * labels[:, None, None, None] / CLASSES
    return DataLoader(TensorDataset(images, labels), batch_size=4, shuffle=False)


L.seed_everything(12, verbose=False)
model = SpeckleNet()
torch.nn.init.normal_(model.head.weight, std=0.3)
torch.save(model.state_dict(), sys.argv[1])
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer = L.Trainer(max_steps=MAX_STEPS, gradient_clip_val=0.5, accelerator="cpu", devices=1, **quiet)  # <- clip_each
trainer.fit(model, make_loader())  # <- schedule_ahead
losses = model.history
print(losses)
