"""The entrypoint of every image: `python -m bench run WORKLOAD --framework F ...` prints events on standard output."""

import argparse
import json
import os
import sys

from bench import frameworks, parity, workloads
from bench.protocol import Emitter
from bench.run import load_framework, run


def parser():
    top = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = top.add_subparsers(dest="command")
    commands.required = True

    cell = commands.add_parser("run", help="run one cell and print its events, one JSON object a line")
    cell.add_argument("workload", choices=workloads.names())
    cell.add_argument("--framework", required=True, choices=frameworks.names())
    cell.add_argument("--precision", default="fp32")
    cell.add_argument("--preset", default="quick", choices=["quick", "standard", "full"])
    cell.add_argument("--mode", default="default", help="how the framework compiles; default: its own habit")
    cell.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    cell.add_argument("--devices", type=int, default=1, help="how many devices")
    cell.add_argument("--seed", type=int, default=1)
    cell.add_argument("--data", help="folder of the real data set; without it, a learnable stand-in is generated")
    cell.add_argument("--threads", type=int, default=0, help="CPU threads; 0: as many as this process may use")

    commands.add_parser("frameworks", help="list the frameworks that this interpreter has, as JSON")

    made = commands.add_parser("reference", help="compute a workload's float64 reference and the parity bounds")
    made.add_argument("workload", choices=workloads.names())
    made.add_argument("--variant", default="", help="one of the variants that the workload declares")
    return top


def in_its_own_language(options):
    """Become the entrypoint of a framework that is not in Python; returns where there is none. Raises OSError.

    It gets the same arguments and owes the same events. DLBENCH_PYTHON names this interpreter, for what it takes from the bench.
    """
    entrypoint = frameworks.declaration(options.framework).get("entrypoint")
    if entrypoint:
        program, script = entrypoint
        script = os.path.join(frameworks.FOLDER, options.framework, script)
        os.environ["DLBENCH_PYTHON"] = sys.executable
        sys.stdout.flush()
        os.execvp(program, [program, script] + sys.argv[1:])


def list_frameworks():
    found = []
    for name in frameworks.names():
        if "entrypoint" in frameworks.declaration(name):
            continue  # another language's: this interpreter cannot tell
        try:
            framework = load_framework(name)
            found.append({"framework": name, "version": framework.versions()["framework"]})
        except Exception as error:  # a broken installation is left out of the list, and said
            print("%s: %s" % (name, error), file=sys.stderr)
    return found


def main():
    options = parser().parse_args()
    if options.command == "run":
        try:
            in_its_own_language(options)
        except OSError as error:
            emitter = Emitter()
            message = "this machine cannot run %s: %s" % (options.framework, error)
            emitter.emit("error", kind="unsupported", message=message, traceback="")
            emitter.emit("end", status="failed", stop="none", noise=None, steps=0)
            return 1
        return run(options, Emitter())
    if options.command == "frameworks":
        emitter = Emitter()  # a framework that prints on import must not break the JSON
        emitter.write(json.dumps(list_frameworks()).encode("utf-8") + b"\n")
        return 0
    import numpy

    path = parity.reference_path(options.workload, options.variant)
    numpy.savez_compressed(path, **parity.make_reference(options.workload, options.variant))
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
