# The training loop of Knet's parameters: load and read them, record a loss on a tape, update every parameter from its gradient.

using Knet
using Random

# An array that AutoGrad tracks. It starts as zeros: Glorot-uniform kernels come from the bench as canonical parameters. Knet's own xavier
# has a smaller limit.
parameter(size...) = Param(zeros(Float32, size...))

# A workload gives its parameters, `scores` (input -> logits), `optimiser` (makes the optimiser of one parameter), `named` (values or
# gradients of the parameters -> name => array, with the specification's axes reversed) and `batch` (NumPy's x -> the input). `resident`
# batches are made once, before the first step, and stay in Julia: the bench gets their numbers instead.
function trained(setup, parameters, scores, optimiser, named, batch; resident = false)
    Random.seed!(pyconvert(Int, setup.seed))
    # Classes are counted from 1: nll would skip a 0.
    targets(y) = from_numpy(y) .+ 1
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

    # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
    function probe(x, y)
        input, target = given(x, y)
        tape = @diff nll(scores(input), target)
        # The gradient of an indexed array is a list of pieces. full() makes one array of them.
        gradients = [AutoGrad.full(grad(tape, p)) for p in parameters]
        pytuple((to_numpy(scores(input)), value(tape), canonical(gradients)))
    end

    # The optimisers keep their moments through all epochs.
    # Julia compiles a function at its first call. The bench keeps the first step and the warm-up apart from the measured steps.
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
        # Adam counts its steps for each parameter. Momentum counts none.
        updates = () -> hasproperty(parameters[1].opt, :t) ? minimum(p.opt.t for p in parameters) : nothing,
        value = loss -> loss,
        # No gradients in evaluation: they cost memory and time. Outside @diff nothing is recorded.
        predict = x -> to_numpy(scores(resident ? first(given(x, x)) : batch(x))),
    )
end
