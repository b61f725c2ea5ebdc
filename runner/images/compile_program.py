"""The facts of a program that XLA compiled for a GPU, read from its HLO text: launches, products, layouts, donation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

# A computation's first line, such as `ENTRY %main.45 (x.1: f32[64]) -> f32[64] {`, and an instruction's name and type.
_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?P<root>ROOT )?%?(?P<name>[\w.-]+) = (?P<rest>.+)$")
_OPCODE = re.compile(r"^ ([a-z][\w-]*)\(")
_ELEMENT = re.compile(r"^\(*([a-z]\w*)\[")
_OPERAND = re.compile(r"%([\w.-]+)")
_CALLED = re.compile(r"\b(?:calls|to_apply|body|condition)=%?([\w.-]+)")
_BRANCHES = re.compile(r"\b(?:branch_computations|true_computation|false_computation)=\{?([^,}]*(?:, %[^,}]*)*)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_PRECISION = re.compile(r'operand_precision(?:=\{|":\[)([^}\]]*)[}\]]')
_ALGORITHM = re.compile(r'\balgorithm(?:=|":")(dot_\w+|ALG_DOT_\w+)')
_LABELS = re.compile(r"dim_labels=([a-z0-9]+)_")
_ALIAS = re.compile(r"\{[\d, ]*\}: \(\d+, ")

# The algorithms that take a factor of float32 as it is, or as the sum of its three parts.
_EXACT = re.compile(r"(?i)(alg_)?dot_(f32_f32_f32|f64_f64_f64|bf16_bf16_f32_x[69])\Z")

# Instructions that start nothing on the GPU: they name memory, or the end of what was started before.
_STARTS_NOTHING = frozenset(
    (
        "parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "opt-barrier", "partition-id", "replica-id",
        "copy-done", "async-done", "async-update", "all-reduce-done", "send-done", "recv-done", "add-dependency",
    )
)  # fmt: skip
_CALLS = frozenset(("call", "async-start"))
# Calls of cuBLAS and cuDNN that multiply: names such as __cublas$lt$matmul$f8 and __cudnn$convForward.
_MULTIPLIES = ("__cublas$gemm", "__cublas$lt$matmul", "__cudnn$conv", "__cudnn$fmha", "__triton_gemm")
_LAYOUTS = {"b01f": "NHWC", "bf01": "NCHW", "b0f": "NWC", "bf0": "NCW"}


@dataclass(frozen=True)
class Program:
    """Of several programs: their sums."""

    # Kernels and library calls that it starts.
    launches: int = 0
    # The arrays that it returns, and how many of them take the memory of an argument, which was donated.
    results: int = 0
    aliased: int = 0
    # The element type of the factors -> matrix products and convolutions.
    products: Counter[str] = field(default_factory=Counter)
    # Of those of float32, how many may round their factors to TF32.
    tf32: int = 0
    # Of the convolutions.
    layouts: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Program) -> Program:
        return Program(
            self.launches + other.launches,
            self.results + other.results,
            self.aliased + other.aliased,
            self.products + other.products,
            self.tf32 + other.tf32,
            self.layouts + other.layouts,
        )


@dataclass(frozen=True)
class _Instruction:
    name: str
    type: str
    opcode: str
    # The operands, and the attributes behind them.
    rest: str
    root: bool

    @property
    def target(self) -> str:
        """The function that a custom call calls."""
        named = _TARGET.search(self.rest)
        return named[1] if named and self.opcode == "custom-call" else ""

    @property
    def multiplies(self) -> bool:
        return self.opcode in ("dot", "convolution") or self.target.startswith(_MULTIPLIES)


class UnreadableProgramError(Exception):
    """The text is no program of XLA's, or of a form that this module does not know."""


def read_program(text: str) -> Program:
    """Raises UnreadableProgramError."""
    head, _, _ = text.partition("\n")
    computations, entry = _computations(text)
    if not head.startswith("HloModule") or entry is None:
        raise UnreadableProgramError(f"it begins with {head[:80]!r} and has {len(computations)} computations")
    products: Counter[str] = Counter()
    layouts: Counter[str] = Counter()
    tf32 = 0
    for instructions in computations.values():
        types = {instruction.name: instruction.type for instruction in instructions}
        for instruction in filter(lambda one: one.multiplies, instructions):
            element = _element(instruction, types)
            products[element] += 1
            tf32 += element == "f32" and _may_use_tf32(instruction.rest)
            if labels := _LABELS.search(instruction.rest):
                layouts[_LAYOUTS.get(labels[1], labels[1])] += 1
    roots = [instruction for instruction in computations[entry] if instruction.root]
    aliases = head.partition("input_output_alias={")[2].partition("}, entry_computation_layout")[0]
    return Program(
        launches=_launches(entry, computations),
        results=_leaves(roots[0].type) if roots else 0,
        aliased=len(_ALIAS.findall(aliases)),
        products=products,
        tf32=tf32,
        layouts=layouts,
    )


def _computations(text: str) -> tuple[dict[str, list[_Instruction]], str | None]:
    """(name -> instructions, the name of the entry)."""
    computations: dict[str, list[_Instruction]] = {}
    entry, current = None, None
    for line in text.splitlines()[1:]:
        if current is not None and (found := _INSTRUCTION.match(line)):
            current.append(_instruction(found))
        elif found := _COMPUTATION.match(line):
            current = computations.setdefault(found["name"], [])
            entry = found["name"] if found["entry"] else entry
    return computations, entry


def _instruction(found: re.Match[str]) -> _Instruction:
    rest = found["rest"]
    # A tuple's type has spaces and parentheses of its own.
    end = _closing(rest) + 1 if rest.startswith("(") else rest.find(" ")
    opcode = _OPCODE.match(rest[end:])
    if opcode is None:
        raise UnreadableProgramError(f"an instruction without an operation: {found[0].strip()[:120]!r}")
    return _Instruction(found["name"], rest[:end], opcode[1], rest[end + opcode.end() :], bool(found["root"]))


def _closing(text: str) -> int:
    """The position of the parenthesis that closes the first character's."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return at
    raise UnreadableProgramError(f"a parenthesis is not closed: {text[:120]!r}")


def _leaves(type_: str) -> int:
    """The arrays of a type."""
    return len(re.findall(r"[a-z]\w*\[", type_))


def _element(instruction: _Instruction, types: dict[str, str]) -> str:
    """The element type of the first factor."""
    operands = instruction.rest[: _closing("(" + instruction.rest) - 1]
    first = _OPERAND.search(operands)
    # Older texts have each operand's type before its name.
    found = _ELEMENT.match(types.get(first[1], operands) if first else operands)
    return found[1] if found else "unknown"


def _may_use_tf32(attributes: str) -> bool:
    """As XLA's IsTf32Allowed: by the algorithm where one is set, else where no operand asks for the highest precision.

    An algorithm that rounds the factors to bfloat16 keeps less than TF32 does.
    """
    if algorithm := _ALGORITHM.search(attributes):
        return not _EXACT.match(algorithm[1])
    given = _PRECISION.search(attributes)
    return "highest" not in (given[1].lower() if given else "")


def _launches(computation: str, computations: dict[str, list[_Instruction]]) -> int:
    """The kernels and library calls that a computation starts. Of a branch: the longer way."""
    count = 0
    for instruction in computations.get(computation, ()):
        called = list(_called(instruction))
        if instruction.opcode == "while":
            trips = _TRIPS.search(instruction.rest)
            if trips is None:
                raise UnreadableProgramError(f"the loop {instruction.name} does not say how often it turns")
            count += int(trips[1]) * sum(_launches(name, computations) for name in called)
        elif instruction.opcode == "conditional":
            count += max((_launches(name, computations) for name in called), default=0)
        elif instruction.opcode in _CALLS:
            count += sum(_launches(name, computations) for name in called)
        elif instruction.opcode not in _STARTS_NOTHING:
            count += 1
    return count


def _called(instruction: _Instruction) -> Iterator[str]:
    if instruction.opcode == "conditional":
        for names in _BRANCHES.findall(instruction.rest):
            yield from (name.strip().lstrip("%") for name in names.split(","))
    else:
        yield from _CALLED.findall(instruction.rest)
