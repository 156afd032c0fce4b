# SPDX-License-Identifier: Apache-2.0
"""Batched beam search: all words of a batch padded together, all beams advanced at once."""
import sys
import torch
import torch.nn.functional as F

PAD, BOS, EOS, NEG = 0, 0, 1, -1e9
WIDTH, LIMIT, ALPHA = 4, 8, 0.7
W = torch.load(sys.argv[1], weights_only=True)


def gru(x, h, w_ih, w_hh, b_ih, b_hh):
    xr, xz, xn = F.linear(x, w_ih, b_ih).chunk(3, -1)
    hr, hz, hn = F.linear(h, w_hh, b_hh).chunk(3, -1)  # <- resetgate
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    n = torch.tanh(xn + r * hn)  # <- resetgate
    return n + z * (h - n)


ENC = [W[f"encoder.{k}_l0"] for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
DEC = [W[f"cell.{k}"] for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


def encode(src, valid):
    emb = F.embedding(src, W["src_embed.weight"])
    h = emb.new_zeros(src.shape[0], ENC[1].shape[1])
    outs = []
    for t in range(src.shape[1]):
        h = torch.where(valid[:, t, None], gru(emb[:, t], h, *ENC), h)
        outs.append(h)
    return torch.stack(outs, 1), h


def advance(prev, h, memory, keys, valid):
    """prev (B, K), h (B, K, H), memory and keys (B, S, H) -> log-probabilities and new state."""
    query = F.linear(h, W["attn_query.weight"])
    energy = torch.tanh(query[:, :, None] + keys[:, None]) @ W["attn_v.weight"][0]
    energy = energy.masked_fill(~valid[:, None], NEG)  # <- padmask
    context = torch.softmax(energy, -1) @ memory  # <- padmask
    x = torch.cat((F.embedding(prev, W["tgt_embed.weight"]), context), -1)
    h = gru(x, h, *DEC)
    logits = F.linear(torch.cat((h, context), -1), W["readout.weight"], W["readout.bias"])
    return F.log_softmax(logits, -1), h


def search(src, valid):
    memory, h = encode(src, valid)
    keys = F.linear(memory, W["attn_key.weight"], W["attn_key.bias"])
    B, V = src.shape[0], W["readout.bias"].numel()
    h = h[:, None].repeat(1, WIDTH, 1)
    score = torch.full((B, WIDTH), NEG)
    score[:, 0] = 0.0
    prev = torch.full((B, WIDTH), BOS)
    done = torch.zeros(B, WIDTH, dtype=torch.bool)
    length = torch.zeros(B, WIDTH)
    only_eos = torch.full((V,), NEG)  # <- finished
    only_eos[EOS] = 0.0  # <- finished
    for _ in range(LIMIT):
        logp, h = advance(prev, h, memory, keys, valid)
        logp = torch.where(done[..., None], only_eos, logp)  # <- finished
        score, flat = (score[..., None] + logp).flatten(1).topk(WIDTH)
        parent, prev = flat // V, flat % V
        h = h.gather(1, parent[..., None].expand_as(h))  # <- reorder
        done, length = done.gather(1, parent), length.gather(1, parent)
        length = length + (~done).float()
        done = done | (prev == EOS)
    ranked = score / ((5.0 + length) / 6.0).pow(ALPHA)  # <- lengthnorm
    best, where = ranked.max(1)
    return best, length.gather(1, where[:, None])[:, 0]


g = torch.Generator().manual_seed(5)
losses = []
with torch.inference_mode():
    for _ in range(4):
        words = [torch.randint(1, 30, (n,), generator=g) for n in (3, 7, 5, 4)]
        sizes = torch.tensor([len(w) for w in words])
        src = torch.nn.utils.rnn.pad_sequence(words, batch_first=True, padding_value=PAD)
        valid = torch.arange(src.shape[1]) < sizes[:, None]
        best, length = search(src, valid)
        losses.append((best - 0.1 * length).mean().item())
print(losses)
