# The training loop of a Flux model: load and read its arrays, differentiate it with Zygote, update it with Optimisers.

using Flux
using Random

# A workload gives its model, Optimisers' rule, `named` (model or gradient -> name => array, with the specification's axes reversed),
# `batch` (NumPy's x -> the model's input) and the classes, counted from 0. `resident` batches are made once, before the first step, and stay in
# Julia: the bench gets their numbers instead.
function trained(setup, model, rule, named, batch, classes; resident = false)
    Random.seed!(pyconvert(Int, setup.seed))
    # Dropout only in training: Flux applies it inside a gradient only, and testmode! switches it off there too.
    pyconvert(Bool, setup.training) || Flux.testmode!(model)
    state = Flux.setup(rule, model)

    # The loss takes logits: there is exactly one softmax. Flux's one-hot matrix stores one number for each column.
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

    # Julia compiles a function at its first call. The bench keeps the first step and the warm-up apart from the measured steps.
    function step(x, y)
        input, target = given(x, y)
        loss, (gradient,) = Flux.withgradient(m -> Flux.logitcrossentropy(m(input), target), model)
        # The optimiser keeps its state through all epochs.
        Flux.update!(state, model, gradient)
        loss
    end

    object(; load, inputs, probe, step,
        read = () -> canonical(model),
        # There is no updates(): Optimisers counts no steps. Its Adam keeps beta^t.
        value = loss -> loss,
        # No gradients in evaluation: they cost memory and time.
        predict = x -> to_numpy(model(resident ? first(given(x, x)) : batch(x))),
    )
end
