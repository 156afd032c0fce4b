# SPDX-License-Identifier: Apache-2.0
"""The same pair of networks as one has them in MindSpore: operators and lists of tensors, kernels in
by out, a cell that yields the loss, the optimizer's state as tuples.
"""

import math
import sys

import numpy as np
import torch

VOCAB_SIZE, SEQ_LENGTH, NUM_HEADS, PAD_ID, MASK_ID = 30, 14, 2, 0, 3
LOSS_WEIGHT = 50.0


def reduce_mean(x, weights):
    return (x * weights).sum() / weights.sum()


def norm(x, gamma, beta):
    centred = x - x.mean(-1, keepdim=True)
    return gamma * centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-12) + beta


def gelu(x):
    return 0.5 * x * torch.erfc(-x / math.sqrt(2.0))


def embedding_lookup(table, ids):
    one_hot = (ids[..., None] == torch.arange(VOCAB_SIZE)).float()
    return one_hot @ table


def embed(shared, ids):
    table, positions, gamma, beta = shared
    return norm(embedding_lookup(table, ids) + positions[None], gamma, beta)  # <- position


def multi_head_attention(x, attention_mask, wqkv, bqkv, wo, bo):
    batch, length, width = x.shape
    qkv = torch.matmul(x.reshape(-1, width), wqkv) + bqkv
    qkv = qkv.reshape(batch, length, 3, NUM_HEADS, width // NUM_HEADS)  # <- heads
    query, key, value = (qkv[:, :, i].permute(0, 2, 1, 3) for i in range(3))  # <- heads
    scores = torch.matmul(query, key.permute(0, 1, 3, 2)) / math.sqrt(width // NUM_HEADS)
    scores = scores + (1.0 - attention_mask[:, None, None, :]) * -10000.0  # <- padding
    context = torch.matmul(torch.softmax(scores, -1), value).permute(0, 2, 1, 3)  # <- padding
    return context.reshape(batch, length, width) @ wo + bo


def encoder_cell(x, attention_mask, weights):
    attention, (g1, b1), (w_in, b_in, w_out, b_out), (g2, b2) = weights
    x = norm(x + multi_head_attention(x, attention_mask, *attention), g1, b1)
    return norm(x + gelu(x @ w_in + b_in) @ w_out + b_out, g2, b2)


def backbone(shared, weights, ids):
    (w, b), *cells = weights
    hidden = embed(shared, ids) @ w + b
    attention_mask = (ids != PAD_ID).float()
    for cell in cells:
        hidden = encoder_cell(hidden, attention_mask, cell)
    return hidden


def generator(shared, weights, ids):
    body, (w, b, gamma, beta, bias) = weights
    hidden = norm(gelu(backbone(shared, body, ids) @ w + b), gamma, beta)
    return hidden @ shared[0].T + bias


def discriminator(shared, weights, ids):
    body, (w1, b1, w2, b2) = weights
    hidden = backbone(shared, body, ids) @ w1 + b1
    hidden = gelu(hidden)  # <- head
    return (hidden @ w2 + b2)[..., 0]


def network_with_loss(parameters, ids, masked, gumbel):
    shared, generating, discriminating = parameters
    logits = generator(shared, generating, torch.where(masked, MASK_ID, ids))
    log_probs = torch.log_softmax(logits, -1)
    one_hot = (ids[..., None] == torch.arange(VOCAB_SIZE)).float()
    generator_loss = reduce_mean(-(log_probs * one_hot).sum(-1), masked.float())
    sampled = torch.argmax(log_probs.detach() + gumbel, -1)  # <- sampling
    corrupted = torch.where(masked, sampled, ids)
    labels = torch.ne(corrupted, ids).float()  # <- replaced
    scores = discriminator(shared, discriminating, corrupted)
    each = torch.clamp_min(scores, 0) - scores * labels + torch.log1p(torch.exp(-scores.abs()))
    discriminator_loss = reduce_mean(each, (ids != PAD_ID).float())  # <- average
    return generator_loss + LOSS_WEIGHT * discriminator_loss


def parameters_of(checkpoint):
    def take(prefix, *names):
        tensors = [checkpoint[f"{prefix}.{name}"] for name in names]
        return [t.T.contiguous() if t.dim() == 2 else t for t in tensors]

    def linear(prefix):
        return take(prefix, "weight", "bias")

    def cell(prefix):
        attention = take(f"{prefix}.self_attn", "in_proj_weight", "in_proj_bias")
        attention += linear(f"{prefix}.self_attn.out_proj")
        feed_forward = linear(f"{prefix}.linear1") + linear(f"{prefix}.linear2")
        return [attention, linear(f"{prefix}.norm1"), feed_forward, linear(f"{prefix}.norm2")]

    def body(prefix):
        cells = [cell(f"{prefix}.encoder.layers.{i}") for i in range(2)]
        return [linear(f"{prefix}.project"), *cells]

    embeddings = "discriminator.electra.embeddings"
    tables = [checkpoint[f"{embeddings}.{name}.weight"] for name in ("word", "position")]
    head = linear("generator.dense") + linear("generator.norm") + [checkpoint["generator.bias"]]
    judge = linear("discriminator.dense") + linear("discriminator.dense_prediction")
    return [
        tables + linear(f"{embeddings}.norm"),
        [body("generator.electra"), head],
        [body("discriminator.electra"), judge],
    ]


def flat(nested):
    return [t for part in nested for t in (flat(part) if isinstance(part, list) else [part])]


def warmup_lr(global_step, peak=1e-2, warmup_steps=10):
    return peak * (global_step + 1) / warmup_steps  # <- warmup


def adam_weight_decay(tensors, grads, moments, global_step):
    lr, power = warmup_lr(global_step), global_step + 1
    with torch.no_grad():
        for tensor, grad, (m, v) in zip(tensors, grads, moments):
            m.copy_(0.9 * m + 0.1 * grad)
            v.copy_(0.999 * v + 0.001 * grad**2)
            update = (m / (1 - 0.9**power)) / (torch.sqrt(v / (1 - 0.999**power)) + 1e-6)
            tensor.copy_(tensor - lr * (update + 0.01 * tensor))  # <- warmup


def dataset(rng, steps, batch=6):
    for _ in range(steps):
        ids = rng.integers(4, VOCAB_SIZE, (batch, SEQ_LENGTH))
        lengths = rng.integers(8, SEQ_LENGTH + 1, (batch, 1))
        ids = np.where(np.arange(SEQ_LENGTH)[None] < lengths, ids, PAD_ID)
        masked = np.logical_and(rng.random((batch, SEQ_LENGTH)) < 0.35, ids != PAD_ID)
        gumbel = rng.gumbel(size=(batch, SEQ_LENGTH, VOCAB_SIZE)).astype(np.float32)
        yield torch.tensor(ids), torch.tensor(masked), torch.tensor(gumbel)


parameters = parameters_of(torch.load(sys.argv[1]))
tensors = [t.requires_grad_() for t in flat(parameters)]
moments = [(torch.zeros_like(t), torch.zeros_like(t)) for t in tensors]
losses = []
for global_step, inputs in enumerate(dataset(np.random.default_rng(62), 3)):
    loss = network_with_loss(parameters, *inputs)
    grads = torch.autograd.grad(loss, tensors)
    adam_weight_decay(tensors, grads, moments, global_step)
    losses.append(loss.item())
