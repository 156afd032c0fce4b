# SPDX-License-Identifier: Apache-2.0
"""Speech recognition with a small Whisper in the manner of the first release, Adam with coupled decay by hand."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

MELS, FRAMES, TEXT, STATE, HEADS, LAYERS, VOCAB = 8, 24, 12, 32, 4, 2, 65
SOT, EOT, STEPS, BATCH = 63, 64, 5, 3


def sinusoids(length, channels):
    rate = torch.exp(-torch.arange(channels // 2) * torch.log(torch.tensor(10000.0)) / (channels // 2 - 1))
    angle = torch.arange(length)[:, None] * rate[None, :]
    return torch.cat([angle.sin(), angle.cos()], dim=1)


class MultiHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.out = nn.Linear(STATE, STATE), nn.Linear(STATE, STATE)
        self.key, self.value = nn.Linear(STATE, STATE, bias=False), nn.Linear(STATE, STATE)

    def forward(self, x, xa=None, mask=None):
        source = x if xa is None else xa
        q, k, v = (z.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                   for z in (self.query(x), self.key(source), self.value(source)))
        scale = (STATE // HEADS) ** -0.25
        qk = (q * scale) @ (k * scale).mT
        if mask is not None:
            qk = qk + mask[: x.shape[1], : x.shape[1]]
        return self.out((qk.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, cross):
        super().__init__()
        self.attn, self.attn_ln = MultiHead(), nn.LayerNorm(STATE)
        self.cross_attn = MultiHead() if cross else None
        self.cross_attn_ln = nn.LayerNorm(STATE) if cross else None
        self.mlp = nn.Sequential(nn.Linear(STATE, 64), nn.GELU(), nn.Linear(64, STATE))  # <- gelu_tanh
        self.mlp_ln = nn.LayerNorm(STATE)

    def forward(self, x, xa=None, mask=None):
        x = x + self.attn(self.attn_ln(x), mask=mask)
        if self.cross_attn is not None:
            x = x + self.cross_attn(self.cross_attn_ln(x), xa)
        return x + self.mlp(self.mlp_ln(x))  # <- gelu_tanh


class Whisper(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(MELS, STATE, 3, padding=1)
        self.conv2 = nn.Conv1d(STATE, STATE, 3, stride=2, padding=1)
        self.register_buffer("audio_positions", sinusoids(FRAMES // 2, STATE))
        self.encoder = nn.ModuleList(Block(False) for _ in range(LAYERS))
        self.ln_post = nn.LayerNorm(STATE)
        self.token_embedding = nn.Embedding(VOCAB, STATE)
        self.text_positions = nn.Parameter(torch.empty(TEXT, STATE))
        self.decoder = nn.ModuleList(Block(True) for _ in range(LAYERS))
        self.ln = nn.LayerNorm(STATE)

    def forward(self, mel, tokens):
        xa = F.gelu(self.conv2(F.gelu(self.conv1(mel))))  # <- gelu_tanh
        xa = xa.transpose(1, 2) + self.audio_positions
        for block in self.encoder:
            xa = block(xa)
        xa = self.ln_post(xa)
        mask = torch.full((TEXT, TEXT), -torch.inf).triu(1)
        x = self.token_embedding(tokens) + self.text_positions[: tokens.shape[1]]
        for block in self.decoder:
            x = block(x, xa, mask)
        return self.ln(x) @ self.token_embedding.weight.T


def log_mel(power):
    log = power.clamp(min=1e-10).log10()
    log = torch.maximum(log, log.amax(dim=(1, 2), keepdim=True) - 8.0)  # <- max_over_batch
    return (log + 4.0) / 4.0  # <- max_over_batch


def examples(g):
    power = 10.0 ** (3.0 * torch.randn(BATCH, MELS, FRAMES, generator=g) - 2.0)
    tokens = torch.full((BATCH, TEXT), EOT)
    tokens[:, 0] = SOT
    length = torch.randint(3, TEXT - 2, (BATCH,), generator=g)
    words = torch.randint(0, SOT, (BATCH, TEXT), generator=g)
    for row, n in enumerate(length.tolist()):
        tokens[row, 1:n + 1] = words[row, :n]
    wanted = tokens.masked_fill(torch.arange(TEXT) > length[:, None] + 1, -100)
    return log_mel(power), tokens[:, :-1], wanted[:, 1:]  # <- start_twice


torch.manual_seed(808)
model = Whisper()
with torch.no_grad():
    for name, p in model.named_parameters():
        p.normal_(1.0, 0.2) if "ln" in name and name.endswith("weight") else p.normal_(0.0, 0.15)
torch.save(model.state_dict(), sys.argv[1])
model.conv1.requires_grad_(False)  # <- stem_trained
model.conv2.requires_grad_(False)  # <- stem_trained
trained = [p for p in model.parameters() if p.requires_grad]  # <- stem_trained
first, second = [torch.zeros_like(p) for p in trained], [torch.zeros_like(p) for p in trained]

g = torch.Generator().manual_seed(16000)
losses = []
for t in range(1, STEPS + 1):
    mel, tokens, wanted = examples(g)
    logits = model(mel, tokens)  # <- start_twice
    loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=-100)
    grads = torch.autograd.grad(loss, trained)  # <- stem_trained
    with torch.no_grad():
        for p, d, m, v in zip(trained, grads, first, second):
            d = d + 0.02 * p  # <- adamw_for_adam
            m.lerp_(d, 0.1)
            v.lerp_(d * d, 0.02)
            p.addcdiv_(m, (v / (1 - 0.98 ** t)).sqrt() + 1e-6, value=-3e-3 / (1 - 0.9 ** t))  # <- adamw_for_adam
    losses.append(loss.item())

print(losses)
