# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of ppo."""

FAULTS = {
    "episode_end": [("alive = 1 - ended[1:]", "alive = 1 - ended[:-1]")],
    "adv_scope": [("scaled = (raw - raw.mean()) / (raw.var().sqrt() + 1e-8)",
                   "scaled = torch.cat([(c - c.mean()) / (c.std() + 1e-8) for c in raw.chunk(4)])")],
    "value_clip": [("torch.maximum(free, held)", "torch.minimum(free, held)")],
    "entropy_sum": [('(net["actor_logstd"] + 0.5 + HALF_LOG_2PI).sum()',
                     '(net["actor_logstd"] + 0.5 + HALF_LOG_2PI).mean()')],
    "anneal": [("rate = 3e-3 * (1 - k / 5)", "rate = 3e-3 * (1 - (k + 1) / 5)")],
}
