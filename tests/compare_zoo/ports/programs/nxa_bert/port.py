# SPDX-License-Identifier: Apache-2.0
"""The pair classifier on torch's own encoder, sequence first; segments come from the separators."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
W, PADDING, SEPARATOR = 32, 0, 2


class PairClassifier(nn.Module):
    def __init__(self, words=50, length=16, labels=3, depth=2):
        super().__init__()
        self.word = nn.Parameter(torch.empty(words, W))
        self.place = nn.Parameter(torch.empty(length, W))
        self.side = nn.Parameter(torch.empty(2, W))
        self.ln = nn.LayerNorm(W, eps=1e-12)
        same = dict(dropout=0.0, layer_norm_eps=1e-12)
        layer = nn.TransformerEncoderLayer(W, 4, 2 * W, activation=F.gelu, **same)  # <- activation
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.ModuleDict({"pool": nn.Linear(W, W), "out": nn.Linear(W, labels)})

    def forward(self, ids):
        """ids: (length, batch)"""
        separators = (ids == SEPARATOR).long()
        side = separators.cumsum(0) - separators  # <- segment_edge
        side = side.where(ids != PADDING, 0)
        x = F.embedding(ids, self.word, padding_idx=PADDING) + self.place[:, None]
        x = self.ln(x + F.embedding(side, self.side))  # <- segment_edge
        ignore = (ids == PADDING).t()  # <- mask_sense
        x = self.encoder(x, src_key_padding_mask=ignore)  # <- mask_sense activation
        return self.head["out"](self.head["pool"](x[0]).tanh())


def rename(sd):
    new = {"word": sd["embeddings.word_embeddings.weight"],
           "place": sd["embeddings.position_embeddings.weight"],
           "side": sd["embeddings.token_type_embeddings.weight"]}
    pairs = [("embeddings.LayerNorm", "ln"), ("pooler", "head.pool"), ("classifier", "head.out")]
    for i in range(2):
        old, mine = f"layer.{i}.", f"encoder.layers.{i}."
        for kind in ("weight", "bias"):
            parts = [sd[f"{old}{n}.{kind}"] for n in ("query", "key", "value")]
            new[f"{mine}self_attn.in_proj_{kind}"] = torch.cat(parts)
        pairs += [(old + "attention_output", mine + "self_attn.out_proj"),
                  (old + "attention_norm", mine + "norm1"), (old + "output_norm", mine + "norm2"),
                  (old + "intermediate", mine + "linear1"), (old + "output", mine + "linear2")]
    for a, b in pairs:
        new[b + ".weight"], new[b + ".bias"] = sd[a + ".weight"], sd[a + ".bias"]
    return new


def batches(count, rows=6, length=16):
    rng = torch.Generator().manual_seed(21)
    for _ in range(count):
        words = torch.randint(3, 50, (rows, 12), generator=rng)
        m = torch.randint(2, 6, (rows,), generator=rng)[:, None]
        n = torch.randint(1, 6, (rows,), generator=rng)[:, None]
        y = torch.randint(0, 3, (rows,), generator=rng)
        at = torch.arange(length).expand(rows, length)
        source = torch.where(at <= m, at - 1, at - 2).clamp(0, 11)
        ids = words.gather(1, source).masked_fill((at == m + 1) | (at == m + n + 2), SEPARATOR)
        ids = ids.masked_fill(at > m + n + 2, PADDING)
        ids[:, 0] = 1
        yield ids.t(), y


def slope(t, total=10, warm=0.3):
    done = t / total
    return done / warm if done < warm else 1 - done


@torch.no_grad()
def adam_without_correction(params, memory, t, peak=2e-3, b1=0.9, b2=0.999):
    for name, p in params:
        m, v = memory.setdefault(name, (torch.zeros_like(p), torch.zeros_like(p)))
        m.lerp_(p.grad, 1 - b1)
        v.copy_(b2 * v + (1 - b2) * p.grad ** 2)
        move = m / (v.sqrt() + 1e-6)  # <- bias_correction
        if not (name.endswith("bias") or "norm" in name or name.startswith("ln")):
            move = move + 0.01 * p
        p.sub_(peak * slope(t) * move)  # <- bias_correction


net = PairClassifier()
net.load_state_dict(rename(torch.load(sys.argv[1], weights_only=True)))
importance = torch.tensor([0.5, 1.0, 2.5])
memory, losses = {}, []
for t, (ids, y) in enumerate(batches(4), start=1):
    log_p = net(ids).log_softmax(-1)
    share = importance[y]
    loss = -(share * log_p[torch.arange(len(y)), y]).sum() / share.sum()  # <- class_weights
    loss.backward()
    adam_without_correction(list(net.named_parameters()), memory, t)  # <- bias_correction
    net.zero_grad()
    losses.append(loss.item())
print(losses)
