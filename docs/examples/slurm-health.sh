#!/bin/sh
# Slurm's HealthCheckProgram: drains a node of which a fact or an import fails, or that lacks what the checks need. In slurm.conf:
#
#   HealthCheckProgram=/etc/slurm/slurm-health.sh
#   HealthCheckInterval=3600
#   HealthCheckNodeState=IDLE
#
# It needs this project's checkout on the node, with its runner: git clone URL /opt/dlbench && make -C /opt/dlbench .venv/host.stamp
# Set DLBENCH_LEAST_GPUS below to the GPUs of a node: with fewer it is drained.
#
# Slurm kills it after 60 s. Level 1 ends within 45 s, or 10 s later where a driver hangs. Open says nothing, and neither does a runner that
# is not there or broken, of which the daemon's log has a line.
PATH=$PATH:/usr/local/bin:/usr/bin:/bin
said=$("${DLBENCH_RUNNER:-/opt/dlbench/.venv/bin/runner}" verify --level 1 --least-gpus "${DLBENCH_LEAST_GPUS:-0}")
code=$?
reason=$(printf '%s\n' "$said" | tail -n 1 | cut -c 1-200)
case $code:$reason in 1:"FAIL: "* | 4:"could not begin: "*) ;; *) exit 0 ;; esac
scontrol update NodeName="${SLURMD_NODENAME:-$(hostname -s)}" State=DRAIN Reason="dlbench: $reason"
