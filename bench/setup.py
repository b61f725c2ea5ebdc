"""What an adapter is told before it builds anything."""

import collections

# device: "cpu" | "cuda"; precision: "fp32" | "tf32" | "amp-fp16" | "amp-bf16" (bench.mixed), of ops others;
# mode: how the framework compiles, "default" its own habit;
# threads: CPU threads to compute with; seed: of everything random in training (dropout);
# training: False in the parity check, where dropout is off; devices: how many work on one batch (bench.parallel);
# rank: which of them is this process's, where each has a process.
Setup = collections.namedtuple("Setup", "device precision mode threads seed training devices rank")
Setup.__new__.__defaults__ = (1, 0)  # most cells have one device
