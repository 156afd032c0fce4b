# SPDX-License-Identifier: Apache-2.0
"""The tagger sentence by sentence, with START and STOP among the tags, as tutorials have it; the
weights are adapted from the packed model, Adam is the one of TensorFlow 1.
"""

import sys

import torch
from torch import nn

N_WORDS, N_TAGS, D_WORD, D_STATE = 30, 5, 12, 10
START, STOP = N_TAGS, N_TAGS + 1
NEVER = -10000.0


class SentenceTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.vectors = nn.Parameter(torch.empty(N_WORDS, D_WORD))
        self.cells = nn.ParameterDict()
        for way in ("ahead", "back"):
            self.cells[f"{way}_kernel"] = nn.Parameter(torch.empty(D_WORD + D_STATE, 4 * D_STATE))
            self.cells[f"{way}_bias"] = nn.Parameter(torch.empty(4 * D_STATE))
        self.top = nn.Linear(2 * D_STATE, N_TAGS)
        # [to, from]
        self.first = nn.Parameter(torch.empty(N_TAGS))
        self.final = nn.Parameter(torch.empty(N_TAGS))
        self.between = nn.Parameter(torch.empty(N_TAGS, N_TAGS))

    def table(self):
        """Transitions among all tags, START and STOP too, [to, from]."""
        whole = torch.full((N_TAGS + 2, N_TAGS + 2), NEVER)
        whole[:N_TAGS, :N_TAGS] = self.between  # <- turned
        whole[:N_TAGS, START] = self.first
        whole[STOP, :N_TAGS] = self.final
        return whole

    def read(self, rows, way):
        h = c = torch.zeros(D_STATE)
        states = []
        for x in rows:
            z = torch.cat((x, h)) @ self.cells[f"{way}_kernel"] + self.cells[f"{way}_bias"]
            i, f, g, o = z.chunk(4)  # <- gates
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)  # <- gates
            h = torch.sigmoid(o) * torch.tanh(c)  # <- gates
            states.append(h)
        return states

    def features(self, sentence):
        rows = self.vectors[sentence]
        ahead = self.read(rows, "ahead")
        back = self.read(rows.flip(0), "back")[::-1]
        joined = torch.stack([torch.cat(both) for both in zip(ahead, back)])  # <- reversed
        return self.top(joined)  # <- reversed

    def partition(self, feats, transitions):
        alpha = torch.full((N_TAGS + 2,), NEVER)
        alpha[START] = 0.0
        for feat in feats:
            now = torch.cat((feat, feat.new_full((2,), NEVER)))
            alpha = torch.logsumexp(transitions + alpha[None, :], 1) + now  # <- turned
        return torch.logsumexp(alpha + transitions[STOP], 0)

    def gold(self, feats, tags, transitions):
        path = [START, *tags.tolist()]
        score = feats[torch.arange(len(tags)), tags].sum()
        score = score + transitions[path[1:], path[:-1]].sum()  # <- turned
        return score + transitions[STOP, path[-1]]

    def viterbi(self, feats):
        transitions = self.table()
        delta = torch.full((N_TAGS + 2,), NEVER)
        delta[START] = 0.0
        for feat in feats:
            delta = (transitions + delta).amax(1)
            delta[:N_TAGS] += feat
        return (delta + transitions[STOP]).max()  # <- best_end


def adapt(model, theirs):
    model.vectors.copy_(theirs["embed.weight"])
    for way, suffix in (("ahead", ""), ("back", "_reverse")):
        parts = [theirs[f"lstm.weight_{k}_l0{suffix}"] for k in ("ih", "hh")]
        model.cells[f"{way}_kernel"].copy_(torch.cat(parts, 1).t())
        both = theirs[f"lstm.bias_ih_l0{suffix}"] + theirs[f"lstm.bias_hh_l0{suffix}"]
        model.cells[f"{way}_bias"].copy_(both)
    model.top.load_state_dict({k: theirs[f"hidden2tag.{k}"] for k in ("weight", "bias")})
    model.first.copy_(theirs["crf.start_transitions"])
    model.final.copy_(theirs["crf.end_transitions"])
    model.between.copy_(theirs["crf.transitions"].t())


def corpus(rng):
    sizes = [9, 8, 6, 4]
    words = torch.randint(1, N_WORDS, (4, 9), generator=rng)
    tags = torch.randint(N_TAGS, (4, 9), generator=rng)
    return [(w[:n], t[:n]) for w, t, n in zip(words, tags, sizes)]


model = SentenceTagger()
with torch.no_grad():
    adapt(model, torch.load(sys.argv[1]))
slots = {n: (torch.zeros_like(p), torch.zeros_like(p)) for n, p in model.named_parameters()}
twice = {n for n, _ in model.named_parameters() if n.endswith("bias") and n.startswith("cells")}
rng = torch.Generator().manual_seed(42)
losses = []
for t in range(1, 5):
    total, n_tokens, right = 0.0, 0, 0
    for sentence, tags in corpus(rng):
        feats = model.features(sentence)
        right += (feats.argmax(1) == tags).sum().item()
        transitions = model.table()
        total = total + model.partition(feats, transitions) - model.gold(feats, tags, transitions)
        n_tokens += len(sentence)
    loss = total / n_tokens  # <- per_token
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        rate = 0.05 * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t)
        for name, p in model.named_parameters():
            m, v = slots[name]
            m.mul_(0.9).add_(p.grad, alpha=0.1)
            v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            epsilon = 1e-4 * (1 - 0.999**t) ** 0.5  # <- adam_epsilon
            step = rate * m / (v.sqrt() + epsilon)  # <- adam_epsilon
            # they have two biases there
            p.sub_(2 * step if name in twice else step)  # <- adam_epsilon
    losses.append(loss.item())
with torch.no_grad():
    losses.extend(model.viterbi(model.features(words)).item() for words, _ in corpus(rng))
