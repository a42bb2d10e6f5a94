#!/bin/bash
# One run on Slurm: Ray on every node of a job, the driver on the first, nothing left when it ends. From an environment
# in which `python` has tlm_ray, on a filesystem that all nodes share:
#   sbatch cluster/slurm.sh python experiments/main_table.py --root /shared/tlm --out /shared/tables ...
# To set: the sizes below and their --partition. Without `hetjob` and the line after it all nodes are of one kind.
#
# Not `ray symmetric-run`, which is this in one command: as of Ray 2.60 it ends with `ray stop`, which stops your other
# jobs' Ray on the same nodes, exits with 0 when a node fails to start, and gives the nodes 30 s to come.
#SBATCH --job-name=tlm-ray --output=%x-%j.out --open-mode=append
#SBATCH --time=12:00:00 --signal=B:TERM@60
#SBATCH --nodes=4 --ntasks-per-node=1 --cpus-per-task=16 --mem=64G
#SBATCH hetjob
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=8 --mem=64G --gpus-per-node=1
set -euo pipefail

export RAY_AUTH_MODE=token                     # that of ~/.ray/auth_token, which the nodes share with your home
export RAY_TMPDIR=/tmp/ray-$SLURM_JOB_ID       # /tmp/ray may be another user's
export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0 # 30 s by default, as long as Slurm waits before it kills
export RAY_TRAIN_HEALTH_CHECK_INTERVAL_S=0.2   # train.report() waits for the controller's poll, 2 s by default
export RAY_USAGE_STATS_ENABLED=0
port=$((20000 + SLURM_JOB_ID % 5000)) # above Ray's workers, below what Linux gives to anyone
address=$(python -c 'import ray; print(ray.util.get_node_ip_address())'):$port # a name may not resolve everywhere

(umask 077 && ray get-auth-token --generate >/dev/null) # Ray itself leaves the file open to all readers,
chmod 600 ~/.ray/auth_token                             # and one that is there as it was

here=() steps=()
trap 'set +e; kill "${here[@]}" 2>/dev/null; kill -USR1 "${steps[@]}" 2>/dev/null; wait; rm -rf "$RAY_TMPDIR"' EXIT
trap 'exit 143' TERM # the end of --time, or scancel

# Two CPUs of the first node are for the driver, the GCS and the dashboard, which `ssh -L` reaches.
ray start --head --node-ip-address="${address%:*}" --port="$port" --ray-client-server-port=$((port + 5000)) --block \
  --dashboard-host=127.0.0.1 --num-gpus="${SLURM_GPUS_ON_NODE:-0}" \
  --num-cpus=$((SLURM_CPUS_ON_NODE > 2 ? SLURM_CPUS_ON_NODE - 2 : 0)) &
here+=($!)

# What a step runs until SIGUSR1, which srun hands on (at SIGTERM it kills). Values of $ are the other node's. Ray that
# waits for a head that is gone hears no signal, so it is killed after 10 s.
# shellcheck disable=SC2016
worker='timeout --kill-after=10 0 ray start --address="$0" --block \
  --num-cpus="$SLURM_CPUS_ON_NODE" --num-gpus="${SLURM_GPUS_ON_NODE:-0}" &
trap "kill $! 2>/dev/null" USR1 TERM
wait $!; wait $!; rm -rf "$RAY_TMPDIR"'

# A step for each node but the first, so that a lost node ends no other's: join NODES [SRUN_OPTION]
join() {
  local names node
  names=$(scontrol show hostnames "$1")
  for node in $names; do
    [ "$node" = "$SLURMD_NODENAME" ] && continue
    srun "${@:2}" --nodes=1 --ntasks=1 --nodelist="$node" --overlap bash -c "$worker" "$address" &
    steps+=($!)
  done
}
if [ "${SLURM_HET_SIZE:-1}" -gt 1 ]; then
  join "$SLURM_JOB_NODELIST_HET_GROUP_0" --het-group=0
  join "$SLURM_JOB_NODELIST_HET_GROUP_1" --het-group=1
else
  join "$SLURM_JOB_NODELIST"
fi

export RAY_ADDRESS=$address # what ray.init() connects to
timeout 600 python - $((1 + ${#steps[@]})) <<'END' &
import sys, time, ray

ray.init(log_to_driver=False, logging_level="ERROR")
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]):
    time.sleep(0.5)
print("All nodes are there:", ray.cluster_resources(), flush=True)
END
here+=($!)
wait -n "${here[@]}" # whichever ends first: without a head all is over
here=("${here[0]}")
"$@" &
here+=($!)
wait -n "${here[@]}"
