# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the momentum contrast with a queue of keys."""

FAULTS = {
    "keys_stale": [
        ("keys, _ = embed(key, vb)",
         "key = {k: 0.9 * v + 0.1 * query[k] for k, v in key.items()}"),
        ("key = {k: 0.9 * key[k] + 0.1 * query[k] for k in key}",
         "keys, _ = embed(key, vb)"),
    ],
    "running_biased": [
        (" * n / (n - 1)",
         ""),
    ],
    "queue_side": [
        ("bank.append(keys)",
         "bank.appendleft(keys)"),
    ],
    "groups": [
        (' and k != "bn.w"',
         ""),
    ],
    "negative_scale": [
        ("q @ bank.T / temp",
         "q @ bank.T"),
    ],
}
