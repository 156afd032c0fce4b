# SPDX-License-Identifier: Apache-2.0
"""Mean-teacher training of a tiny timm EfficientNet with the TF form of RMSprop and ModelEmaV3."""
import sys
from functools import partial

import torch
import torch.nn as nn
from timm.loss import LabelSmoothingCrossEntropy
from timm.models._efficientnet_builder import decode_arch_def
from timm.models.efficientnet import EfficientNet
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3

torch.set_num_threads(1)

ARCH = [
    ["ds_r1_k3_s1_e1_c8_se0.25"],
    ["ir_r2_k3_s2_e3_c16_se0.25"],
    ["ir_r1_k5_s1_e2_c24"],
]
CLASSES, STEPS, BATCH = 6, 5, 8


def build():
    torch.manual_seed(41)
    net = EfficientNet(
        decode_arch_def(ARCH),
        num_classes=CLASSES,
        stem_size=8,
        num_features=32,
        act_layer=nn.SiLU,  # <- se_activation
        norm_layer=partial(nn.BatchNorm2d, eps=1e-3, momentum=0.01),  # <- bn_momentum
        round_chs_fn=lambda c: c,
        drop_rate=0.0,
        drop_path_rate=0.0,
    )
    with torch.no_grad():
        net.classifier.weight.mul_(3.0)
        for name, p in net.named_parameters():
            if p.ndim == 1:
                p.add_(torch.randn(p.shape) * 0.1)
            if ".se." in name and p.ndim == 4:
                p.mul_(3.0)
    return net


class Blobs(torch.utils.data.Dataset):
    """Noisy class templates; half of every batch has no label."""

    def __init__(self, n):
        g = torch.Generator().manual_seed(400)
        templates = torch.randn(CLASSES, 3, 16, 16, generator=g)
        self.y = torch.randint(0, CLASSES, (n,), generator=g)
        self.clean = templates[self.y] + 0.3 * torch.randn(n, 3, 16, 16, generator=g)
        self.noisy = self.clean + 0.2 * torch.randn(n, 3, 16, 16, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.noisy[i], self.clean[i], self.y[i]


student = build()
torch.save(student.state_dict(), sys.argv[1])
student.train()
teacher = ModelEmaV3(student, decay=0.8)  # <- teacher_buffers

optimizer = create_optimizer_v2(  # <- rms_start
    student, opt="rmsproptf", lr=0.02, weight_decay=1e-3, momentum=0.9, alpha=0.9, eps=1e-3,  # <- rms_start
    filter_bias_and_bn=True,
)
supervised = LabelSmoothingCrossEntropy(smoothing=0.1)
loader = torch.utils.data.DataLoader(Blobs(STEPS * BATCH), batch_size=BATCH)
CONSISTENCY = 4.0

losses = []
for noisy, clean, y in loader:
    half = len(y) // 2
    logits = student(noisy)  # <- bn_momentum se_activation
    with torch.no_grad():
        opinion = teacher.module(clean).softmax(-1)  # <- bn_momentum teacher_buffers se_activation
    agreement = ((logits.softmax(-1) - opinion) ** 2).sum(-1).mean()  # <- agreement_mean
    loss = supervised(logits[:half], y[:half]) + CONSISTENCY * agreement  # <- agreement_mean
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rms_start
    teacher.update(student)  # <- teacher_buffers
    losses.append(loss.item())
print(losses)
