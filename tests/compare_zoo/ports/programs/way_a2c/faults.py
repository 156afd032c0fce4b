# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "running_variance": [("sum(0) + gap * gap * weight", "sum(0) + gap * gap")],
    "done_shifted": [("1.0 - mb_over[t].float()", "1.0 - mb_over[max(t - 1, 0)].float()")],
    "attached": [("frozen = [*value.detach(), after]", "frozen = [*value, after]")],
    "entropy": [
        ("(weights[-1] + 0.5 * (LOG_2PI + 1)).sum()", "(weights[-1] + 0.5 * LOG_2PI).sum()")
    ],
    "obs_shifted": [
        ("        mb_obs.append(seen)\n", ""),
        (
            "        seen = scaler(seen)\n",
            "        seen = scaler(seen)\n        mb_obs.append(seen)\n",
        ),
    ],
    "tf_rmsprop": [("(s.sqrt() + 1e-2)", "(s + 1e-2).sqrt()")],
}
