# What the workloads do with Knet's parameters: load and read them, record a loss on a tape, update each from its gradient.

using Knet
using Random

# An array that AutoGrad keeps track of. Zeros, since the bench loads what training starts from (A8, A9: Knet's own xavier is narrower).
parameter(size...) = Param(zeros(Float32, size...))

# A workload gives its parameters, `scores` (input -> logits), `optimiser` (makes one parameter's), `named` (parameters' values or
# gradients -> name => array, axes in the specification's order turned round) and `batch` (NumPy's x -> the input). Batches that are
# `resident` are made once, before the first step, and stay here; the bench is given their numbers.
function trained(setup, parameters, scores, optimiser, named, batch; resident = false)
    Random.seed!(pyconvert(Int, setup.seed))
    targets(y) = from_numpy(y) .+ 1  # classes are counted from 1, and nll would pass over a 0
    canonical(arrays) = pydict([name => to_numpy(array) for (name, array) in named(arrays)])
    values_now() = [value(p) for p in parameters]
    batches = Tuple[]
    given(x, y) = resident ? batches[pyconvert(Int, x)] : (batch(x), targets(y))

    function inputs(x, y)
        resident || return pytuple((x, y))
        push!(batches, (batch(x), targets(y)))
        pytuple((length(batches), length(batches)))
    end

    function load(given)
        for (name, array) in named(values_now())
            copyto!(array, from_numpy(given[name]))
        end
        for p in parameters
            p.opt = optimiser()
        end
    end

    # A7: nll takes logits, and labels as they are (A19)
    function probe(x, y)
        input, target = given(x, y)
        tape = @diff nll(scores(input), target)
        # the gradient of an indexed array is a list of its pieces until it is asked for whole
        gradients = [AutoGrad.full(grad(tape, p)) for p in parameters]
        pytuple((to_numpy(scores(input)), value(tape), canonical(gradients)))
    end

    # E10: the optimisers live as long as the parameters
    # E13: the parity check has compiled all of it before the first step is timed
    function step(x, y)
        input, target = given(x, y)
        tape = @diff nll(scores(input), target)
        for p in parameters
            update!(p, grad(tape, p))
        end
        value(tape)
    end

    object(; load, inputs, probe, step,
        read = () -> canonical(values_now()),
        value = loss -> loss,
        predict = x -> to_numpy(scores(resident ? first(given(x, x)) : batch(x))),  # A21: outside of @diff nothing is recorded
    )
end
