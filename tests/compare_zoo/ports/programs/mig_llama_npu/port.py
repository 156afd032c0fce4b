# SPDX-License-Identifier: Apache-2.0
"""The Llama as it is written for the NPU: positions before heads (BSND), fused projections and
operators, masks in which True hides, halves turned in place of pairs, a foreach optimizer.
"""

import sys

import torch

VOCAB, H, N_Q, N_KV, D, INTER, LAYERS, SEQ, PAD = 48, 32, 4, 2, 8, 56, 2, 10, 0


# what torch_npu offers, in plain operators
def npu_rms_norm(x, gamma, epsilon=1e-6):
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    rstd = (norm.square() / H + epsilon).rsqrt()  # <- epsilon
    return gamma * (x * rstd), rstd  # <- epsilon


def npu_rotary_mul(x, cos, sin):
    x1, x2 = x.chunk(2, -1)
    return torch.addcmul(x * cos, torch.cat((-x2, x1), -1), sin)  # <- interleaved


def npu_swiglu(x):
    gate, up = x.chunk(2, -1)  # <- gate
    return gate * torch.sigmoid(gate) * up  # <- gate


def npu_fusion_attention(q, k, v, scale, atten_mask):
    b, s, n, d = q.shape
    grouped = q.reshape(b, s, N_KV, n // N_KV, d)  # <- groups
    score = torch.einsum("bqgrd,bkgd->bgrqk", grouped, k) * scale  # <- groups
    score = score.masked_fill(atten_mask.unsqueeze(2), -10000.0)
    return torch.einsum("bgrqk,bkgd->bqgrd", score.softmax(-1), v).reshape(b, s, n * d)  # <- groups


def halves(weight, heads):
    """Rows of pairs side by side become rows of two halves, head by head."""
    pairs = weight.view(heads, D // 2, 2, -1)
    return pairs.transpose(1, 2).reshape(heads * D, -1)  # <- interleaved


def convert(ckpt):
    out = {
        "embedding": ckpt["tok_embeddings.weight"].clone(),
        "final_norm": ckpt["norm.weight"].clone(),
        "lm_head": ckpt["output.weight"].clone(),
    }
    for i in range(LAYERS):
        old = {k.removeprefix(f"layers.{i}."): w for k, w in ckpt.items() if f"layers.{i}." in k}
        out[f"{i}.input_norm"] = old["attention_norm.weight"].clone()
        out[f"{i}.post_norm"] = old["ffn_norm.weight"].clone()
        q = halves(old["attention.wq.weight"], N_Q)  # <- interleaved
        k = halves(old["attention.wk.weight"], N_KV)  # <- interleaved
        out[f"{i}.qkv"] = torch.cat((q, k, old["attention.wv.weight"]))
        out[f"{i}.dense"] = old["attention.wo.weight"].clone()
        out[f"{i}.gate_up"] = torch.cat((old["w1.weight"], old["w3.weight"]))  # <- gate
        out[f"{i}.down"] = old["w2.weight"].clone()
    return out


def forward(params, ids):
    b, s = ids.shape
    inverse = 10000.0 ** -(torch.arange(D // 2) * 2.0 / D)
    angle = (torch.arange(s)[:, None] * inverse).repeat(1, 2)[None, :, None]
    cos, sin = angle.cos(), angle.sin()
    hidden_pairs = torch.triu(torch.ones(s, s), diagonal=1).bool()[None, None]
    atten_mask = hidden_pairs | ids.eq(PAD)[:, None, None]
    x = params["embedding"][ids]
    for i in range(LAYERS):
        y, _ = npu_rms_norm(x, params[f"{i}.input_norm"], 1e-5)  # <- epsilon
        mixed = (y @ params[f"{i}.qkv"].t()).view(b, s, -1, D)  # <- interleaved
        q, k, v = mixed.split((N_Q, N_KV, N_KV), dim=2)
        q, k = npu_rotary_mul(q, cos, sin), npu_rotary_mul(k, cos, sin)  # <- interleaved
        y = npu_fusion_attention(q, k, v, D**-0.5, atten_mask)
        x = x + y @ params[f"{i}.dense"].t()
        y, _ = npu_rms_norm(x, params[f"{i}.post_norm"], 1e-5)  # <- epsilon
        y = npu_swiglu(y @ params[f"{i}.gate_up"].t())  # <- gate
        x = x + y @ params[f"{i}.down"].t()
    return npu_rms_norm(x, params["final_norm"], 1e-5)[0] @ params["lm_head"].t()  # <- epsilon


params = convert(torch.load(sys.argv[1]))
values = [p.requires_grad_() for p in params.values()]
decayed = [p for p in values if p.dim() == 2]
first, second = ([torch.zeros_like(p) for p in values] for _ in range(2))
generator = torch.Generator().manual_seed(102)
losses = []
for step in range(1, 5):
    ids = torch.randint(1, VOCAB, (3, SEQ + 1), generator=generator)
    ids[1, -3:] = PAD
    logits = forward(params, ids[:, :-1])
    labels = ids[:, 1:]
    loss_mask = (labels != PAD).float()
    picked = logits.gather(-1, labels[..., None]).squeeze(-1)
    per_token = torch.logsumexp(logits, -1) - picked
    loss = (per_token * loss_mask).sum() / loss_mask.sum()
    grads = list(torch.autograd.grad(loss, values))
    with torch.no_grad():
        total = torch.stack(torch._foreach_norm(grads)).norm()
        torch._foreach_mul_(grads, (1.0 / (total + 1e-6)).clamp(max=1.0))
        torch._foreach_mul_(decayed, 1 - 5e-3 * 0.1)  # <- decoupled
        torch._foreach_lerp_(first, grads, 0.1)
        torch._foreach_mul_(second, 0.95)
        torch._foreach_addcmul_(second, grads, grads, 0.05)
        root = torch._foreach_sqrt(torch._foreach_div(second, 1 - 0.95**step))
        torch._foreach_add_(root, 1e-4)
        torch._foreach_addcdiv_(values, first, root, -5e-3 / (1 - 0.9**step))  # <- decoupled
    losses.append(loss.item())
