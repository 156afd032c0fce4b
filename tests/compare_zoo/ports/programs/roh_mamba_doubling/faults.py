# SPDX-License-Identifier: Apache-2.0
"""Mistakes for the Mamba pair."""

NEEDS = ["transformers"]
FAULTS = {
    "conv_looks_ahead": [("F.pad(inner, (0, 0, TAPS - 1, 0))", "F.pad(inner, (0, 0, TAPS - 2, 1))")],
    "dt_bias_twice": [("    dt = low @ m.rate.T\n", "    dt = low @ m.rate.T + m.rate_bias  # <- dt_bias_twice\n")],
    "eps_of_llama": [("gain.shape, gain, eps=1e-5)", "gain.shape, gain, eps=1e-6)")],
    "mean_of_row_means": [
        ('reduction="sum")', 'reduction="mean")'),
        ("count += len(answer)", "count += 1"),
    ],
    "decay_everywhere": [(' if p.ndim > 1 and not n.endswith("a_log")]', "]")],
}
