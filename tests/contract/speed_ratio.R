# speed_ratio.py for the adapters in R, from R: Rscript tests/contract/speed_ratio.R r_keras cnn-cifar10 [SECONDS], with DLBENCH_PYTHON set.

here <- dirname(normalizePath(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])))
folder <- file.path(here, "..", "..", "bench", "frameworks", "r_keras")
source(file.path(folder, "_modules.R"))
source(file.path(here, "examples", "r_keras.R"))

invisible(sys$path$insert(0L, here))
speed_ratio <- import("speed_ratio", convert = FALSE)
speed_ratio$main(commandArgs(trailingOnly = TRUE), object(cnn_cifar10 = published_cnn_cifar10, gru_imdb = published_gru_imdb))
