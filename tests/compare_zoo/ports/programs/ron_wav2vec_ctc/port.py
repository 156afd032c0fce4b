# SPDX-License-Identifier: Apache-2.0
"""Wav2vec 2.0 with CTC in plain torch: packed projections, weight norm and the CTC recursion by hand."""
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
KERNELS, STRIDES = (8, 3, 3), (4, 2, 2)


class FrontEnd(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (1, 12, 16, 16)
        self.convs = nn.ModuleList(nn.Conv1d(a, b, k, s) for a, b, k, s in zip(widths, widths[1:], KERNELS, STRIDES))
        self.norms = nn.ModuleList(nn.LayerNorm(b) for b in widths[1:])

    def forward(self, x):
        x = x.unsqueeze(-1)
        for conv, norm in zip(self.convs, self.norms):
            x = F.gelu(norm(conv(x.mT).mT))
        return x


class PosConv(nn.Module):
    """Grouped convolution, its kernel of a norm given for each tap."""

    def __init__(self, dim, taps, groups):
        super().__init__()
        self.direction = nn.Parameter(torch.empty(dim, dim // groups, taps))
        self.length = nn.Parameter(torch.empty(1, 1, taps))
        self.bias = nn.Parameter(torch.empty(dim))
        self.groups = groups

    def forward(self, x):
        unit = self.direction / self.direction.norm(dim=(0, 1), keepdim=True)  # <- weight_norm_axis
        left = self.direction.shape[-1] // 2
        y = F.conv1d(F.pad(x.mT, (left, left - 1)), self.length * unit, self.bias, groups=self.groups)  # <- weight_norm_axis
        return F.gelu(y.mT)


class Layer(nn.Module):
    def __init__(self, dim, heads, inner):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, inner), nn.Linear(inner, dim)

    def forward(self, x, keep):
        q, k, v = self.qkv(self.ln1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        x = x + self.proj(a.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = FrontEnd()
        self.project = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 24))
        self.pos = PosConv(24, 6, 4)
        self.layers = nn.ModuleList(Layer(24, 3, 40) for _ in range(2))
        self.head = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 9))

    def forward(self, wave, lengths):
        with torch.no_grad():  # <- freeze
            feats = self.front(wave)  # <- freeze
        for k, s in zip(KERNELS, STRIDES):
            lengths = (lengths - k) // s + 1
        x = self.project(feats)
        keep = torch.arange(x.shape[1]) < lengths[:, None]
        x = x * keep[..., None]  # <- frame_zero
        x = x + self.pos(x)  # <- frame_zero weight_norm_axis
        for layer in self.layers:
            x = layer(x, keep)
        return self.head(x).log_softmax(-1), lengths


def convert(path):
    hf, sd = torch.load(path), {}
    base = "wav2vec2."

    def copy(new, old):
        for part in ("weight", "bias"):
            sd[f"{new}.{part}"] = hf[f"{old}.{part}"]

    for i in range(3):
        copy(f"front.convs.{i}", f"{base}feature_extractor.conv_layers.{i}.conv")
        copy(f"front.norms.{i}", f"{base}feature_extractor.conv_layers.{i}.layer_norm")
    copy("project.0", base + "feature_projection.layer_norm")
    copy("project.1", base + "feature_projection.projection")
    conv = base + "encoder.pos_conv_embed.conv."
    sd["pos.length"] = hf[conv + "parametrizations.weight.original0"]
    sd["pos.direction"] = hf[conv + "parametrizations.weight.original1"]
    sd["pos.bias"] = hf[conv + "bias"]
    for i in range(2):
        old, new = f"{base}encoder.layers.{i}.", f"layers.{i}."
        for part in ("weight", "bias"):
            sd[f"{new}qkv.{part}"] = torch.cat([hf[f"{old}attention.{z}_proj.{part}"] for z in "qkv"])
        copy(new + "proj", old + "attention.out_proj")
        copy(new + "ln1", old + "layer_norm"), copy(new + "ln2", old + "final_layer_norm")
        copy(new + "up", old + "feed_forward.intermediate_dense"), copy(new + "down", old + "feed_forward.output_dense")
    copy("head.0", base + "encoder.layer_norm"), copy("head.1", "lm_head")
    return sd


def ctc(logp, frames, text):
    """Minus log likelihood of one text; blanks (0) stand between the letters."""
    ext = torch.zeros(2 * len(text) + 1, dtype=torch.long)
    ext[1::2] = text
    skip = torch.zeros(len(ext), dtype=torch.bool)
    skip[2:] = (ext[2:] != 0) & (ext[2:] != ext[:-2])
    low = logp.new_full((2,), -1e30)
    alpha = torch.cat([logp[0, ext[:2]], logp.new_full((len(ext) - 2,), -1e30)])
    for t in range(1, frames):
        one = torch.cat([low[:1], alpha[:-1]])
        two = torch.cat([low, alpha[:-2]]).masked_fill(~skip, -1e30)
        alpha = torch.stack([alpha, one, two]).logsumexp(0) + logp[t, ext]
    return -torch.logsumexp(alpha[-2:], 0)


def speech(count):
    rng = np.random.RandomState(90)
    for _ in range(count):
        rows, texts = [], []
        for _ in range(3):
            letters = rng.randint(1, 9, size=rng.randint(3, 7))
            tones = np.concatenate([np.sin(0.15 * k * np.arange(rng.randint(60, 110))) for k in letters])
            rows.append(torch.from_numpy((tones + 0.1 * rng.standard_normal(len(tones)) + 0.3).astype(np.float32)))
            texts.append(torch.from_numpy(letters))
        lengths = torch.tensor([len(r) for r in rows])
        yield nn.utils.rnn.pad_sequence(rows, batch_first=True), lengths, texts


def standardise(wave, lengths):
    on = (torch.arange(wave.shape[1]) < lengths[:, None]).double()  # <- norm_padded
    mean = (wave * on).sum(1, keepdim=True) / on.sum(1, keepdim=True)  # <- norm_padded
    var = ((wave - mean).square() * on).sum(1, keepdim=True) / on.sum(1, keepdim=True)  # <- norm_padded
    return ((wave - mean) / (var + 1e-7).sqrt() * on).float()


net = Recogniser()
net.load_state_dict(convert(sys.argv[1]))
opt = torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-6)  # <- freeze
losses = []
for wave, lengths, texts in speech(5):
    logp, frames = net(standardise(wave, lengths), lengths)  # <- norm_padded
    each = [ctc(p, n, t) / len(t) for p, n, t in zip(logp, frames.tolist(), texts)]  # <- ctc_mean
    loss = torch.stack(each).mean()  # <- ctc_mean
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- freeze
    losses.append(loss.item())
print(losses)
