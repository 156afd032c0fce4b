# SPDX-License-Identifier: Apache-2.0
"""Keras port of the tiny ResNet: functional, channels last, kernel regularizers, one optimizer per part."""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
from tensorflow import keras

tf.debugging.experimental.enable_dump_debug_info(sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1)
L = keras.layers
N, K = 12, 5
DECAY = keras.regularizers.L2(0.5e-2)  # d/dw of half the decay times w squared


def conv(filters, size, stride, name, pad=0, regular=DECAY):
    def apply(x):
        if pad:
            x = L.ZeroPadding2D(pad)(x)
        return L.Conv2D(filters, size, stride, use_bias=False, kernel_regularizer=regular, name=name)(x)
    return apply


def norm(name):
    return L.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)


def residual(x, filters, stride, name):
    y = conv(filters, 3, stride, f"{name}_conv1", pad=1)(x)
    y = L.ReLU()(norm(f"{name}_bn1")(y))
    y = norm(f"{name}_bn2")(conv(filters, 3, 1, f"{name}_conv2", pad=1)(y))
    if x.shape[-1] != filters:
        x = norm(f"{name}_downsample_1")(conv(filters, 1, stride, f"{name}_downsample_0")(x))
    return L.ReLU()(L.Add()([x, y]))


def build():
    inputs = keras.Input((16, 16, 3))
    x = conv(8, 3, 2, "stem_0", pad=1, regular=None)(inputs)
    x = L.ReLU()(norm("stem_1")(x))
    x = L.MaxPooling2D(3, 1, padding="same")(x)
    x = residual(x, 8, 1, "layer1")
    x = residual(x, 16, 2, "layer2")
    x = L.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, L.Dense(K, name="fc")(x))


def convert(model, path):
    archive = np.load(path)
    for layer in model.layers:
        get = lambda leaf: archive[layer.name.replace("_", ".") + "." + leaf]
        if isinstance(layer, L.Conv2D):
            layer.set_weights([np.transpose(get("weight"), (2, 3, 1, 0))])
        elif isinstance(layer, L.BatchNormalization):
            layer.set_weights([get("weight"), get("bias"), get("running_mean"), get("running_var")])
        elif isinstance(layer, L.Dense):
            layer.set_weights([get("weight").T, get("bias")])


model = build()
convert(model, sys.argv[1])
for name in ("stem_0", "stem_1"):
    model.get_layer(name).trainable = False
head = model.get_layer("fc").trainable_variables
body = [v for layer in model.layers if layer.name != "fc" for v in layer.trainable_variables]
slow = keras.optimizers.SGD(0.02, momentum=0.9)
fast = keras.optimizers.SGD(0.1, momentum=0.9)
slow.build(body)
fast.build(head)
criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
accuracy = keras.metrics.SparseCategoricalAccuracy()


@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        data_loss = criterion(labels, logits)
        objective = data_loss + tf.add_n(model.losses)
    grads = tape.gradient(objective, body + head)
    slow.apply_gradients(zip(grads[:len(body)], body))
    fast.apply_gradients(zip(grads[len(body):], head))
    accuracy.update_state(labels, logits)
    return data_loss


rs = np.random.RandomState(64)
losses = []
for _ in range(4):
    labels = rs.randint(0, K, size=N)
    tint = 0.6 * np.cos(labels[:, None] + np.arange(3))
    images = rs.randn(N, 3, 16, 16).transpose(0, 2, 3, 1) + tint[:, None, None]
    losses.append(float(train_step(tf.constant(images, tf.float32), tf.constant(labels))))
print(losses)
