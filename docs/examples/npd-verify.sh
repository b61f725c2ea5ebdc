#!/bin/sh
# A custom plugin of the Node Problem Detector: exit code 0 well, 1 a problem, 2 unknown. Its rule is in npd-verify.json.
#
# It needs this project's checkout on the node, with its runner: git clone URL /opt/dlbench && make -C /opt/dlbench .venv/host.stamp
# With DLBENCH_LEAST_GPUS=8 a node with fewer GPUs is a problem, too, and so is one of which no framework uses a GPU.
#
# Level 2 holds parity, ceilings and bits, at most 45 s and 2 minutes a device. A GPU that a job computes on is left out, and a node that has
# no other is unknown. With DLBENCH_PROM=/var/lib/node_exporter/dlbench.prom the result is also one for Prometheus.
# A runner that is not there or broken is unknown, too.
PATH=$PATH:/usr/local/bin:/usr/bin:/bin
runner=${DLBENCH_RUNNER:-/opt/dlbench/.venv/bin/runner}
said=$("$runner" verify --level "${DLBENCH_LEVEL:-2}" --least-gpus "${DLBENCH_LEAST_GPUS:-0}" ${DLBENCH_PROM:+--prometheus "$DLBENCH_PROM"})
code=$?
last=$(printf '%s\n' "$said" | tail -n 1)
# The detector shows the first characters of the output.
printf '%s\n' "${last:-$runner says nothing}"
# A broken program ends with one of these codes, too, and does not print these words.
case $code:$last in 0:"pass: "*) exit 0 ;; 1:"FAIL: "* | 4:"could not begin: "*) exit 1 ;; *) exit 2 ;; esac
