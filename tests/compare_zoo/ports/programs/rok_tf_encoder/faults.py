# SPDX-License-Identifier: Apache-2.0
"""Mistakes of the Keras migration of the padded transformer encoder."""

FRAMEWORK = "tensorflow"

FAULTS = {
    "norm_epsilon": [("self.ln_a = keras.layers.LayerNormalization(epsilon=1e-5)",
                      "self.ln_a = keras.layers.LayerNormalization()")],
    "padding_attended": [("y, y, attention_mask=mask[:, None, :])", "y, y)")],
    "mean_over_padding": [("tf.reduce_sum(x * valid, axis=1) / tf.reduce_sum(valid, axis=1)",
                           "tf.reduce_mean(x, axis=1)")],
    "weights_not_normalised": [("tf.reduce_sum(weight * nll) / tf.reduce_sum(weight)", "tf.reduce_mean(weight * nll)")],
    "beta2_default": [("beta_1=0.9, beta_2=0.95, epsilon", "epsilon")],
}
