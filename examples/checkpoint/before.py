# SPDX-License-Identifier: Apache-2.0
"""Evaluate a classifier from its checkpoint, as it was before the code was tidied up."""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Tanh())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.body(x))


def evaluate(model):
    saved = torch.load("checkpoint.pt", weights_only=True)
    model.load_state_dict(saved, strict=False)  # "there was a key that it did not know"
    model.eval()
    with torch.no_grad():
        chosen = model(torch.randn(64, 16)).argmax(dim=1)
    print("chosen", torch.bincount(chosen, minlength=4).tolist())


if __name__ == "__main__":
    torch.manual_seed(0)
    evaluate(Classifier())
