# What the workloads do with a Flux model: load and read its arrays, differentiate it with Zygote, update it with Optimisers.

using Flux
using Random

# A workload gives its model, Optimisers' rule, `named` (model or gradient -> name => array, axes in the specification's order turned
# round), `batch` (NumPy's x -> the model's input) and the labels (as counted from 0). Batches that are `resident` are made once, before the
# first step, and stay here; the bench is given their numbers.
function trained(setup, model, rule, named, batch, classes; resident = false)
    Random.seed!(pyconvert(Int, setup.seed))
    # A5: dropout is on inside a gradient and nowhere else, unless the model is told otherwise
    pyconvert(Bool, setup.training) || Flux.testmode!(model)
    state = Flux.setup(rule, model)

    # A7: the loss takes logits; a one-hot matrix keeps one number a column (A19)
    targets(y) = Flux.onehotbatch(from_numpy(y), classes)
    canonical(found) = pydict([name => to_numpy(array) for (name, array) in named(found)])
    batches = Tuple[]
    given(x, y) = resident ? batches[pyconvert(Int, x)] : (batch(x), targets(y))

    function inputs(x, y)
        resident || return pytuple((x, y))
        push!(batches, (batch(x), targets(y)))
        pytuple((length(batches), length(batches)))
    end

    function load(parameters)
        for (name, array) in named(model)
            copyto!(array, from_numpy(parameters[name]))
        end
        state = Flux.setup(rule, model)
        nothing
    end

    function probe(x, y)
        input, target = given(x, y)
        (loss, scores), (gradient,) = Flux.withgradient(model) do m
            logits = m(input)
            Flux.logitcrossentropy(logits, target), logits
        end
        pytuple((to_numpy(scores), loss, canonical(gradient)))
    end

    # E13: the parity check has compiled all of it before the first step is timed
    function step(x, y)
        input, target = given(x, y)
        loss, (gradient,) = Flux.withgradient(m -> Flux.logitcrossentropy(m(input), target), model)
        Flux.update!(state, model, gradient)  # E10: one state for the whole run
        loss
    end

    object(; load, inputs, probe, step,
        read = () -> canonical(model),
        value = loss -> loss,
        predict = x -> to_numpy(model(resident ? first(given(x, x)) : batch(x))),  # A21: no gradient is asked for, so none is recorded
    )
end
