# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "tensorflow"
FAULTS = {
    # the gates left in the order of PyTorch
    "gates": [("np.concatenate([z, r, n])", "np.concatenate([r, z, n])")],
    # the two biases summed (right without reset_after), the hidden one left zero
    "hidden_bias": [
        (
            'np.stack([zrh(w["gru.bias_ih_l0"]), zrh(w["gru.bias_hh_l0"])])',
            'np.stack([zrh(w["gru.bias_ih_l0"] + w["gru.bias_hh_l0"]), np.zeros(3 * HIDDEN)])',
        )
    ],
    # the accumulator of Keras begins at 0.1
    "accumulator": [("initial_accumulator_value=0.0, ", "")],
    # the sum is over the real tokens, the count over all of them
    "ignored": [
        ("tf.reduce_sum(each * mask) / tf.reduce_sum(mask)", "tf.reduce_mean(each * mask)")
    ],
    # the schedule begins a step late
    "late": [("(1.0 + tf.cast(step, tf.float32))", "tf.maximum(tf.cast(step, tf.float32), 1.0)")],
}
