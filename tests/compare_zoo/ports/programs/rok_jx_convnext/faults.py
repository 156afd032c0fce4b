# SPDX-License-Identifier: Apache-2.0
"""Mistakes of the JAX migration of the ConvNeXt classifier."""

FRAMEWORK = "jax"

FAULTS = {
    "kernel_axes": [("kernel.transpose(2, 3, 1, 0))", "kernel.transpose(3, 2, 1, 0))")],
    "norm_axis": [("def layer_norm(p, x, axis=-1, eps=1e-6):", "def layer_norm(p, x, axis=(1, 2), eps=1e-6):")],
    "same_padding": [("(2, 2), [(1, 1), (1, 1)])", '(2, 2), "SAME")')],
    "flatten_order": [(".reshape(7, 16, 4, 4).transpose(2, 3, 1, 0).reshape(-1, 7)", ".T")],
    "warmup_from_zero": [("init_value=1e-2 / 3, ", "init_value=0.0, ")],
}
