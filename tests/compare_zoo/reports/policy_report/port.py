# SPDX-License-Identifier: Apache-2.0
"""The same agent on all episodes side by side; prints the critic's error and action shares."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
p = torch.load(sys.argv[1], weights_only=True)
heads_w = torch.cat([p["actor.weight"], p["critic.weight"]])
heads_b = torch.cat([p["actor.bias"], p["critic.bias"]])


def policy_and_value(obs):
    h = F.linear(obs, p["body.0.weight"], p["body.0.bias"])
    h = F.layer_norm(h, h.shape[-1:], p["body.1.weight"], p["body.1.bias"]).tanh()
    both = F.linear(h, heads_w, heads_b)
    return both[:, :4], both[:, 4]


gen = torch.Generator().manual_seed(108)
dynamics = torch.randn(6, 6, generator=gen) * 0.3
push = torch.randn(4, 6, generator=gen)
state = torch.cat([torch.randn(1, 6, generator=gen) for _ in range(4)])

values, rewards, actions = [], [], []
with torch.inference_mode():
    for _ in range(8):
        scores, v = policy_and_value(state)
        act = scores.max(dim=1).indices
        state = (state @ dynamics + push.index_select(0, act)).tanh()
        values.append(v)
        actions.append(act)
        rewards.append(1.0 - state.square().mean(1))

togo = torch.stack(rewards).double().flip(0).cumsum(0).flip(0)
td = torch.stack(values).double() - togo
losses = td.abs().mean(0).tolist()
share = torch.bincount(torch.stack(actions).flatten(), minlength=4) / 32
print("action shares in percent:", [round(100 * s, 1) for s in share.tolist()])
print("value error per episode:", [round(v, 3) for v in losses])
print(losses)
