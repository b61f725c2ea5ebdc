# The IMDB network in Flux: Embedding, GRU and Dense in a Chain, Adam of Optimisers.
#
# Idiomatic here: a sequence is features, time, batch. GRU applies its cell position by position, with no fused kernel (C1). Its gates
# are stacked r, z, n and its reset gate comes after the recurrent product, both as the specification has it; GRUv3 is the other convention.

# GRUCell: n = tanh(Wi x + r * (Wh h) + b), and no second bias inside the bracket.
const ONE_BIAS = (variant = "one-bias", reason = "Flux's GRU adds one bias to each gate, outside the product with the reset gate")

gru_network() = Chain(
    embedding = Embedding(30000 => 125),
    gru = GRU(125 => 100),  # C6: without a state it starts from zero, which is no parameter
    final = states -> states[:, end, :],  # C5: after position 150
    dense = Dense(100 => 2),
)

# The embedding is (125, 30000): the specification's turned round. Matrices that Flux keeps as (out, in) are turned by their adjoint.
function gru_arrays(m)
    cell, dense = m.layers.gru.cell, m.layers.dense
    Named[
        "embedding" => m.layers.embedding.weight,  # its gradient is dense: NNlib scatters into an array of zeros
        "gru.w" => cell.Wi',
        "gru.u" => cell.Wh',
        "gru.b" => cell.b,
        "dense.w" => dense.weight',
        "dense.b" => dense.bias,
    ]
end

# (64, 150) turned round is (150, 64): time, batch. Julia counts from 1.
tokens(x) = from_numpy(x) .+ 1

# C9: every constant set; Optimisers adds epsilon where the paper's algorithm 1 does.
gru_imdb(setup) = trained(setup, gru_network(), Adam(0.001, (0.9, 0.999), 1e-8), gru_arrays, tokens, 0:1)
