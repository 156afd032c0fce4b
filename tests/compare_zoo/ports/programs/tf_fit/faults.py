# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "tensorflow"
FAULTS = {
    # divided by the number of rows, as class_weight in fit does
    "weights": [
        ("tf.reduce_sum(weights * each) / tf.reduce_sum(weights)", "tf.reduce_mean(weights * each)")
    ],
    # L2 of Keras has no half: the decay is doubled
    "twice": [("keras.regularizers.L2(DECAY / 2)", "keras.regularizers.L2(DECAY)")],
    # the scale of the norm not loaded
    "gamma": [('    norm.gamma.assign(w["norm.weight"])  # <- gamma\n', "")],
    # the frozen layer learns
    "frozen": [
        (
            'model.get_layer("frozen").trainable = False',
            'model.get_layer("frozen").trainable = True',
        )
    ],
    # epochs counted from 1
    "by_epoch": [("(epoch // 2)", "((epoch + 1) // 2)")],
}
