# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "tensorflow"
FAULTS = {
    # without an axis l2_normalize takes the norm of the whole batch
    "axis": [
        ("tf.math.l2_normalize(self.user_fc(u), axis=-1)", "tf.math.l2_normalize(self.user_fc(u))")
    ],
    # the mean over the empty places too
    "bag": [
        (
            "tf.reduce_sum(past * taken, 1) / tf.maximum(tf.reduce_sum(taken, 1), 1.0)",
            "tf.reduce_mean(past * taken, 1)",
        )
    ],
    # the scale not loaded: it stays at exp(0)
    "scale": [('    model.log_scale.assign(w["log_scale"])  # <- scale\n', "")],
    # decay on everything
    "excluded": [
        (
            'optimizer.exclude_from_weight_decay(var_names=["embeddings", "bias", "log_scale"])',
            "optimizer.exclude_from_weight_decay(var_names=[])",
        )
    ],
    # the betas of Keras left at their defaults
    "betas": [(", beta_1=0.5, beta_2=0.98", "")],
}
