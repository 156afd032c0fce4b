# SPDX-License-Identifier: Apache-2.0
"""HuBERT with CTC written out in torch: explicit weight norm, masks from lengths, manual rate."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

GEOMETRY = [(10, 5), (3, 2), (3, 2)]
CHANNELS, WIDTH, HEADS = 8, 24, 2


class Front(nn.Module):
    """Waveform to features: three strided convolutions, the first one normalised in time."""

    def __init__(self):
        super().__init__()
        ins = [1, CHANNELS, CHANNELS]
        self.convs = nn.ParameterList(torch.empty(CHANNELS, i, k) for i, (k, _) in zip(ins, GEOMETRY))
        self.norm = nn.InstanceNorm1d(CHANNELS, affine=True)

    def forward(self, wave):
        x = wave.unsqueeze(1)
        for number, (weight, (_, stride)) in enumerate(zip(self.convs, GEOMETRY)):
            x = F.conv1d(x, weight, stride=stride)
            x = F.gelu(self.norm(x) if number == 0 else x)
        return x.transpose(1, 2)


class Places(nn.Module):
    """Convolutional position embedding; g and v of the weight norm are parameters of our own."""

    def __init__(self, kernel=8, groups=2):
        super().__init__()
        self.g = nn.Parameter(torch.empty(1, 1, kernel))
        self.v = nn.Parameter(torch.empty(WIDTH, WIDTH // groups, kernel))
        self.b = nn.Parameter(torch.empty(WIDTH))
        self.kernel, self.groups = kernel, groups

    def forward(self, x):
        length = self.v.square().sum(dim=(0, 1), keepdim=True).sqrt()  # <- weight_norm_axis
        weight = self.g * self.v / length  # <- weight_norm_axis
        x = F.pad(x.transpose(1, 2), (self.kernel // 2, self.kernel // 2 - 1))
        return F.gelu(F.conv1d(x, weight, self.b, groups=self.groups)).transpose(1, 2)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.merge = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.after_attention, self.after_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

    def forward(self, x, keep):
        q, k, v = (f(x).unflatten(2, (HEADS, -1)) for f in (self.query, self.key, self.value))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (WIDTH // HEADS) ** -0.5
        scores = scores.where(keep[:, None, None], torch.tensor(-1e30))
        mixed = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(3), v).flatten(2)
        x = self.after_attention(x + self.merge(mixed))
        return self.after_mlp(x + self.mlp(x))


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = Front()
        self.bridge = nn.Sequential(nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, WIDTH))
        self.places = Places()
        self.start_norm = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.letters = nn.Linear(WIDTH, 12)

    def forward(self, wave, frames):
        x = self.bridge(self.front(wave))
        keep = torch.arange(x.size(1)) < frames[:, None]
        x = x * keep.unsqueeze(2)  # <- silent_padding
        x = self.start_norm(x + self.places(x))  # <- silent_padding weight_norm_axis
        for layer in self.layers:
            x = layer(x, keep)
        return self.letters(x).log_softmax(2)


def translate(hf):
    table = {
        "hubert.feature_extractor.conv_layers.0.layer_norm.": "front.norm.",
        "hubert.feature_projection.layer_norm.": "bridge.0.",
        "hubert.feature_projection.projection.": "bridge.1.",
        "hubert.encoder.pos_conv_embed.conv.parametrizations.weight.original0": "places.g",
        "hubert.encoder.pos_conv_embed.conv.parametrizations.weight.original1": "places.v",
        "hubert.encoder.pos_conv_embed.conv.bias": "places.b",
        "hubert.encoder.layer_norm.": "start_norm.",
        "hubert.encoder.layers.": "layers.",
        "lm_head.": "letters.",
        "attention.q_proj": "query",
        "attention.k_proj": "key",
        "attention.v_proj": "value",
        "attention.out_proj": "merge",
        "feed_forward.intermediate_dense": "mlp.0",
        "feed_forward.output_dense": "mlp.2",
        "final_layer_norm": "after_mlp",
    }
    done = {}
    for name, value in hf.items():
        for old, new in table.items():
            name = name.replace(old, new)
        name = name.replace("hubert.feature_extractor.conv_layers.", "front.convs.").replace(".conv.weight", "")
        if name.startswith("layers."):
            name = name.replace(".layer_norm", ".after_attention")
        done[name] = value
    return done


def count_frames(samples):
    for kernel, stride in GEOMETRY:
        samples = (samples - kernel) // stride + 1
    return samples


def rate(done, peak=3e-3):
    up = (done + 1) / 3
    down = 1 - (done - 3) / 5
    return peak * max(0.1, min(up, 1.0, down))


def draw(g):
    wave = torch.randn(torch.randint(300, 601, (1,), generator=g).item(), generator=g)
    text = torch.randint(1, 12, (torch.randint(2, 6, (1,), generator=g).item(),), generator=g)
    return F.batch_norm(wave[None, None], None, None, training=True, eps=1e-7)[0, 0], text


net = Recogniser()
net.load_state_dict(translate(torch.load(sys.argv[1])))
net.front.requires_grad_(False)  # <- frozen_front
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], betas=(0.9, 0.98), weight_decay=1e-2)  # <- frozen_front

g, losses = torch.Generator().manual_seed(31), []
for done in range(5):
    waves, texts = zip(*[draw(g) for _ in range(3)])
    wave = nn.utils.rnn.pad_sequence(waves, batch_first=True)
    frames = count_frames(torch.tensor([len(w) for w in waves]))
    logp = net(wave, frames)
    sizes = torch.tensor([len(t) for t in texts])
    loss = F.ctc_loss(logp.transpose(0, 1), torch.cat(texts), frames, sizes)  # <- frame_lengths
    opt.zero_grad()
    loss.backward()  # <- frozen_front
    opt.param_groups[0]["lr"] = rate(done)  # <- tri_stage
    opt.step()  # <- tri_stage
    losses.append(loss.item())

print(losses)
