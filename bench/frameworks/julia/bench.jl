# What the Julia frameworks share. The arguments and events are those of `python -m bench`; the network, the training step and the
# optimiser are in Julia. A framework's own bench.jl includes this file, then its adapters, and ends with main().
#
# Arguments, data, parity, clock and events are the bench's own code, in a Python that PythonCall embeds. An adapter is a Python object
# whose methods are Julia functions. This code has never run: see `untested` in framework.json.

using LinearAlgebra: BLAS
using TOML

const PROJECT = normpath(joinpath(@__DIR__, "..", "..", ".."))

# The number of threads in the arguments; without one, the number that this process may use, from nproc.
function wanted_threads()
    asked = match(r"--threads[= ](\d+)", join(ARGS, " "))
    threads = asked === nothing ? 0 : parse(Int, asked[1])
    threads > 0 ? threads : parse(Int, readchomp(`nproc`))
end

# NNlib divides a batch over Julia's threads. Julia reads their number from its environment before a program's first line. So the process
# sets the variable and executes Julia again. It stays the process that the runner started.
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

# PythonCall reads the path of Python while it is loaded. DLBENCH_PYTHON also tells the bench that Julia calls it.
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

# An array keeps its memory, so its axes are reversed: (N, C, H, W) in NumPy's C order is (W, H, C, N) in Julia's order.
from_numpy(array) = Array(PyArray(array.T))
to_numpy(array) = np.array(collect(array)).T

# A model's or a gradient's arrays by name. The type is explicit: otherwise Julia would convert arrays and adjoints to one type, by a copy.
const Named = Pair{String,Any}

# A Python object with these attributes. Functions become methods, which take and return Python's objects.
object(; parts...) = types.SimpleNamespace(; (name => part isa Function ? pyfunc(part) : part for (name, part) in parts)...)

# The bench calls this as a workload's `Training`: a function of the setup. The function and its result carry the declared variant.
function adapter(training; variant = "", reason = "")
    function declare(thing)
        thing.VARIANT, thing.VARIANT_REASON = variant, reason
        thing
    end
    declare(pyfunc(setup -> declare(training(setup))))
end

# -- bench.frameworks.<name>.framework, which is a Python file in other frameworks -------------------------------------------------------

function configure(setup)
    BLAS.set_num_threads(pyconvert(Int, setup.threads))
    nothing
end

# The version in a loaded package's own Project.toml. pkgversion() came with Julia 1.9.
version_of(package) = TOML.parsefile(joinpath(pkgdir(package), "Project.toml"))["version"]

function device(setup)
    if pyconvert(String, setup.device) != "cpu"
        unsupported = pyimport("bench.errors").Unsupported
        throw(PyException(unsupported("this image's Julia packages compute on a CPU only; use --device cpu")))
    end
    pyimport("bench.environment").cpu_device()
end

settings() = pydict("julia_threads" => Threads.nthreads(), "blas_threads" => BLAS.get_num_threads())

is_out_of_memory(error) =
    pyisinstance(error, pyimport("juliacall").JuliaError) && pyconvert(Any, error.args[0]) isa OutOfMemoryError

# Make a module importable without a file: the bench imports an adapter by its name.
provide(name, value) = (sys.modules["bench.frameworks." * name] = value)

# Run the bench's command with a framework's adapters (workload's module => adapter), and exit with its code.
function main(name, package, adapters...)
    versions() = pydict("framework" => version_of(package), "julia" => string(VERSION), "pythoncall" => version_of(PythonCall))
    provide(name, types.ModuleType(name))
    # A CPU needs no synchronisation, and has no memory of its own to measure.
    provide("$name.framework", object(; NAME = name, configure, versions, device, settings, is_out_of_memory,
        synchronize = () -> nothing, device_peak_bytes = () -> nothing))
    for (workload, training) in adapters
        provide("$name.$workload", object(; Training = training))
    end
    exit(pyconvert(Int, entrypoint.main()))
end
