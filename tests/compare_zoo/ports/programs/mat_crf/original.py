# SPDX-License-Identifier: Apache-2.0
"""Named entity tagger: character bag and word vectors, highway layer, linear-chain CRF, SAM."""

import sys

import torch
import torch.nn as nn

WORDS, CHARS, TAGS, DIM, LEN = 30, 12, 5, 6, 7


class WordEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(WORDS, DIM)
        self.char = nn.Embedding(CHARS, DIM, padding_idx=0)
        self.char_conv = nn.Conv1d(DIM, DIM, kernel_size=2)

    def forward(self, words, chars):
        b, t, n = chars.shape
        c = self.char(chars).view(b * t, n, DIM).transpose(1, 2)
        c = torch.tanh(self.char_conv(c)).amax(dim=2).view(b, t, DIM)
        return torch.cat([self.word(words), c], dim=-1)


class Highway(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, -1.0)

    def forward(self, x):
        g = torch.sigmoid(self.gate(x))
        return g * torch.relu(self.transform(x)) + (1 - g) * x  # <- carry_gate


class CRF(nn.Module):
    def __init__(self):
        super().__init__()
        self.trans = nn.Parameter(torch.randn(TAGS, TAGS) * 0.5)  # from row, to column
        self.start = nn.Parameter(torch.randn(TAGS) * 0.5)
        self.end = nn.Parameter(torch.randn(TAGS) * 0.5)

    def path_score(self, emit, tags, mask):
        total = torch.zeros(len(emit))
        for b in range(len(emit)):
            n = int(mask[b].sum())
            s = self.start[tags[b, 0]] + emit[b, 0, tags[b, 0]]
            for t in range(1, n):
                s = s + self.trans[tags[b, t - 1], tags[b, t]] + emit[b, t, tags[b, t]]
            total[b] = s + self.end[tags[b, n - 1]]  # <- end_state
        return total

    def partition(self, emit, mask):
        alpha = self.start + emit[:, 0]
        for t in range(1, emit.shape[1]):
            scores = alpha[:, :, None] + self.trans[None]  # <- transition_axis
            new = torch.logsumexp(scores, dim=1) + emit[:, t]  # <- transition_axis
            alpha = torch.where(mask[:, t, None], new, alpha)  # <- masked_step
        return torch.logsumexp(alpha + self.end, dim=1)  # <- masked_step

    def forward(self, emit, tags, mask):
        nll = self.partition(emit, mask) - self.path_score(emit, tags, mask)
        return (nll / mask.sum(1)).mean()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = WordEncoder()
        self.highway = Highway(2 * DIM)
        self.emit = nn.Linear(2 * DIM, TAGS)
        self.crf = CRF()

    def loss(self, words, chars, tags, mask):
        x = self.highway(self.encoder(words, chars))
        return self.crf(self.emit(x), tags, mask)


class SAM:
    def __init__(self, params, base, rho):
        self.params, self.base, self.rho = list(params), base, rho

    @torch.no_grad()
    def climb(self):
        norm = torch.stack([p.grad.norm() for p in self.params]).norm()  # <- sam_radius
        self.moves = [p.grad * (self.rho / (norm + 1e-12)) for p in self.params]  # <- sam_radius
        for p, e in zip(self.params, self.moves):
            p.add_(e)  # <- sam_radius
            p.grad = None

    @torch.no_grad()
    def descend(self):
        for p, e in zip(self.params, self.moves):
            p.sub_(e)
        self.base.step()
        self.base.zero_grad()


torch.manual_seed(0)
model = Tagger()
torch.save(model.state_dict(), sys.argv[1])
opt = SAM(
    model.parameters(),  # <- sam_radius
    torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5),
    rho=0.3,
)  # <- sam_radius
gen = torch.Generator().manual_seed(17)
losses = []
for step in range(4):
    words = torch.randint(0, WORDS, (3, LEN), generator=gen)
    chars = torch.randint(1, CHARS, (3, LEN, 4), generator=gen)
    chars[:, ::2, 3] = 0
    tags = torch.randint(0, TAGS, (3, LEN), generator=gen)
    mask = torch.arange(LEN) < torch.tensor([7, 5, 4])[:, None]
    loss = model.loss(words, chars, tags, mask)
    loss.backward()
    opt.climb()
    model.loss(words, chars, tags, mask).backward()
    opt.descend()
    losses.append(loss.item())
print(losses)
