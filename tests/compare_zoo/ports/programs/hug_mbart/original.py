# SPDX-License-Identifier: Apache-2.0
"""A small multilingual translator of torch.nn's pre-norm layers; the language starts the target."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

PAD, EOS, FIRST, WORDS, LANGS, DIM, HEADS, MAX_LEN, BATCH = 1, 2, 3, 40, 4, 24, 4, 16, 4
VOCAB = FIRST + WORDS + LANGS


def layer(kind):
    return kind(DIM, HEADS, 48, 0.0, F.gelu, batch_first=True, norm_first=True)


class Stem(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.words = words
        self.positions = nn.Embedding(MAX_LEN, DIM)
        self.norm = nn.LayerNorm(DIM)

    def forward(self, tokens):
        x = self.words(tokens) * DIM**0.5  # <- scaled
        return self.norm(x + self.positions.weight[: tokens.size(1)])  # <- offset


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        self.source, self.target = Stem(self.words), Stem(self.words)
        self.encoder = nn.TransformerEncoder(
            layer(nn.TransformerEncoderLayer), 2, nn.LayerNorm(DIM), enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(
            layer(nn.TransformerDecoderLayer), 2, nn.LayerNorm(DIM)
        )

    def forward(self, source, previous):
        hidden = source.eq(PAD)
        memory = self.encoder(self.source(source), src_key_padding_mask=hidden)  # <- mask
        future = torch.ones(previous.size(1), previous.size(1)).triu(1).bool()
        out = self.decoder(
            self.target(previous), memory, tgt_mask=future, memory_key_padding_mask=hidden
        )  # <- mask
        return F.linear(out, self.words.weight)


def sentences(longest, lang, generator):
    """Words, </s>, language, padding."""
    tokens = torch.randint(FIRST, FIRST + WORDS, (BATCH, longest), generator=generator)
    sizes = torch.randint(3, longest - 1, (BATCH, 1), generator=generator)
    sizes[0] = longest - 2
    place = torch.arange(longest)
    tokens = tokens.masked_fill(place == sizes, EOS)
    tokens = tokens.masked_fill(place == sizes + 1, lang)
    return tokens.masked_fill(place > sizes + 1, PAD)


torch.manual_seed(380)
model = Translator()
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 or "norm" in name:
            parameter.add_(0.1 * torch.randn(parameter.shape))
    model.words.weight.mul_(0.3)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-4)
generator = torch.Generator().manual_seed(381)
losses = []
for _ in range(4):
    source = sentences(11, VOCAB - 1, generator)
    wanted = sentences(9, VOCAB - 2, generator)
    previous = torch.cat((torch.full((BATCH, 1), VOCAB - 2), wanted[:, :-1]), dim=1)
    logits = model(source, previous)
    loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD)  # <- ignored
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clipped
    optimizer.step()  # <- clipped
    losses.append(loss.item())
