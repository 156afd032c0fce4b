# SPDX-License-Identifier: Apache-2.0
"""Mean-teacher training of a small torchvision ResNet on random pictures."""
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.transforms.v2 import functional as TF

torch.set_num_threads(1)
torch.manual_seed(3)

NUM_CLASSES = 6
BATCH = 8
STEPS = 5
MEAN = [0.485, 0.456, 0.406]  # <- channel_order
STD = [0.229, 0.224, 0.225]  # <- channel_order


def make_data():
    gen = torch.Generator().manual_seed(11)
    images = torch.randint(0, 256, (BATCH * STEPS, 3, 32, 32), generator=gen, dtype=torch.uint8)
    tint = torch.tensor([1.0, 0.7, 0.4]).view(1, 3, 1, 1)
    images = (images.float() * tint).to(torch.uint8)
    labels = torch.randint(0, NUM_CLASSES, (BATCH * STEPS,), generator=gen)
    return images, labels


def build_optimizer(model):
    decay, no_decay = [], []
    for p in model.parameters():
        (decay if p.ndim > 1 else no_decay).append(p)  # <- decay_everything
    groups = [
        {"params": decay, "weight_decay": 5e-2},
        {"params": no_decay, "weight_decay": 0.0},  # <- decay_everything
    ]
    return torch.optim.SGD(groups, lr=0.02, momentum=0.9, nesterov=True)


class Trainer:
    def __init__(self, model):
        self.model = model
        self.teacher = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
        self.teacher.eval()
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing_over_others
        self.optimizer = build_optimizer(model)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, start_factor=0.25, total_iters=4)

    def preprocess(self, images):
        x = TF.to_dtype(images, torch.float32, scale=True)
        return TF.normalize(x, MEAN, STD)  # <- channel_order

    def train_step(self, images, labels):
        self.model.train()
        x = self.preprocess(images)
        logits = self.model(x)  # <- maxpool_padding biased_running_var
        with torch.no_grad():
            target = self.teacher(TF.horizontal_flip(x)).softmax(dim=1)  # <- biased_running_var
        ce = self.criterion(logits, labels)  # <- smoothing_over_others
        consistency = F.mse_loss(logits.softmax(dim=1), target)
        loss = ce + 20.0 * consistency
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()  # <- decay_everything
        self.scheduler.step()
        self.teacher.update_parameters(self.model)
        return loss.item()


if __name__ == "__main__":
    net = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=NUM_CLASSES)  # <- maxpool_padding
    torch.save(net.state_dict(), sys.argv[1])
    trainer = Trainer(net)
    images, labels = make_data()
    losses = []
    for i in range(STEPS):
        part = slice(i * BATCH, (i + 1) * BATCH)
        losses.append(trainer.train_step(images[part], labels[part]))
    print(losses)
