# The IMDB network in Knet: an indexed matrix, RNN, a product; Adam.
#
# Idiomatic here: a sequence is features, batch, time. RNN is cuDNN's fused GRU on a GPU and a loop in Julia on a CPU. Both apply the reset
# gate after the recurrent product, with both biases. All of the RNN's parameters lie in one array, in cuDNN's order.

const INPUTS, UNITS = 125, 100

# RNN's array, as rnnparam() divides it: the input matrices of r, z, n, then the recurrent ones, with the inputs fastest; then the input
# biases and the recurrent ones. These are, byte for byte, the specification's four arrays one after another.
function gru_parts(w)
    flat, cuts = vec(w), cumsum([0, 3 * UNITS * INPUTS, 3 * UNITS * UNITS, 3 * UNITS, 3 * UNITS])
    part(i) = view(flat, cuts[i]+1:cuts[i+1])
    Named[
        "gru.w" => reshape(part(1), INPUTS, 3 * UNITS),
        "gru.u" => reshape(part(2), UNITS, 3 * UNITS),
        "gru.b" => part(3),
        "gru.c" => part(4),
    ]
end

function gru_named(arrays)
    embedding, gru, w, b = arrays
    Named["embedding" => embedding, gru_parts(gru)..., "dense.w" => w', "dense.b" => b]
end

# (64, 150): batch, time. Julia counts from 1.
tokens(x) = permutedims(from_numpy(x)) .+ 1

function gru_imdb(setup)
    embedding = parameter(INPUTS, 30000)
    # The first state is zero and not trained.
    rnn = RNN(INPUTS, UNITS; rnnType = :gru, atype = Array{Float32})
    w, b = parameter(2, UNITS), parameter(2)
    # The output of the last position, which may be padding.
    scores(x) = w * rnn(embedding[:, x])[:, :, end] .+ b
    # Adam's constants are explicit: defaults differ among frameworks. Knet adds epsilon as in the paper's algorithm 1.
    # Adam makes the embedding's gradient dense.
    optimiser() = Adam(lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, gclip = 0)
    trained(setup, [embedding, rnn.w, w, b], scores, optimiser, gru_named, tokens)
end
