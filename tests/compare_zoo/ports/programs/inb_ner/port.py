# SPDX-License-Identifier: Apache-2.0
"""Sequence labelling server code: plain functions over a weight dictionary, Viterbi in numpy."""
import sys

import numpy as np
import torch


def char_features(w, chars):
    e = w["chars.embed.weight"][chars]  # b t c d
    e = torch.nn.functional.pad(e, (0, 0, 1, 1))
    win = e.unfold(2, 3, 1)  # b t c d k
    y = torch.einsum("btcdk,fdk->btcf", win, w["chars.conv.weight"]) + w["chars.conv.bias"]
    return y.tanh().max(2).values  # <- charpool


def lstm_direction(w, suffix, x, valid):
    h = c = x.new_zeros(x.shape[0], w["lstm.weight_hh_l0"].shape[1])
    pre = x @ w["lstm.weight_ih_l0" + suffix].T
    pre = pre + w["lstm.bias_ih_l0" + suffix] + w["lstm.bias_hh_l0" + suffix]
    steps = range(x.shape[1])
    outs = [None] * x.shape[1]
    for t in reversed(steps) if suffix else steps:
        gates = pre[:, t] + h @ w["lstm.weight_hh_l0" + suffix].T
        i, f, g, o = gates.chunk(4, 1)  # <- gateorder
        c_new = f.sigmoid() * c + i.sigmoid() * g.tanh()  # <- gateorder
        h_new = o.sigmoid() * c_new.tanh()
        live = valid[:, t : t + 1]
        c = torch.where(live, c_new, c)
        h = torch.where(live, h_new, h)
        outs[t] = h * live
    return torch.stack(outs, 1)


def unary_scores(w, words, chars):
    valid = words > 0
    x = torch.cat((w["words.weight"][words], char_features(w, chars)), 2)
    states = [lstm_direction(w, s, x, valid) for s in ("", "_reverse")]
    return torch.cat(states, 2) @ w["out.weight"].T + w["out.bias"], valid


def forward_algorithm(w, unary, valid):
    trans = w["crf.transitions"]
    alpha = unary[:, 0] + w["crf.start"]
    for t in range(1, unary.shape[1]):
        m = alpha.max(1, keepdim=True).values
        peak = trans.max()
        step = ((alpha - m).exp() @ (trans - peak).exp()).log() + m + peak  # <- direction
        step = step + unary[:, t]  # <- direction
        alpha = torch.where(valid[:, t].unsqueeze(1), step, alpha)  # <- frozen
    final = alpha + w["crf.end"]  # <- stop
    return final.logsumexp(1)  # <- stop


def viterbi(unary, n, start, end, trans):
    unary = unary[:n]
    score = start + unary[0]
    pointers = np.zeros((n, len(start)), dtype=np.int64)
    for t in range(1, n):
        cand = score[:, None] + trans
        pointers[t] = cand.argmax(0)
        score = cand.max(0) + unary[t]
    score = score + end
    path = [int(score.argmax())]
    for t in range(n - 1, 0, -1):
        path.insert(0, int(pointers[t, path[0]]))
    return score.max(), path


@torch.inference_mode()
def main():
    blob = torch.load(sys.argv[1], weights_only=True)
    w = blob["model"]
    tables = [w["crf." + k].numpy() for k in ("start", "end", "transitions")]
    results = []
    for words, chars, lengths in blob["data"]:
        unary, valid = unary_scores(w, words, chars)
        logz = forward_algorithm(w, unary, valid)
        best = [viterbi(u, n, *tables) for u, n in zip(unary.numpy(), lengths.tolist())]
        gap = logz - torch.tensor(np.array([s for s, _ in best]))
        tags = np.concatenate([p for _, p in best])
        results.append(gap.mean().item() + float((tags > 0).mean()))
    return results


losses = main()
print(losses)
