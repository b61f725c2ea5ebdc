# The entrypoint of Flux's image. It never ran: no Julia can be had where it was written.
include("../julia/bench.jl")
include("framework.jl")
include("cnn_cifar10.jl")
include("gru_imdb.jl")

main("flux", Flux, "cnn_cifar10" => adapter(cnn_cifar10), "gru_imdb" => adapter(gru_imdb; ONE_BIAS...))
