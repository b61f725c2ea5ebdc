# The IMDB network in Flux: Embedding, GRU and Dense in a Chain, Adam of Optimisers.
#
# Idiomatic here: a sequence is features, time, batch. GRU applies its cell position by position; it is not cuDNN's fused GRU. Its gates are
# stacked r, z, n. The reset gate comes after the recurrent product, as in cuDNN. GRUv3 applies it before.

# GRUCell: n = tanh(Wi x + r * (Wh h) + b), and no second bias inside the bracket.
const ONE_BIAS = (variant = "one-bias", reason = "Flux's GRU adds one bias to each gate, outside the product with the reset gate")

gru_network() = Chain(
    embedding = Embedding(30000 => 125),
    # The first state is zero and not trained.
    gru = GRU(125 => 100),
    # The output of the last position.
    final = states -> states[:, end, :],
    dense = Dense(100 => 2),
)

# The embedding is (125, 30000): the specification's with reversed axes. Flux keeps other matrices as (out, in): their adjoint has the
# reversed axes.
function gru_arrays(m)
    cell, dense = m.layers.gru.cell, m.layers.dense
    Named[
        # The embedding's gradient is dense: NNlib adds the rows into an array of zeros.
        "embedding" => m.layers.embedding.weight,
        "gru.w" => cell.Wi',
        "gru.u" => cell.Wh',
        "gru.b" => cell.b,
        "dense.w" => dense.weight',
        "dense.b" => dense.bias,
    ]
end

# (64, 150) with reversed axes is (150, 64): time, batch. Julia counts from 1.
tokens(x) = from_numpy(x) .+ 1

# Adam's constants are explicit: defaults differ among frameworks. Optimisers adds epsilon as in the paper's algorithm 1.
gru_imdb(setup) = trained(setup, gru_network(), Adam(0.001, (0.9, 0.999), 1e-8), gru_arrays, tokens, 0:1)
