"""The messages of Slurm, of MUNGE under it, and of Ray, where a node or an allocation was asked for."""

from __future__ import annotations

from runner.messages.known import Known

# salloc takes each of its options from a variable of this form, too.
_SALLOC = "salloc takes it from the variable {}"

OF_SCHEDULERS: tuple[Known, ...] = (
    Known(
        r"Munge (en|de)code failed|munge\.socket|[Pp]rotocol authentication error|Invalid authentication credential",
        "MUNGE, by which Slurm knows who asks, does not answer here",
        "`systemctl start munge`; `munge -n | unmunge` tells if it works",
    ),
    Known(
        r"Invalid job credential|Zero Bytes were transmitted",
        "the node refuses what the controller signed: their MUNGE keys or their clocks differ, or one of their daemons was not restarted",
        "/etc/munge/munge.key and `date` must be the same on all of them; then restart munge and slurmd there",
    ),
    Known(
        r"Unable to contact slurm controller|controller not responding",
        "slurmctld does not answer",
        "`scontrol ping` names its machine: start slurmctld there, or try again later",
    ),
    Known(
        r"Prolog (failure|error)|failed in (the )?[Pp]rolog|prolog failed",
        "what the site runs on a node before each job (its prolog) failed there, so the job was taken back",
        "`sinfo -R` names the node with its reason, and slurmd's log on it tells more; name other nodes until it is repaired",
    ),
    Known(
        r"layout tasks on given cpus|failed to distribute tasks|Unable to satisfy cpu bind|More processors requested than permitted",
        "the step asks for other CPUs than the job has on the node, or binds them otherwise than Slurm can",
        "start the runner outside of another srun; look at the variables SLURM_CPU_BIND, SLURM_HINT and SRUN_CPUS_PER_TASK",
    ),
    Known(
        r"Socket timed out on send/recv|Communication connection failure",
        "slurmctld, or slurmd on the node, does not answer in time: it is busy or down, a firewall is between, or MUNGE's keys differ",
        "`scontrol ping` and `systemctl status slurmd munge` on the node",
    ),
    Known(
        r"Cannot find GPU specification|not requesting GPUs",
        "this site gives the partition only to jobs that ask for GPUs",
        f"{_SALLOC.format('SALLOC_GRES')}: SALLOC_GRES=gpu:8 with the node's number of GPUs",
    ),
    Known(
        r"Invalid generic resource|Requested GRES option unsupported",
        "Slurm does not hand out the GPUs by the name that was asked: its nodes have no such resource, or its SelectType is not cons_tres",
        '`sinfo -o "%N %G"` shows their names; look at SALLOC_GRES and SALLOC_GPUS, and at GresTypes in slurm.conf',
    ),
    Known(
        r"Requested node configuration is not available|Memory specification can not be satisfied",
        "no node of the partition has what the job asks for",
        "`scontrol show node` shows what they have; look at the variables SALLOC_ and SBATCH_, and name other nodes",
    ),
    Known(
        r"Invalid account or account/partition combination",
        "Slurm's account, or the one that it takes by itself, may not use this partition",
        f"`sacctmgr show associations user=$USER` names yours; {_SALLOC.format('SALLOC_ACCOUNT')}",
    ),
    Known(
        r"Invalid qos specification",
        "the quality of service is none of yours, or not of this partition",
        f"`sacctmgr show associations user=$USER format=account,qos` names yours; {_SALLOC.format('SALLOC_QOS')}",
    ),
    Known(
        r"Requested time limit is invalid|QOSMaxWall\w+|requested timelimit exceeds",
        "the partition wants another time limit than the job's",
        f'`sinfo -o "%R %l"` shows the longest; {_SALLOC.format("SALLOC_TIMELIMIT")}',
    ),
    Known(
        r"(QOS|Assoc)(Max|Grp|Min)\w+|[Jj]ob violates accounting/QOS policy",
        "a limit of your account or quality of service refuses the job",
        "`sacctmgr show qos` shows the limits, `squeue --me` what already counts; name fewer nodes (slurm:n1), or another by SALLOC_QOS",
    ),
    Known(
        r"Memory required by task is not available|step creation temporarily disabled",
        "another step of the same allocation holds the node's memory or CPUs",
        "start the runner as the allocation's only step, or give that step a limit (`srun --mem=`)",
    ),
    Known(
        r"oom[_-]kill event|exceeded (job|step) memory limit|[Ee]xceeded memory limit|task \d+: Out Of Memory",
        "Slurm ended a process that took more memory than the job has",
        "give the allocation more memory (`--mem=0` is all of the node's)",
    ),
    Known(
        r"due to (time limit|preemption|node fail|job requeue)",
        "Slurm took the node or the job back: its time was over, a job of more weight came, or the node failed",
        "a longer time (SALLOC_TIMELIMIT), or a partition without preemption (`scontrol show partition`)",
        again=True,
    ),
    Known(
        r"are mutually exclusive|Expired or invalid job|Invalid job id|SLURM_\w+ (is|has) (invalid|conflict)",
        "variables of another job of Slurm's are in the environment, and this command takes them as its own",
        "start from a shell outside of a job, or `unset` those that the message names (`env | grep ^SLURM`)",
    ),
    Known(
        r"execve\(\): [^\n]*(No such file or directory|Permission denied)|couldn't chdir to",
        "the node does not have this machine's folders, and the runner is started there by the same path",
        "install the runner in a folder that all nodes share, or by the same path on each of them",
    ),
    Known(
        r"Could not establish a configuration source|DNS SRV lookup failed|Unable to process configuration file",
        "Slurm's programs find no slurm.conf here",
        "run it on a login node, or set SLURM_CONF to the site's file",
    ),
    # A step of Slurm's that has no entry of its own above
    Known(
        r"(Task|Application)( \d+)? launch (for \S+ )?failed|(^|\n)slurm(step)?d: (error|fatal): (?!\*\*\*)",
        "Slurm could not start a process on the node",
        "slurmd's log on the node tells why; `systemctl status slurmd munge` there",
        general=True,
    ),
    # OpenSSH's client, which asks nothing here
    Known(
        r"kex_exchange_identification|Host key verification failed|REMOTE HOST IDENTIFICATION"
        r"|Permission denied \((publickey|password|keyboard)|Could not resolve hostname|ssh: connect to host",
        "ssh does not reach the machine, or would ask something first",
        "`ssh -o BatchMode=yes HOST true` must work without a question: its name, its key in known_hosts, your key there, MaxStartups",
    ),
    Known(
        r"Version mismatch: The cluster was started with",
        "this Python or Ray is of another release than the cluster's",
        "run the command with the Python and the Ray that the cluster has",
    ),
    Known(
        r"[Uu]nable to connect to GCS|[Ff]ailed to (connect to|get cluster ID from) GCS|waiting for GCS",
        "no head of Ray in this release answers at that address: 6379 is its usual port, and 8265 that of its page",
        "`ray status` on the head; the address is what `ray start --head` printed",
    ),
    Known(
        r"HTTP proxy returned response code|failed to connect to all addresses",
        "Ray's processes do not reach one another: a proxy or a firewall is between",
        "set no_proxy to the machines of the cluster, or take http_proxy and https_proxy out of the environment, here and where Ray starts",
    ),
    Known(
        r"waiting for node to startup|node has not been updated within|raylet[^\n]*(failed|died)",
        "Ray's processes on a machine did not start, or belong to an older session",
        "`ray stop --force` and `ray start` again there; its logs lie in /tmp/ray/session_latest/logs",
    ),
    Known(
        r"missed too many heartbeats|missing too many heartbeats|marked (as )?dead|its node has died|node it was running on is dead"
        r"|Raylet is terminated",
        "Ray lost the node: its raylet ended, or the node was too busy or its network too slow to answer",
        "raylet.out in /tmp/ray/session_latest/logs and `dmesg` on that node tell which; then `ray start` there again",
    ),
    Known(
        r"does not match persisted value",
        "another Ray has the same port on this machine, or an older session is still there",
        "`ray stop --force`, or `ray start --port` with a port of one's own",
    ),
    Known(
        r"exceeded K8s pod memory limits|OutOfMemoryError: Task was killed|low on memory",
        "Ray's process was ended since memory ran out",
        "a pod or machine with more memory",
    ),
    Known(
        r"is over \d+% full|/tmp/ray[^\n]*No space left|No space left on device[^\n]*/ray/",
        "the disk on which Ray works is full",
        "clear it, or start Ray with --temp-dir on another disk",
    ),
    Known(
        r"(Failed to set ?up|associated) runtime env|GetOrCreateRuntimeEnv",
        "Ray could not make the environment of its worker on that node",
        "runtime_env_agent.log in /tmp/ray/session_latest/logs on it tells why",
        general=True,
    ),
    Known(
        r"The actor is dead because|[Aa]ctor died unexpectedly",
        "a process of Ray's on that node ended",
        "`dmesg | grep -i 'out of memory'` there tells if memory ran out; else its logs in /tmp/ray/session_latest/logs",
        general=True,
    ),
    Known(
        r"^(salloc|srun|sinfo|squeue|scontrol|slurmstepd|slurm_load\w+): |\nslurm(stepd|_load\w+): ",
        "Slurm refused it",
        "its words say why; `sinfo -R`, `scontrol show partition`, and slurmctld's log tell more; a site has rules of its own",
        general=True,
    ),
)
