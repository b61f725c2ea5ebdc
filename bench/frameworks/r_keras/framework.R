# TensorFlow's switches, versions and device, for every workload: the bench's own file for TensorFlow, with R's versions beside.

backend <- NULL

configure <- function(setup) {
  backend <<- import("bench.frameworks.tensorflow.framework", convert = FALSE)
  backend$configure(setup)
  NULL
}

versions <- function() {
  found <- python$dict(backend$versions())
  found$update(framework = found["keras"], r = paste(R.version$major, R.version$minor, sep = "."),
    reticulate = as.character(utils::packageVersion("reticulate")))
  found
}

device <- function(setup) backend$device(setup)
settings <- function() backend$settings()
synchronize <- function() backend$synchronize()
is_out_of_memory <- function(error) backend$is_out_of_memory(error)

# A Python sequence as an R list. reticulate's iterate() would ask whether a variable is true.
items <- function(sequence) lapply(seq_len(py_len(sequence)) - 1L, function(index) py_get_item(sequence, index))

# What both workloads do with a Keras model: load, step, read. to_own(parameters) and canonical(values) go between canonical arrays and the
# list of the model's weights.
trained <- function(setup, model, optimizer, inputs, to_own, canonical) {
  keras <- import("keras", convert = FALSE)
  tf <- import("tensorflow", convert = FALSE)
  # dropout on in training, off in the parity check (A5)
  dropout <- py_to_r(setup$training)
  # A7, A19: one softmax, sparse labels
  loss_of <- keras$losses$SparseCategoricalCrossentropy(from_logits = TRUE)
  optimizer$build(model$trainable_variables)
  fresh <- lapply(items(optimizer$variables), function(variable) variable$numpy())

  # logits, loss, gradients
  backward <- function(x, y) {
    with(tf$GradientTape() %as% tape, {
      logits <- model$`__call__`(x, training = dropout)
      loss <- loss_of$`__call__`(y, logits)
    })
    gradients <- tape$gradient(loss, model$trainable_variables)
    # an embedding's gradient is sparse, and the moments that it goes into are not
    python$tuple(list(logits, loss, tf$nest$map_structure(tf$convert_to_tensor, gradients)))
  }

  # R is asked once, while the step is traced (B8); after that TensorFlow runs its graph without R
  train_step <- tf[["function"]](method(function(x, y) {
    found <- backward(x, y)
    optimizer$apply(found[2], model$trainable_variables)
    found[1]
  }), autograph = FALSE)
  # A21: no tape, so no gradients in evaluation
  forward <- tf[["function"]](method(function(x) model$`__call__`(x, training = FALSE)), autograph = FALSE)

  object(
    load = function(parameters) {
      model$set_weights(to_own(parameters))
      variables <- items(optimizer$variables)
      for (index in seq_along(variables)) variables[[index]]$assign(fresh[[index]])
      NULL
    },
    read = function() canonical(model$get_weights()),
    inputs = inputs,
    probe = function(x, y) {
      found <- backward(tf$constant(x), tf$constant(y))
      values <- python$list(lapply(items(found[2]), function(gradient) gradient$numpy()))
      python$tuple(list(found[0]$numpy(), python$float(found[1]), canonical(values)))
    },
    step = function(x, y) train_step$`__call__`(tf$constant(x), tf$constant(y)),
    value = function(loss) python$float(loss),
    predict = function(x) forward$`__call__`(tf$constant(x))$numpy()
  )
}
