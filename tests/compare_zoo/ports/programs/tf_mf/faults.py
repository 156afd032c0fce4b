# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "tensorflow"
FAULTS = {
    # tf.nn.l2_loss is half of the sum of squares
    "halved": [
        ("2.0 * (tf.nn.l2_loss(p) + tf.nn.l2_loss(q))", "tf.nn.l2_loss(p) + tf.nn.l2_loss(q)")
    ],
    # (batch, 1) against (batch,) broadcasts to a square
    "outer": [('tf.squeeze(tf.gather(params["bi"], i), axis=-1)', 'tf.gather(params["bi"], i)')],
    # the rows of a batch written, not added: a user twice in the batch counts once
    "duplicates": [("tf.tensor_scatter_nd_add(", "tf.tensor_scatter_nd_update(")],
    # the rate within the velocity (the Keras rule), which a schedule makes differ
    "velocity": [
        ("0.9 * velocity[k] + dense(grads[k])", "0.9 * velocity[k] + lr * dense(grads[k])"),
        ("p.assign_sub(lr * velocity[k])", "p.assign_sub(velocity[k])"),
    ],
    # the rate of the next step
    "early": [("tf.pow(0.6, step)", "tf.pow(0.6, step + 1.0)")],
}
