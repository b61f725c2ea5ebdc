# R's published way: TensorFlow for R's guide "Writing a training loop from scratch", by reticulate, as its keras package has it.
#
# As there: a model, a loss on logits, an optimiser of Keras, a tape, and the train step under tf.function. Other than there: this
# benchmark's layers and optimisers, no metric, and mini-batches that are NumPy's.

published_loop <- function(model, optimizer, x, y) {
  tf <- import("tensorflow", convert = FALSE)
  loss_fn <- import("keras", convert = FALSE)$losses$SparseCategoricalCrossentropy(from_logits = TRUE)

  train_step <- tf[["function"]](method(function(x, y) {
    with(tf$GradientTape() %as% tape, {
      logits <- model$`__call__`(x, training = TRUE)
      loss_value <- loss_fn$`__call__`(y, logits)
    })
    grads <- tape$gradient(loss_value, model$trainable_weights)
    optimizer$apply(grads, model$trainable_weights)
    loss_value
  }), autograph = FALSE)

  method(function() train_step$`__call__`(tf$constant(x), tf$constant(y)))
}

published_cnn_cifar10 <- function(setup, x, y) {
  keras <- import("keras", convert = FALSE)
  layers <- keras$layers
  model <- keras$Sequential(list(
    keras$Input(tuple(32L, 32L, 3L)),
    layers$Conv2D(50L, 3L, padding = "same", activation = "relu"),
    layers$Conv2D(50L, 3L, padding = "same", activation = "relu"),
    layers$MaxPooling2D(2L),
    layers$Dropout(0.25),
    layers$Conv2D(100L, 3L, padding = "same", activation = "relu"),
    layers$Conv2D(100L, 3L, padding = "same", activation = "relu"),
    layers$MaxPooling2D(2L),
    layers$Dropout(0.25),
    layers$Flatten(),
    layers$Dense(512L, activation = "relu"),
    layers$Dropout(0.5),
    layers$Dense(10L)
  ))
  images <- np$ascontiguousarray(np$transpose(x, tuple(0L, 2L, 3L, 1L)))
  published_loop(model, keras$optimizers$SGD(learning_rate = 0.01, momentum = 0.9), images, y)
}

published_gru_imdb <- function(setup, x, y) {
  keras <- import("keras", convert = FALSE)
  layers <- keras$layers
  model <- keras$Sequential(list(
    keras$Input(tuple(150L), dtype = "int32"),
    layers$Embedding(30000L, 125L),
    layers$GRU(100L),
    layers$Dense(2L)
  ))
  published_loop(model, keras$optimizers$Adam(learning_rate = 0.001, epsilon = 1e-8), x, y)
}
