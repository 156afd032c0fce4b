# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "jax"
FAULTS = {
    "gate_order": [("i, f, g, o = jnp.split(", "i, f, o, g = jnp.split(")],
    "one_bias": [
        (
            '"bi": old[f"encoder.bias_ih_l{n}"],',
            '"bi": old[f"encoder.bias_ih_l{n}"] + old[f"encoder.bias_hh_l{n}"],',
        ),
        ('            "bh": old[f"encoder.bias_hh_l{n}"],  # <- one_bias\n', ""),
        (' + cell["bh"]', ""),
    ],
    "accumulator": [(", initial_accumulator_value=0.0, eps=1e-20)", ")")],
    "beta": [("y, delta=beta) / beta", "y, delta=beta)")],
    "mean_valid": [("(each * valid).sum() / valid.sum()", "(each * valid).mean()")],
}
