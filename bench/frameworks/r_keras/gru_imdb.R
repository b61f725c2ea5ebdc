# The IMDB network in R: Embedding, GRU and Dense of Keras, Adam, a training step traced from R.
#
# Idiomatic here: GRU with its defaults is cuDNN's fused kernel on a GPU (C1), a loop in the graph elsewhere; reset_after is cuDNN's
# convention (C8). Adam is the bench's own for Keras, which adds epsilon where the paper's algorithm 1 does.

gru_imdb <- function(setup) {
  keras <- import("keras", convert = FALSE)
  keras$utils$set_random_seed(setup$seed)
  model <- keras$Sequential(list(
    keras$Input(tuple(150L), dtype = "int32"),
    keras$layers$Embedding(30000L, 125L), # no mask: the padding is read like any word
    keras$layers$GRU(100L, reset_after = TRUE), # C6: it starts from zero; C5: it returns the last state
    keras$layers$Dense(2L)
  ))
  # C9: every constant set; Keras' epsilon would be 1e-7
  adam <- import("bench.frameworks.keras._adam", convert = FALSE)
  optimizer <- adam$Adam(learning_rate = 0.001, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-8)

  # Keras stacks the gates z, r, n, and both biases in one (2, 300) array: the bench's own functions for Keras know it
  layout <- import("bench.frameworks.keras.gru_imdb", convert = FALSE)
  inputs <- function(x, y) python$tuple(list(x, y))
  trained(setup, model, optimizer, inputs, layout$to_keras, layout$canonical)
}
