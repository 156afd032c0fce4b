# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of resnet."""

FAULTS = {
    "fold_eps": [("BN_EPS = 1e-5", "BN_EPS = 1e-3")],
    "fold_mean": [("beta - mean * gain", "beta - mean * gamma")],
    "stride_place": [("run_conv(x, unit.first, unit.stride)", "run_conv(x, unit.first)"),
                     ("run_conv(y, unit.second)", "run_conv(y, unit.second, unit.stride)")],
    "late_relu": [("(y + side).clamp_min(0)", "y.clamp_min(0) + side")],
    "stem_pool": [("(0, 0, 1, 1, 1, 1), value=-np.inf)", "(0, 0, 0, 2, 0, 2), value=-np.inf)")],
}
