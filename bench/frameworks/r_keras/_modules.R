# The adapters in R, for the bench in Python. The script that sources this file sets `folder`, this file's folder.
#
# R calls Keras and TensorFlow through reticulate, as R's own keras package does. Everything else (arguments, data, parity, clock, events)
# is the bench in Python, called from R. An adapter is a named list of R functions, which Python sees as an object.
# Arrays stay NumPy's (convert = FALSE): R's arrays would be doubles, copied twice.

project <- normalizePath(file.path(folder, "..", "..", ".."))
# In the project's folder reticulate would find pyproject.toml, look for an environment and warn.
setwd(tempdir())
suppressPackageStartupMessages(library(reticulate))
use_python(Sys.getenv("DLBENCH_PYTHON", unset = Sys.which("python3")), required = TRUE)
Sys.setenv(KERAS_BACKEND = "tensorflow", TF_CPP_MIN_LOG_LEVEL = "1")

python <- import_builtins(convert = FALSE)
sys <- import("sys", convert = FALSE)
invisible(sys$path$insert(0L, project))

np <- import("numpy", convert = FALSE)

# An R function that Python calls with Python's objects, not with R's copies of them.
method <- function(f) r_to_py(f, convert = FALSE)

# A Python object with the given attributes; functions become methods.
object <- function(...) {
  parts <- lapply(list(...), function(part) if (is.function(part) && !inherits(part, "python.builtin.object")) method(part) else part)
  do.call(import("types", convert = FALSE)$SimpleNamespace, parts)
}

# Make the lists importable like files: the bench imports an adapter by its name.
provide <- function(name, module) {
  invisible(py_set_item(sys$modules, paste0("bench.frameworks.r_keras", name), module))
}

source(file.path(folder, "framework.R"))
source(file.path(folder, "cnn_cifar10.R"))
source(file.path(folder, "gru_imdb.R"))
source(file.path(folder, "resnet50_features.R"))

provide("", import("types", convert = FALSE)$ModuleType("r_keras"))
provide(".framework", object(NAME = "r_keras", configure = configure, versions = versions, device = device, settings = settings,
  synchronize = synchronize, device_peak_bytes = function() NULL, is_out_of_memory = is_out_of_memory))
provide(".cnn_cifar10", object(Training = cnn_cifar10))
provide(".gru_imdb", object(Training = gru_imdb))
provide(".resnet50_features", object(Inference = resnet50_features))
