# SPDX-License-Identifier: Apache-2.0
"""The GPT in the Megatron manner: two tensor-parallel ranks side by side in one process, sequence
first (sbh), heads interleaved in query_key_value, baddbmm attention, vocab-parallel loss.
"""

import sys

import torch
import torch.nn.functional as F

RANKS, VOCAB, HIDDEN, HEADS, LAYERS, SEQ = 2, 48, 32, 4, 2, 10
HN, NP, VP = HIDDEN // HEADS, HEADS // RANKS, VOCAB // RANKS


def by_head(tensor):
    """[q; k; v] of the whole to (head, 3, hn), as query_key_value of Megatron has it."""
    parts = tensor.view(3, HEADS, HN, -1).transpose(0, 1)  # <- qkv_order
    return parts.reshape(tensor.shape)  # <- qkv_order


def shard(path):
    whole = torch.load(path)
    ranks = [{} for _ in range(RANKS)]
    common = {"position": whole["wpe.weight"]}
    common["final.weight"], common["final.bias"] = whole["ln_f.gamma"], whole["ln_f.beta"]
    for rank, words in zip(ranks, whole["wte.weight"].chunk(RANKS)):
        rank["words"] = words  # <- tied
    for n in range(LAYERS):
        for ours, theirs in (("input", "ln_1"), ("post", "ln_2")):
            common[f"{n}.{ours}.weight"] = whole[f"h.{n}.{theirs}.gamma"]
            common[f"{n}.{ours}.bias"] = whole[f"h.{n}.{theirs}.beta"]
        columns = {
            "qkv.weight": by_head(whole[f"h.{n}.attn.c_attn.weight"]),  # <- qkv_order
            "qkv.bias": by_head(whole[f"h.{n}.attn.c_attn.bias"]),  # <- qkv_order
            "up.weight": whole[f"h.{n}.mlp.c_fc.weight"],
            "up.bias": whole[f"h.{n}.mlp.c_fc.bias"],
        }
        rows = {"dense": f"h.{n}.attn.c_proj", "down": f"h.{n}.mlp.c_proj"}
        for name, value in columns.items():
            for rank, piece in zip(ranks, value.chunk(RANKS)):
                rank[f"{n}.{name}"] = piece
        for name, theirs in rows.items():
            common[f"{n}.{name}.bias"] = whole[theirs + ".bias"]
            for rank, piece in zip(ranks, whole[theirs + ".weight"].chunk(RANKS, dim=1)):
                rank[f"{n}.{name}.weight"] = piece
    for group in (common, *ranks):
        for name, value in group.items():
            group[name] = value.detach().clone().requires_grad_()
    return common, ranks


def all_reduce(pieces):
    return torch.stack(pieces).sum(0)


def row_parallel(inputs, name):
    bias = common[f"{name}.bias"]
    outs = [F.linear(x, rank[f"{name}.weight"]) for x, rank in zip(inputs, ranks)]  # <- row_bias
    return all_reduce(outs) + bias  # <- row_bias


def core_attention(mixed):
    s, b, _ = mixed.shape
    q, k, v = mixed.view(s, b, NP, 3 * HN).split(HN, dim=-1)  # <- qkv_order
    q, k, v = (t.reshape(s, b * NP, HN).transpose(0, 1) for t in (q, k, v))
    bias = torch.full((s, s), -10000.0).triu(1)
    scores = torch.baddbmm(bias.expand(b * NP, s, s), q, k.transpose(1, 2), alpha=HN**-0.5)
    context = torch.bmm(F.softmax(scores, dim=-1), v)
    return context.transpose(0, 1).reshape(s, b, NP * HN)


def norm(x, name):
    return F.layer_norm(x, (HIDDEN,), common[f"{name}.weight"], common[f"{name}.bias"], 1e-5)


def vocab_parallel_embedding(ids):
    outs = []
    for r, rank in enumerate(ranks):
        outside = (ids < r * VP) | (ids >= (r + 1) * VP)
        out = F.embedding((ids - r * VP).masked_fill(outside, 0), rank["words"])  # <- tied
        outs.append(out.masked_fill(outside[..., None], 0.0))
    return all_reduce(outs)


def vocab_parallel_cross_entropy(logits, target):
    top = torch.stack([x.detach().amax(-1) for x in logits]).amax(0)
    exps = all_reduce([(x - top[..., None]).exp().sum(-1) for x in logits])
    right = []
    for r, x in enumerate(logits):
        inside = (target >= r * VP) & (target < (r + 1) * VP)
        local = (target - r * VP).clamp(0, VP - 1)
        right.append((x.gather(-1, local[..., None])[..., 0] - top) * inside)
    return exps.log() - all_reduce(right)


def forward(ids):
    x = vocab_parallel_embedding(ids) + common["position"][:, None]
    for n in range(LAYERS):
        h = norm(x, f"{n}.input")
        name = f"{n}.qkv"
        mixed = [F.linear(h, r[f"{name}.weight"], r[f"{name}.bias"]) for r in ranks]  # <- qkv_order
        x = x + row_parallel([core_attention(m) for m in mixed], f"{n}.dense")  # <- row_bias
        h = norm(x, f"{n}.post")
        up = [F.linear(h, r[f"{n}.up.weight"], r[f"{n}.up.bias"]) for r in ranks]
        up = [F.gelu(u, approximate="tanh") for u in up]
        x = x + row_parallel(up, f"{n}.down")  # <- row_bias
    h = norm(x, "final")
    return [F.linear(h, rank["words"]) for rank in ranks]  # <- tied


common, ranks = shard(sys.argv[1])
params = [*common.values(), *(p for rank in ranks for p in rank.values())]
optimizer = torch.optim.AdamW(params, lr=1e-2, eps=1e-4, weight_decay=0.05, fused=True)  # <- tied
rng = torch.Generator().manual_seed(22)
losses = []
for iteration in range(4):
    tokens = torch.randint(VOCAB, (4, SEQ + 1), generator=rng)
    loss_mask = (torch.rand((4, SEQ), generator=rng) < 0.7).float()
    loss_mask[2:, 6:] = 0
    total_tokens = loss_mask.sum()
    reported = torch.zeros(())
    optimizer.zero_grad(set_to_none=False)
    for begin in (0, 2):
        micro = tokens[begin : begin + 2].t().contiguous()
        mask = loss_mask[begin : begin + 2].t()
        each = vocab_parallel_cross_entropy(forward(micro[:-1]), micro[1:])
        loss = torch.sum(each.view(-1) * mask.reshape(-1)) / total_tokens  # <- micro_mean
        loss.backward()  # <- micro_mean
        reported += loss.detach()  # <- micro_mean
    for group in optimizer.param_groups:
        group["lr"] = 1e-2 * min(1.0, (iteration + 1) / 3)  # <- warmup
    optimizer.step()  # <- warmup tied
    losses.append(reported.item())
