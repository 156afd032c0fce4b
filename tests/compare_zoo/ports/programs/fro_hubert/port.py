# SPDX-License-Identifier: Apache-2.0
"""HuBERT for CTC without the package: windows and matrix products for the convolutions,
nn.MultiheadAttention, time first.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

WINDOWS, WIDTH, INNER, HEADS, LETTERS = ((10, 5), (4, 2)), 24, 40, 3, 14
TAPS, GROUPS = 6, 4


class Ear(nn.Module):
    """The convolutions; the first is normed in each channel along the whole time."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WINDOWS[0][0], 16, bias=False)
        self.second = nn.Linear(16 * WINDOWS[1][0], 20, bias=False)
        self.gain, self.bias = nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(16))

    def forward(self, sound):
        x = self.first(sound.unfold(1, *WINDOWS[0]))
        var, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
        x = F.gelu((x - mean) * torch.rsqrt(var + 1e-5) * self.gain + self.bias)
        return F.gelu(self.second(x.unfold(1, *WINDOWS[1]).flatten(2)))


class Places(nn.Module):
    """A convolution in groups, each tap of which has a length of its own."""

    def __init__(self):
        super().__init__()
        self.length = nn.Parameter(torch.ones(TAPS))
        self.direction = nn.Parameter(torch.empty(WIDTH, WIDTH // GROUPS, TAPS))
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        size = self.direction.square().sum((0, 1)).sqrt()  # <- weight_norm
        kernel = (self.direction * (self.length / size)).unflatten(
            0, (GROUPS, -1)
        )  # <- weight_norm
        wide = F.pad(x, (0, 0, TAPS // 2, TAPS // 2 - 1)).unfold(1, TAPS, 1)
        wide = wide.unflatten(2, (GROUPS, -1))
        return F.gelu(
            torch.einsum("btgik,goik->btgo", wide, kernel).flatten(2) + self.bias
        )  # <- weight_norm


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x, silent):
        heard, _ = self.attention(x, x, x, key_padding_mask=silent, need_weights=False)  # <- order
        x = self.norm1(x + heard)
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.ear, self.places = Ear(), Places()
        self.lift = nn.Sequential(nn.LayerNorm(20), nn.Linear(20, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.letters = nn.Linear(WIDTH, LETTERS)

    def forward(self, sound, sizes):
        for window, step in WINDOWS:
            sizes = (sizes - window) // step + 1
        frames = self.lift(self.ear(sound))
        silent = torch.arange(frames.shape[1]) >= sizes[:, None]
        x = frames.masked_fill(silent[..., None], 0.0)  # <- silence
        x = self.norm(x + self.places(x)).transpose(0, 1)  # <- silence
        for layer in self.layers:
            x = layer(x, silent)
        return self.letters(x).log_softmax(-1), sizes


def take_over(net, old):
    def put(module, name, kinds=("weight", "bias")):
        module.load_state_dict({kind: old[f"{name}.{kind}"] for kind in kinds})

    front = "hubert.feature_extractor.conv_layers"
    net.ear.first.weight.copy_(old[f"{front}.0.conv.weight"].squeeze(1))
    net.ear.second.weight.copy_(old[f"{front}.1.conv.weight"].flatten(1))
    net.ear.gain.copy_(old[f"{front}.0.layer_norm.weight"])
    net.ear.bias.copy_(old[f"{front}.0.layer_norm.bias"])
    put(net.lift[0], "hubert.feature_projection.layer_norm")
    put(net.lift[1], "hubert.feature_projection.projection")
    conv = "hubert.encoder.pos_conv_embed.conv"
    net.places.length.copy_(old[f"{conv}.parametrizations.weight.original0"].flatten())
    net.places.direction.copy_(old[f"{conv}.parametrizations.weight.original1"])
    net.places.bias.copy_(old[f"{conv}.bias"])
    put(net.norm, "hubert.encoder.layer_norm")
    put(net.letters, "lm_head")
    for n, layer in enumerate(net.layers):
        here = f"hubert.encoder.layers.{n}"
        for kind in ("weight", "bias"):
            parts = [old[f"{here}.attention.{c}_proj.{kind}"] for c in "qkv"]  # <- order
            getattr(layer.attention, f"in_proj_{kind}").copy_(torch.cat(parts))  # <- order
        put(layer.attention.out_proj, f"{here}.attention.out_proj")
        put(layer.norm1, f"{here}.layer_norm")
        put(layer.norm2, f"{here}.final_layer_norm")
        put(layer.up, f"{here}.feed_forward.intermediate_dense")
        put(layer.down, f"{here}.feed_forward.output_dense")


net = Listener()
with torch.no_grad():
    take_over(net, torch.load(sys.argv[1]))
learning = [p for name, p in net.named_parameters() if not name.startswith("ear.")]  # <- frozen
adam = torch.optim.Adam(learning, lr=3e-3, eps=1e-4)  # <- frozen
rng = torch.Generator().manual_seed(42)
losses = []
for _ in range(4):
    sound = torch.randn(3, 320, generator=rng)
    lengths = torch.randint(180, 321, (3,), generator=rng)
    words = torch.randint(1, LETTERS, (3, 7), generator=rng)
    sizes = torch.randint(2, 8, (3,), generator=rng)
    for row, length in zip(sound, lengths):
        row[length:] = 0
    spoken = torch.cat([row[:size] for row, size in zip(words, sizes)])
    logs, heard = net(sound, lengths)
    each = F.ctc_loss(logs, spoken, heard, sizes, blank=0, reduction="none")
    loss = (each / sizes).mean()  # <- reduction
    net.zero_grad()
    loss.backward()
    adam.step()  # <- frozen
    losses.append(loss.item())
