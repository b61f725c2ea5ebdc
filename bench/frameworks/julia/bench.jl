# What the Julia frameworks share: the same arguments and the same events as `python -m bench`, with the network, the training step and
# the optimiser in Julia. A framework's own bench.jl includes this file, then its adapters, and ends with main().
#
# What is not the framework's (arguments, data, parity, clock, events) is the bench's, in a Python that PythonCall embeds: an adapter
# is a Python object whose methods are Julia functions. Never run where this was written: see `untested` in framework.json.

using LinearAlgebra: BLAS
using TOML

const PROJECT = normpath(joinpath(@__DIR__, "..", "..", ".."))

# How many threads the arguments ask for; else as many as this process may use, which nproc tells.
function wanted_threads()
    asked = match(r"--threads[= ](\d+)", join(ARGS, " "))
    threads = asked === nothing ? 0 : parse(Int, asked[1])
    threads > 0 ? threads : parse(Int, readchomp(`nproc`))
end

# NNlib spreads a batch over Julia's threads, whose number is settled before a program's first line. So the process becomes Julia
# once more, with that number in its environment, and stays the process that the runner started.
function begin_again(threads)
    ENV["JULIA_NUM_THREADS"] = string(threads)
    words = [joinpath(Sys.BINDIR, "julia"), abspath(PROGRAM_FILE), ARGS...]
    arguments = push!(pointer.(words), C_NULL)
    GC.@preserve words ccall(:execv, Cint, (Cstring, Ptr{Ptr{UInt8}}), words[1], arguments)
    error("Julia cannot be started again with $threads threads: $(Libc.strerror())")
end

const THREADS = wanted_threads()
if Threads.nthreads() != THREADS && get(ENV, "JULIA_NUM_THREADS", "") != string(THREADS)
    begin_again(THREADS)
end

# Which Python: PythonCall reads it while it is loaded. The bench takes DLBENCH_PYTHON as the sign that it is called from here.
ENV["DLBENCH_PYTHON"] = get(ENV, "DLBENCH_PYTHON", "python3")
ENV["JULIA_PYTHONCALL_EXE"] = ENV["DLBENCH_PYTHON"]
ENV["JULIA_CONDAPKG_BACKEND"] = "Null"
using PythonCall

const sys = pyimport("sys")
sys.path.insert(0, PROJECT)
sys.argv = pylist([PROGRAM_FILE, ARGS...])
const np = pyimport("numpy")
const types = pyimport("types")
const entrypoint = pyimport("bench.__main__")

# Arrays keep their memory and so have their axes turned round: what is (N, C, H, W) in NumPy's C order is (W, H, C, N) in Julia's.
from_numpy(array) = Array(PyArray(array.T))
to_numpy(array) = np.array(collect(array)).T

# A model's or a gradient's arrays by name. The type is said, lest Julia look for one that arrays and their adjoints convert to, and copy.
const Named = Pair{String,Any}

# A Python object with the given attributes; functions become methods, which take and return Python's objects.
object(; parts...) = types.SimpleNamespace(; (name => part isa Function ? pyfunc(part) : part for (name, part) in parts)...)

# What the bench calls as a workload's `Training`: a function of the setup. It and what it makes carry the variant that is declared.
function adapter(training; variant = "", reason = "")
    function declare(thing)
        thing.VARIANT, thing.VARIANT_REASON = variant, reason
        thing
    end
    declare(pyfunc(setup -> declare(training(setup))))
end

# -- what bench.frameworks.<name>.framework is elsewhere ---------------------------------------------------------------------------

function configure(setup)
    BLAS.set_num_threads(pyconvert(Int, setup.threads))
    nothing
end

# The version that a loaded package's own Project.toml says: pkgversion() came with Julia 1.9.
version_of(package) = TOML.parsefile(joinpath(pkgdir(package), "Project.toml"))["version"]

function device(setup)
    if pyconvert(String, setup.device) != "cpu"
        unsupported = pyimport("bench.errors").Unsupported
        throw(PyException(unsupported("a GPU was asked for, and this image's Julia packages compute on a CPU; use --device cpu")))
    end
    pyimport("bench.environment").cpu_device()
end

settings() = pydict("julia_threads" => Threads.nthreads(), "blas_threads" => BLAS.get_num_threads())

is_out_of_memory(error) =
    pyisinstance(error, pyimport("juliacall").JuliaError) && pyconvert(Any, error.args[0]) isa OutOfMemoryError

# Make a module importable, as if it were a file: bench.run imports an adapter by its name.
provide(name, value) = (sys.modules["bench.frameworks." * name] = value)

# Run the bench's command with a framework's adapters (workload's module => adapter), and end the process as it says.
function main(name, package, adapters...)
    versions() = pydict("framework" => version_of(package), "julia" => string(VERSION), "pythoncall" => version_of(PythonCall))
    provide(name, types.ModuleType(name))
    # a CPU has nothing to wait for, and no memory of its own to tell
    provide("$name.framework", object(; NAME = name, configure, versions, device, settings, is_out_of_memory,
        synchronize = () -> nothing, device_peak_bytes = () -> nothing))
    for (workload, training) in adapters
        provide("$name.$workload", object(; Training = training))
    end
    exit(pyconvert(Int, entrypoint.main()))
end
