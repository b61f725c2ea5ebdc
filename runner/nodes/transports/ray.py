"""`ray`: an agent on each node of the Ray cluster that this machine belongs to."""

from __future__ import annotations

import functools
import importlib
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.known_messages import explained
from runner.nodes.transports import ray_actor, transport
from runner.run.progress import say
from runner.text import in_a_line, plural

# An actor starts within seconds where its node is free.
_START_SECONDS = 10.0
# The most unread pieces of an agent's output at its node.
_MOST_UNREAD = 64
# Of the cluster's head, on a network between two sites.
_ANSWER_SECONDS = 10.0
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}:[0-9]{1,5}")
# Otherwise Ray hides GPUs from an actor, or all of them from one that reserves none: the agent finds and leases its GPUs itself.
_VARIABLES = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}


class Ray(transport.Nodes):
    """The nodes of a Ray cluster. To measure, an agent reserves all GPUs and CPUs of its node: other Ray work stays off."""

    shares_machine = False
    notes: tuple[str, ...] = ()

    def __init__(self, address: str, reserve: bool = True) -> None:
        """Connect to it: "" is the cluster of this machine, or that of RAY_ADDRESS. Raises NodesError."""
        if address and not _ADDRESS.fullmatch(address):
            raise transport.NodesError(_why_no_address(address))
        if address:
            _ask(address)
        self._ray = _imported()
        _connect(self._ray, address or "auto")
        self._reserve = reserve
        # The id of a Ray node -> its name here.
        self._names: dict[str, str] = {}

    def there(self) -> Sequence[transport.Node]:
        """The nodes that are alive and offer CPUs or GPUs: a head that offers none only directs the others."""
        found = [node for node in self.alive() if node["Resources"].get("CPU") or node["Resources"].get("GPU")]
        if not found and not self._names:
            raise transport.NodesError(
                "--nodes ray: no node of this Ray cluster offers CPUs or GPUs; start Ray on the machines to measure"
            )
        return [
            transport.Node(self._name(node), (), start=functools.partial(self._start, node))
            for node in sorted(found, key=lambda node: (node["NodeManagerHostname"], node["NodeID"]))
        ]

    def alive(self) -> list[dict[str, Any]]:
        """Ray's nodes. Raises NodesError where its head does not answer."""
        try:
            return [node for node in self._ray.nodes() if node["Alive"]]
        except Exception as error:
            raise transport.NodesError(
                f"--nodes ray: Ray does not say which nodes there are ({_line(error)})"
            ) from None

    def _name(self, node: dict[str, Any]) -> str:
        """A host's name; that of a second Ray node of this name, or one that was started again, has the begin of its id besides."""
        host = re.sub("[^A-Za-z0-9._-]", "-", node["NodeManagerHostname"])[:80].lstrip("._-") or "node"
        if node["NodeID"] not in self._names:
            taken = host in self._names.values()
            self._names[node["NodeID"]] = f"{host}-{node['NodeID'][:8]}" if taken else host
        return self._names[node["NodeID"]]

    def _start(self, node: dict[str, Any]) -> Carried:
        return Carried(self._ray, self._name(node), node, self._reserve)


class Carried:
    """The pipe to an agent through an actor on its node. Ray starts the actor as soon as the node is free."""

    def __init__(self, ray: Any, name: str, node: dict[str, Any], reserve: bool) -> None:
        """Ask Ray for the actor. Raises NodesError where the node is gone: an actor for it would wait for ever."""
        self._ray, self._name, self._id = ray, name, node["NodeID"]
        self._needs = {kind: node["Resources"].get(kind, 0) if reserve else 0 for kind in ("GPU", "CPU")}
        if not any(other["NodeID"] == self._id and other["Alive"] for other in ray.nodes()):
            raise transport.NodesError(f"{name}: Ray says that this node is gone; start Ray there again")
        ray.cloudpickle.register_pickle_by_value(ray_actor)
        # Its methods run in threads: one hands on what the agent writes, another one what it reads.
        actors = ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=4)(ray_actor.Carrier)
        self._actor = actors.options(
            num_gpus=self._needs["GPU"],
            num_cpus=self._needs["CPU"],
            label_selector={"ray.io/node-id": self._id},
            runtime_env={"env_vars": _VARIABLES},
        ).remote([sys.executable, *transport.AGENT])
        self._ready = self._actor.ready.remote()
        chunks = self._actor.chunks.options(num_returns="streaming", _generator_backpressure_num_objects=_MOST_UNREAD)
        self._stream = chunks.remote()
        self._spoke = False
        self._last: tuple[int, bytes] = (-1, b"")
        self._over = threading.Event()

    def send(self, content: bytes) -> None:
        if not self._spoke:
            # The driver has only a good-bye for an agent that said nothing. Ray would keep it until the node is free.
            raise OSError("the agent has not been started yet")
        # With the answer awaited, what is sent next comes next, and a node that does not take it holds up only its own thread.
        self._call(self._actor.send.remote(content))

    def hang_up(self) -> None:
        if self._spoke:
            try:
                self._call(self._actor.hang_up.remote())
            except OSError:
                self.kill()
        else:
            self.kill()

    def chunks(self) -> Iterator[bytes]:
        try:
            self._await_start()
            for reference in self._stream:
                piece = self._call(reference)
                if isinstance(piece, tuple):
                    self._last = piece
                    return
                self._spoke = True
                yield piece
            raise OSError("Ray ended its actor without a reason")
        finally:
            self._over.set()
            # Other work may have the node now.
            self.kill()

    def last_words(self) -> tuple[int, bytes]:
        return self._last

    def kill(self) -> None:
        self._ray.kill(self._actor)

    def end(self, patience: float) -> None:
        self._over.wait(patience)
        self.kill()

    def waits_for(self) -> str:
        if self._spoke or self._over.is_set() or not any(self._needs.values()):
            return ""
        free = importlib.import_module("ray._private.state").available_resources_per_node().get(self._id, {})
        if all(free.get(kind, 0) >= count for kind, count in self._needs.items()):
            return ""
        return " and ".join(
            f"{plural(int(count), kind)} ({int(free.get(kind, 0))} free)"
            for kind, count in self._needs.items()
            if count
        )

    def _await_start(self) -> None:
        """Say what the actor waits for, and how slowly its node would run it."""
        if not self._ray.wait([self._ready], timeout=_START_SECONDS)[0] and (needs := self.waits_for()):
            say(f"node {self._name} waits in line for {needs}: other Ray work holds the rest")
        if (niceness := self._call(self._ready)) > 0:
            say(
                f"node {self._name}: Ray runs the agent with niceness {niceness}, so any other process there comes first; "
                "start Ray there with RAY_worker_niceness=0"
            )

    def _call(self, reference: Any) -> Any:
        """The result of a method of the actor. Raises OSError with Ray's words."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            raise OSError(f"Ray: {_line(error)}") from None


def _imported() -> Any:
    """Ray. As Any: what needs no Ray is checked and runs without it."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise transport.NodesError(
            f"--nodes ray: {sys.executable} has no Ray ({_line(error)}); install it in the cluster's own release: "
            "pip install 'ray>=2.49,<3'"
        ) from None


def _speak_on_stderr(ray: Any) -> None:
    """Ray says on the standard output of every driver which nodes have died. A script reads a document there, so it goes to standard error.

    Ray has no option for that. In a release without this function its words stay where they are.
    """
    worker: Any = getattr(getattr(ray, "_private", None), "worker", None)
    show = getattr(worker, "print_to_stdstream", None)
    if show is None or hasattr(show, "__wrapped__"):
        return

    @functools.wraps(show)
    def show_on_stderr(data: Mapping[str, Any], *more: Any, **named: Any) -> None:
        show({**data, "is_err": True}, *more, **named)

    worker.print_to_stdstream = show_on_stderr


def _ask(address: str) -> None:
    """Raise NodesError where nothing answers at HOST:PORT: Ray itself would try for five minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise transport.NodesError(
            f"--nodes ray:{in_a_line(address, 80)}: nothing answers there ({_line(error)}); the head's address is what `ray start --head` "
            "printed, HOST:6379 by default"
        ) from None


def _connect(ray: Any, address: str) -> None:
    _speak_on_stderr(ray)
    # Ray takes SIGTERM for itself.
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", ignore_reinit_error=True)
    except Exception as error:
        raise transport.NodesError(
            f"--nodes ray: no connection to a Ray cluster ({_line(error)}); run the command in the "
            "cluster, with `ray job submit` or on its head, or name ray:HOST:PORT"
        ) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _why_no_address(address: str) -> str:
    if address.startswith("//"):
        return (
            f"--nodes ray:{in_a_line(address, 80)}: Ray's client is not used, since a run must not end with its connection; "
            "run the command in the cluster, with `ray job submit` or on its head, and say --nodes ray"
        )
    return f"--nodes ray:{in_a_line(address, 80)}: it is no HOST:PORT, the address of the cluster's head; say ray or ray:HOST:PORT"


def _line(error: BaseException) -> str:
    """The sentence of an error of Ray that says most: where an actor died, why; and the advice of a known message."""
    said = str(error) or type(error).__name__
    dead = said.find("The actor is dead because")
    return explained(said[max(0, dead) :], whole=True)
