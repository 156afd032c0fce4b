# SPDX-License-Identifier: Apache-2.0
"""The encoder in another code base: the same weights, the same data, and not the same loss."""

from original import main
from torch import nn


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x):
        x = self.norm1(x + self.attention(x, x, x, need_weights=False)[0])
        hidden = nn.functional.gelu(self.up(x), approximate="tanh")
        return self.norm2(x + self.down(hidden))


if __name__ == "__main__":
    main(Layer)
