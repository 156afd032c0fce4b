# SPDX-License-Identifier: Apache-2.0
"""Beam search for a transliteration model (GRU encoder, attentive GRU decoder), one word after
the other, hypotheses kept as Python objects."""
import sys
from dataclasses import dataclass

import torch
from torch import nn

SRC, TGT, EMB, HID = 30, 26, 20, 28
BOS, EOS = 0, 1
BEAM, MAX_STEPS, ALPHA = 4, 8, 0.7


class Transliterator(nn.Module):
    def __init__(self):
        super().__init__()
        self.src_embed = nn.Embedding(SRC, EMB)
        self.tgt_embed = nn.Embedding(TGT, EMB)
        self.encoder = nn.GRU(EMB, HID, batch_first=True)
        self.cell = nn.GRUCell(EMB + HID, HID)
        self.attn_query = nn.Linear(HID, HID, bias=False)
        self.attn_key = nn.Linear(HID, HID)
        self.attn_v = nn.Linear(HID, 1, bias=False)
        self.readout = nn.Linear(2 * HID, TGT)

    def encode(self, word):
        memory, last = self.encoder(self.src_embed(word)[None])  # <- resetgate
        return memory[0], last[0]

    def decode(self, token, state, memory):
        energy = self.attn_v(torch.tanh(self.attn_query(state) + self.attn_key(memory)))
        weight = energy.squeeze(-1).softmax(0)  # <- padmask
        context = weight @ memory  # <- padmask
        inp = torch.cat([self.tgt_embed(token), context], dim=-1)
        state = self.cell(inp[None], state)  # <- resetgate
        logits = self.readout(torch.cat([state[0], context]))
        return logits.log_softmax(-1), state


@dataclass
class Hypothesis:
    tokens: list
    score: float
    state: torch.Tensor
    done: bool = False

    def normalised(self):
        length = len(self.tokens) - 1  # <- lengthnorm
        return self.score / ((5 + length) / 6) ** ALPHA  # <- lengthnorm


def beam_search(model, word):
    memory, state = model.encode(word)
    beam = [Hypothesis([BOS], 0.0, state)]
    for _ in range(MAX_STEPS):
        pool = []
        for hyp in beam:
            if hyp.done:  # <- finished
                pool.append(hyp)  # <- finished
                continue
            last = torch.tensor(hyp.tokens[-1])
            logp, new = model.decode(last, hyp.state, memory)  # <- reorder
            for token, lp in enumerate(logp.tolist()):
                tokens = hyp.tokens + [token]
                pool.append(Hypothesis(tokens, hyp.score + lp, new, token == EOS))  # <- reorder
        beam = sorted(pool, key=lambda h: -h.score)[:BEAM]
        if all(h.done for h in beam):
            break
    return max(beam, key=Hypothesis.normalised)


torch.manual_seed(0)
model = Transliterator().eval()
with torch.no_grad():
    for p in model.parameters():
        p.normal_(0, 0.55)
    model.readout.bias[EOS] += 2.0
    model.readout.bias[BOS] -= 20.0
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(5)
losses = []
with torch.no_grad():
    for batch in range(4):
        total = 0.0
        for length in (3, 7, 5, 4):
            word = torch.randint(1, SRC, (length,), generator=gen)
            best = beam_search(model, word)
            total += best.normalised() - 0.1 * (len(best.tokens) - 1)
        losses.append(total / 4)
print(losses)
