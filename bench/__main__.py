"""The entrypoint of every image: `python -m bench run WORKLOAD --framework F ...` prints events on standard output."""

import argparse
import json
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
    return top


def list_frameworks():
    found = []
    for name in frameworks.names():
        try:
            framework = load_framework(name)
            found.append({"framework": name, "version": framework.versions()["framework"]})
        except Exception as error:  # a broken installation is left out of the list, and said
            print("%s: %s" % (name, error), file=sys.stderr)
    return found


def main():
    options = parser().parse_args()
    if options.command == "run":
        return run(options, Emitter())
    if options.command == "frameworks":
        emitter = Emitter()  # a framework that prints on import must not break the JSON
        emitter.write(json.dumps(list_frameworks()).encode("utf-8") + b"\n")
        return 0
    import numpy

    numpy.savez_compressed(parity.reference_path(options.workload), **parity.make_reference(options.workload))
    print(parity.reference_path(options.workload))
    return 0


if __name__ == "__main__":
    sys.exit(main())
