#!/bin/sh
# Slurm's Prolog: a node on which a fact or an import fails, or that lacks what the checks need, gets no job. In slurm.conf:
#
#   Prolog=/etc/slurm/slurm-prolog.sh
#   PrologFlags=Alloc
#
# It needs this project's checkout on the node, with its runner: git clone URL /opt/dlbench && make -C /opt/dlbench .venv/host.stamp
# Set DLBENCH_LEAST_GPUS below to the GPUs of a node: with fewer it gets no job.
#
# A Prolog that fails makes Slurm drain the node and queue the job again, so only a failure (1) and what could not begin (4) may fail it.
# Open (3) lets the job start, and so does a runner that is not there or broken. Slurm gives a Prolog no PATH.
PATH=$PATH:/usr/local/bin:/usr/bin:/bin
said=$("${DLBENCH_RUNNER:-/opt/dlbench/.venv/bin/runner}" verify --level 1 --least-gpus "${DLBENCH_LEAST_GPUS:-0}")
code=$?
last=$(printf '%s\n' "$said" | tail -n 1)
case $code:$last in 1:"FAIL: "* | 4:"could not begin: "*) ;; *) exit 0 ;; esac
printf '%s\n' "$last" >&2
exit 1
