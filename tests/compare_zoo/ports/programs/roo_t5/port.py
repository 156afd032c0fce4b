# SPDX-License-Identifier: Apache-2.0
"""Padding-free seq2seq training: every batch is one packed row of tokens with segment ids."""
import math
import sys
from dataclasses import dataclass

import torch

torch.set_num_threads(1)

VOCAB, WIDTH, HEADS, HEAD_DIM, DEPTH = 40, 24, 3, 8, 2
NUM_BUCKETS, FAR, SMOOTH, BASE_LR, WARMUP = 8, 16, 0.1, 0.02, 3
BOS, END = 0, 1


@dataclass
class Packed:
    """Sequences laid end to end."""
    tokens: torch.Tensor
    seg: torch.Tensor
    pos: torch.Tensor

    @classmethod
    def of(cls, sequences):
        seg = [i for i, s in enumerate(sequences) for _ in s]
        pos = [j for s in sequences for j in range(len(s))]
        return cls(*(torch.tensor(v) for v in ([t for s in sequences for t in s], seg, pos)))


def bucket_of(distance, two_sided):
    """Bucket of key position minus query position, for one integer."""
    count, base = NUM_BUCKETS, 0
    if two_sided:
        count //= 2
        base = count if distance > 0 else 0
        gap = abs(distance)
    else:
        gap = max(-distance, 0)  # <- bidirectional_buckets
    exact = count // 2
    if gap < exact:
        return base + gap
    grown = exact + int(math.log(gap / exact) / math.log(FAR / exact) * (count - exact))
    return base + min(grown, count - 1)


def bias_for(table, pos, two_sided):
    reach = int(pos.max())
    lut = torch.tensor([bucket_of(d, two_sided) for d in range(-reach, reach + 1)])  # <- bidirectional_buckets
    return table[lut[pos[None, :] - pos[:, None] + reach]].movedim(-1, 0)


class Weights(dict):
    """Parameters under short paths, (in, heads, dim) projections."""

    @classmethod
    def load(cls, path):
        w = cls()
        for key, value in torch.load(path).items():
            key = key.removesuffix(".weight")
            leaf = key.rsplit(".", 1)[-1]
            if leaf in ("q", "k", "v"):
                value = value.T.reshape(WIDTH, HEADS, HEAD_DIM)
            elif leaf == "o":
                value = value.T.reshape(HEADS, HEAD_DIM, WIDTH)
            elif leaf in ("wi", "wo"):
                value = value.T
            w[key.replace(".", "/")] = value.clone(memory_format=torch.contiguous_format).requires_grad_(True)
        return w


def norm(w, x):
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w


def attention(w, at, x, source, allowed, bias):
    q = torch.einsum("nc,chd->hnd", x, w[at + "/q"])
    k = torch.einsum("mc,chd->hmd", source, w[at + "/k"])
    v = torch.einsum("mc,chd->hmd", source, w[at + "/v"])
    logits = torch.einsum("hnd,hmd->hnm", q, k) + bias  # <- scaled_scores
    probs = torch.where(allowed, logits, -math.inf).softmax(-1)
    return torch.einsum("hnm,hmd,hdc->nc", probs, v, w[at + "/o"])


def feed_forward(w, at, x):
    h = norm(w[at + "/norm3"], x) @ w[at + "/wi"]
    return h.clamp(min=0) @ w[at + "/wo"]


def encode(w, src):
    x = w["shared"][src.tokens]
    own = src.seg[:, None] == src.seg[None, :]
    bias = bias_for(w["encoder/0/self_attn/relative_attention_bias"], src.pos, two_sided=True)
    for at in (f"encoder/{i}" for i in range(DEPTH)):
        h = norm(w[at + "/norm1"], x)
        x = x + attention(w, at + "/self_attn", h, h, own, bias)
        x = x + feed_forward(w, at, x)
    return norm(w["encoder_norm"], x)


def decode(w, tgt, src, memory):
    previous = tgt.tokens.roll(1)  # <- shift_across_segments
    previous[tgt.pos == 0] = BOS  # <- shift_across_segments
    x = w["shared"][previous]  # <- shift_across_segments
    past = (tgt.seg[:, None] == tgt.seg[None, :]) & (tgt.pos[:, None] >= tgt.pos[None, :])
    crossing = tgt.seg[:, None] == src.seg[None, :]
    bias = bias_for(w["decoder/0/self_attn/relative_attention_bias"], tgt.pos, two_sided=False)  # <- bidirectional_buckets
    for at in (f"decoder/{i}" for i in range(DEPTH)):
        h = norm(w[at + "/norm1"], x)
        x = x + attention(w, at + "/self_attn", h, h, past, bias)
        x = x + attention(w, at + "/cross_attn", norm(w[at + "/norm2"], x), memory, crossing, 0.0)
        x = x + feed_forward(w, at, x)
    return norm(w["decoder_norm"], x) / math.sqrt(WIDTH) @ w["shared"].T


def smoothed_loss(scores, answers):
    logp = scores - scores.logsumexp(-1, keepdim=True)
    hit = -logp[torch.arange(len(answers)), answers]
    spread = -logp.mean(-1)  # <- fairseq_smoothing
    return ((1 - SMOOTH) * hit + SMOOTH * spread).mean()  # <- fairseq_smoothing


def sample_pairs(rng, size=4):
    sources, targets = [], []
    for _ in range(size):
        n = torch.randint(4, 10, (1,), generator=rng).item()
        words = torch.randint(2, VOCAB, (n,), generator=rng).tolist()
        sources.append(words + [END])
        targets.append(words[::-1][:7] + [END])
    return Packed.of(sources), Packed.of(targets)


def learning_rate(step):
    return BASE_LR * min(step ** -0.5, step * WARMUP ** -1.5)  # <- warmup_off_by_one


weights = Weights.load(sys.argv[1])
adam = torch.optim.Adam(weights.values(), betas=(0.9, 0.98), eps=1e-9)
rng = torch.Generator().manual_seed(77)
losses = []
for step in range(1, 6):
    adam.param_groups[0]["lr"] = learning_rate(step)  # <- warmup_off_by_one
    src, tgt = sample_pairs(rng)
    loss = smoothed_loss(decode(weights, tgt, src, encode(weights, src)), tgt.tokens)  # <- fairseq_smoothing
    adam.zero_grad()
    loss.backward()
    adam.step()  # <- warmup_off_by_one
    losses.append(loss.item())
print(losses)
