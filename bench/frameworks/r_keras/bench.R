# The entrypoint of the R image: the same arguments and the same events as `python -m bench`. The network and the training step are
# written in R. Adam and the layout of the GRU's weights are the bench's own for Keras, in Python.

folder <- dirname(normalizePath(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])))
source(file.path(folder, "_modules.R"))

sys$argv <- r_to_py(as.list(c(file.path(folder, "bench.R"), commandArgs(trailingOnly = TRUE))))
status <- py_to_r(import("bench.__main__", convert = FALSE)$main())
quit(save = "no", status = as.integer(status))
