# The CIFAR-10 network in R: a Sequential of Keras' layers, SGD with momentum, a training step traced from R.
#
# Idiomatic here: R's integers are written 50L. TensorFlow convolves channels last (N, H, W, C) on a CPU: the images are permuted once,
# before training.

cnn_cifar10 <- function(setup) {
  keras <- import("keras", convert = FALSE)
  keras$utils$set_random_seed(setup$seed)
  layers <- keras$layers
  seed <- py_to_r(setup$seed)

  # Stride and padding are explicit: defaults differ among frameworks. "same" pads a 3 x 3 kernel by 1.
  conv <- function(filters, name) layers$Conv2D(filters, 3L, padding = "same", data_format = "channels_last", name = name)
  pool <- function() layers$MaxPooling2D(2L, strides = 2L, data_format = "channels_last")

  model <- keras$Sequential(list(
    keras$Input(tuple(32L, 32L, 3L)),
    conv(50L, "conv1"), layers$ReLU(),
    # ReLU after the pooling: the same values, a quarter of the work.
    conv(50L, "conv2"), pool(), layers$ReLU(),
    layers$Dropout(0.25, seed = seed),
    conv(100L, "conv3"), layers$ReLU(),
    conv(100L, "conv4"), pool(), layers$ReLU(),
    layers$Dropout(0.25, seed = seed + 1L),
    layers$Flatten(),
    layers$Dense(512L, activation = "relu", name = "dense1"),
    layers$Dropout(0.5, seed = seed + 2L),
    layers$Dense(10L, name = "dense2")
  ))
  # Momentum: v = m v - rate g; w = w + v, without dampening or Nesterov.
  # At a constant rate this is the specification's v = m v + g; w = w - rate v.
  optimizer <- keras$optimizers$SGD(learning_rate = 0.01, momentum = 0.9)

  # A permutation: exchanging axes 1 and 3 would also transpose the picture.
  inputs <- function(x, y) python$tuple(list(np$ascontiguousarray(np$transpose(x, tuple(0L, 2L, 3L, 1L))), y))

  names <- as.vector(outer(c(".w", ".b"), c("conv1", "conv2", "conv3", "conv4", "dense1", "dense2"), function(end, layer) paste0(layer, end)))

  # Canonical weights in Keras' layout: kernels (kh, kw, in, out), dense (in, out), the first dense layer's inputs in H, W, C order.
  to_own <- function(parameters) {
    python$list(lapply(names, function(name) {
      w <- py_get_item(parameters, name)
      if (grepl("^conv.*w$", name)) return(np$transpose(w, tuple(2L, 3L, 1L, 0L)))
      if (name == "dense1.w") {
        w <- np$transpose(np$reshape(w, tuple(512L, 100L, 8L, 8L)), tuple(0L, 2L, 3L, 1L))
        w <- np$reshape(w, tuple(512L, 6400L))
      }
      np$transpose(w)
    }))
  }

  canonical <- function(values) {
    found <- lapply(seq_along(names), function(index) {
      w <- py_get_item(values, index - 1L)
      if (grepl("^conv.*w$", names[index])) return(np$transpose(w, tuple(3L, 2L, 0L, 1L)))
      w <- np$transpose(w)
      if (names[index] == "dense1.w") {
        w <- np$transpose(np$reshape(w, tuple(512L, 8L, 8L, 100L)), tuple(0L, 3L, 1L, 2L))
        w <- np$reshape(w, tuple(512L, 6400L))
      }
      w
    })
    python$dict(python$zip(names, found))
  }

  trained(setup, model, optimizer, inputs, to_own, canonical)
}
