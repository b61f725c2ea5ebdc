# ResNet-50's features in R: a functional model of Keras' layers, the forward pass traced from R.
#
# Idiomatic here: the functional API writes the shortcuts. Where the stride is 2, padding is a layer of its own, as in
# keras.applications.ResNet50. That is another network: its stride is in the 1 x 1 convolution, it has biases and another epsilon.
# TensorFlow convolves channels last (N, H, W, C) on a CPU: the images are permuted once, before the clock starts.

resnet50_features <- function(setup) {
  keras <- import("keras", convert = FALSE)
  tf <- import("tensorflow", convert = FALSE)
  specification <- import("bench.workloads.resnet50_features", convert = FALSE)
  layers <- keras$layers
  epsilon <- specification$EPSILON
  order <- "channels_last"

  # A layer is a Python object, called by its method.
  through <- function(layer, x) layer$`__call__`(x)
  relu <- function(x) through(layers$ReLU(), x)
  pad <- function(x, size) through(layers$ZeroPadding2D(size, data_format = order), x)

  normalised <- function(x, convolution, norm, filters, size = 1L, stride = 1L) {
    # Padding is explicit: "same" pads a 3 x 3 kernel of stride 1 by 1, but with stride 2 it is not symmetric.
    if (stride > 1L && size > 1L) x <- pad(x, size %/% 2L)
    padding <- if (stride == 1L) "same" else "valid"
    x <- through(layers$Conv2D(filters, size, stride, padding, data_format = order, use_bias = FALSE, name = convolution), x)
    through(layers$BatchNormalization(epsilon = epsilon, name = norm), x)
  }

  bottleneck <- function(x, name, channels, stride, shortcut) {
    outputs <- channels * py_to_r(specification$EXPANSION)
    part <- function(end) paste0(name, ".", end)
    h <- relu(normalised(x, part("conv1"), part("bn1"), channels))
    h <- relu(normalised(h, part("conv2"), part("bn2"), channels, 3L, stride))
    h <- normalised(h, part("conv3"), part("bn3"), outputs)
    if (shortcut) x <- normalised(x, part("downsample.0"), part("downsample.1"), outputs, 1L, stride)
    relu(through(layers$Add(), list(h, x)))
  }

  images <- keras$Input(tuple(224L, 224L, 3L))
  x <- relu(normalised(images, "conv1", "bn1", 64L, 7L, 2L))
  # ReLU leaves nothing below zero: zeros at the border do not change the maximum.
  x <- through(layers$MaxPooling2D(3L, strides = 2L, data_format = order), pad(x, 1L))
  for (block in py_to_r(python$list(specification$blocks()))) x <- do.call(bottleneck, c(list(x), block))
  model <- keras$Model(images, through(layers$GlobalAveragePooling2D(data_format = order), x))

  # R runs once, while the forward pass is traced. Evaluation uses the running statistics.
  # No gradients in evaluation: they cost memory and time.
  features <- tf[["function"]](method(function(x) model$`__call__`(x, training = FALSE)), autograph = FALSE)

  ends <- c("weight", "bias", "running_mean", "running_var")

  object(
    # A convolution has a kernel (kh, kw, in, out). A normalisation has scale, bias, mean and variance.
    load = function(parameters) {
      values <- function(name, ends) lapply(paste0(name, ".", ends), function(full) py_get_item(parameters, full))
      for (layer in items(model$layers)) {
        name <- py_to_r(layer$name)
        if (grepl("conv[123]$|downsample\\.0$", name)) {
          layer$set_weights(list(np$transpose(values(name, "weight")[[1]], tuple(2L, 3L, 1L, 0L))))
        } else if (grepl("bn[123]$|downsample\\.1$", name)) {
          layer$set_weights(values(name, ends))
        }
      }
      NULL
    },
    # A permutation: exchanging axes 1 and 3 would also transpose the picture.
    inputs = function(x) np$ascontiguousarray(np$transpose(x, tuple(0L, 2L, 3L, 1L))),
    predict = function(x) features$`__call__`(tf$constant(x))$numpy()
  )
}
