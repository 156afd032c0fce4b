# SPDX-License-Identifier: Apache-2.0
"""The speech recogniser on torch.nn alone, its weight norm written out, CTC over padded targets."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, CHANNELS, TAPS, GROUPS, VOCAB, BLANK = 24, 16, 4, 2, 12, 11


class Front(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(1, CHANNELS, 10, 5, bias=False)
        self.norm = nn.InstanceNorm1d(CHANNELS, affine=True)
        self.second = nn.Conv1d(CHANNELS, CHANNELS, 4, 2, bias=False)

    def forward(self, wave):
        x = F.gelu(self.norm(self.first(wave.unsqueeze(1))))
        return F.gelu(self.second(x)).transpose(1, 2)


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(1, 1, TAPS))
        self.direction = nn.Parameter(torch.empty(WIDTH, WIDTH // GROUPS, TAPS))
        self.bias = nn.Parameter(torch.empty(WIDTH))

    def forward(self, x):
        norm = self.direction.square().sum(dim=(0, 1), keepdim=True).sqrt()  # <- weight_norm
        weight = self.direction * (self.gain / norm)  # <- weight_norm
        x = F.pad(x.transpose(1, 2), (TAPS // 2, TAPS // 2 - 1))  # <- trimmed zeroed
        out = F.conv1d(x, weight, self.bias, groups=GROUPS)  # <- weight_norm trimmed
        return F.gelu(out).transpose(1, 2)


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = Front()
        self.norm_in = nn.LayerNorm(CHANNELS)
        self.project = nn.Linear(CHANNELS, WIDTH)
        self.positions = Positions()
        self.norm = nn.LayerNorm(WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 3, 40, 0.0, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.letters = nn.Linear(WIDTH, VOCAB)

    def forward(self, wave, frames):
        x = self.project(self.norm_in(self.front(wave)))
        silent = torch.arange(x.size(1)) >= frames[:, None]
        x = x.masked_fill(silent[..., None], 0.0)  # <- zeroed
        x = self.norm(x + self.positions(x))  # <- zeroed
        return self.letters(self.encoder(x, src_key_padding_mask=silent))


LAYER = {
    "self_attn.out_proj": "attention.out_proj",
    "norm1": "layer_norm",
    "norm2": "final_layer_norm",
    "linear1": "feed_forward.intermediate_dense",
    "linear2": "feed_forward.output_dense",
}


def adopt(theirs):
    theirs = {k.removeprefix("wav2vec2."): t for k, t in theirs.items()}
    conv = "encoder.pos_conv_embed.conv"
    ours = {
        "front.first.weight": theirs["feature_extractor.conv_layers.0.conv.weight"],
        "front.second.weight": theirs["feature_extractor.conv_layers.1.conv.weight"],
        "positions.gain": theirs[f"{conv}.parametrizations.weight.original0"],
        "positions.direction": theirs[f"{conv}.parametrizations.weight.original1"],
        "positions.bias": theirs[f"{conv}.bias"],
    }
    pairs = {"front.norm": "feature_extractor.conv_layers.0.layer_norm", "letters": "lm_head"}
    pairs |= {"norm_in": "feature_projection.layer_norm", "norm": "encoder.layer_norm"}
    pairs["project"] = "feature_projection.projection"
    for n in range(2):
        pairs |= {f"encoder.layers.{n}.{a}": f"encoder.layers.{n}.{b}" for a, b in LAYER.items()}
        for kind in ("weight", "bias"):
            qkv = [theirs[f"encoder.layers.{n}.attention.{c}_proj.{kind}"] for c in "qkv"]
            ours[f"encoder.layers.{n}.self_attn.in_proj_{kind}"] = torch.cat(qkv)
    for a, b in pairs.items():
        ours |= {f"{a}.{kind}": theirs[f"{b}.{kind}"] for kind in ("weight", "bias")}
    return ours


model = Recogniser()
model.load_state_dict(adopt(torch.load(sys.argv[1])))
tuned = [p for n, p in model.named_parameters() if not n.startswith("front.")]  # <- frozen
optimizer = torch.optim.Adam(tuned, lr=3e-3, eps=1e-4)  # <- frozen
rng = torch.Generator().manual_seed(331)
losses = []
for _ in range(4):
    waves = torch.randn(3, 200, generator=rng)
    sizes = torch.randint(120, 201, (3, 1), generator=rng)
    sizes[0] = 200
    waves = waves.masked_fill(torch.arange(200) >= sizes, 0.0)
    targets = torch.randint(0, BLANK, (3, 5), generator=rng)
    target_sizes = torch.randint(2, 6, (3, 1), generator=rng)[:, 0]
    frames = ((sizes[:, 0] - 10) // 5 - 3) // 2 + 1
    logp = model(waves, frames).log_softmax(-1).transpose(0, 1)
    loss = F.ctc_loss(logp, targets, frames, target_sizes, blank=BLANK)  # <- blank
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- frozen
    losses.append(loss.item())
