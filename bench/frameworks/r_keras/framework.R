# TensorFlow's switches, versions and device, for every workload: the bench's own file for TensorFlow, and R's versions.

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

# A Python sequence as an R list. reticulate's iterate() would take the truth value of a variable, which TensorFlow refuses.
items <- function(sequence) lapply(seq_len(py_len(sequence)) - 1L, function(index) py_get_item(sequence, index))

# The training loop of a Keras model. to_own(parameters) turns canonical arrays into the list of the model's weights; canonical(values)
# turns the list back.
trained <- function(setup, model, optimizer, inputs, to_own, canonical) {
  keras <- import("keras", convert = FALSE)
  tf <- import("tensorflow", convert = FALSE)
  # Dropout only in training: it is off in the parity check.
  dropout <- py_to_r(setup$training)
  # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
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
    # The gradient of an embedding is sparse, Adam's moments are dense.
    python$tuple(list(logits, loss, tf$nest$map_structure(tf$convert_to_tensor, gradients)))
  }

  # R runs once, while the step is traced. After that TensorFlow runs its graph without R.
  train_step <- tf[["function"]](method(function(x, y) {
    found <- backward(x, y)
    optimizer$apply(found[2], model$trainable_variables)
    found[1]
  }), autograph = FALSE)
  # No gradients in evaluation: they cost memory and time.
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
    updates = function() python$int(optimizer$iterations),
    value = function(loss) python$float(loss),
    predict = function(x) forward$`__call__`(tf$constant(x))$numpy()
  )
}
