# The IMDB network in R: Embedding, GRU and Dense of Keras, Adam, a training step traced from R.
#
# Idiomatic here: GRU with its defaults is cuDNN's fused kernel on a GPU, and a loop in the graph elsewhere. Adam is the bench's own for
# Keras, which adds epsilon as the paper's algorithm 1 does.

gru_imdb <- function(setup) {
  keras <- import("keras", convert = FALSE)
  keras$utils$set_random_seed(setup$seed)
  model <- keras$Sequential(list(
    keras$Input(tuple(150L), dtype = "int32"),
    # No mask: the padding is read like any word.
    keras$layers$Embedding(30000L, 125L),
    # The reset gate after the product, as in cuDNN. The first state is zero and not trained. The output of the last position.
    keras$layers$GRU(100L, reset_after = TRUE),
    keras$layers$Dense(2L)
  ))
  # Adam's constants are explicit: defaults differ among frameworks. Keras' epsilon would be 1e-7.
  adam <- import("bench.frameworks.keras._adam", convert = FALSE)
  optimizer <- adam$Adam(learning_rate = 0.001, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-8)

  # Keras stacks the gates z, r, n, and keeps both biases in one (2, 300) array. The bench's functions for Keras change the layout.
  layout <- import("bench.frameworks.keras.gru_imdb", convert = FALSE)
  inputs <- function(x, y) python$tuple(list(x, y))
  trained(setup, model, optimizer, inputs, layout$to_keras, layout$canonical)
}
