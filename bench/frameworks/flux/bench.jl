# The entrypoint of Flux's image. It has never run: no Julia was available when it was written.
include("../julia/bench.jl")
include("framework.jl")
include("cnn_cifar10.jl")
include("gru_imdb.jl")
include("mlp_mnist.jl")
include("cnn_mnist.jl")

main("flux", Flux,
    "cnn_cifar10" => adapter(cnn_cifar10),
    "gru_imdb" => adapter(gru_imdb; ONE_BIAS...),
    "mlp_mnist" => adapter(mlp_mnist),
    "cnn_mnist" => adapter(cnn_mnist),
)
