#!/usr/bin/env bash
# A SLURM cluster of two nodes on this machine: tasks join, one is killed, a job is cancelled.
# All of it lives in namespaces of its own: the daemons, their files on /run and the nodes' names end with the test.
# Needs root, ip and SLURM's programs; else it is skipped (77).
#   slurm.bash TANDEM
set -euo pipefail
if [ "${2-}" != inside ]; then
  for program in slurmctld slurmd srun sbatch scancel ip unshare; do
    command -v $program >/dev/null || { echo "no $program here: SLURM and iproute2 are wanted"; exit 77; }
  done
  own=(unshare --mount --uts --net --pid --fork --kill-child --mount-proc)
  "${own[@]}" true 2>/dev/null || { echo "no namespaces here: root is wanted"; exit 77; }
  exec "${own[@]}" bash "$0" "$1" inside
fi
tandem=$(realpath "$1")
unset RANK WORLD_SIZE "${!SLURM@}" "${!MASTER_@}"
trap exit INT TERM
mount -t tmpfs none /run
cd /run
trap '[ $? = 0 ] || tail -n 15 ./*.log ./*.out' EXIT

# SLURM wants an address that is not the loopback's.
ip link set lo up
for i in 1 2; do
  ip addr add 10.77.0.$i/32 dev lo
  echo "10.77.0.$i node$i"
done >hosts
mount --bind hosts /etc/hosts
hostname node1
mkdir state
cat >slurm.conf <<'CONF'
ClusterName=test
SlurmctldHost=node1
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/run/state
SlurmdSpoolDir=/run/spool_%n
SlurmctldPidFile=/run/controller.pid
SlurmdPidFile=/run/%n.pid
SlurmctldLogFile=/run/controller.log
SlurmdLogFile=/run/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
NodeName=node1 NodeHostname=node1 Port=7001 CPUs=16
NodeName=node2 NodeHostname=node1 Port=7002 CPUs=16
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
export SLURM_CONF=/run/slurm.conf
slurmctld -D 2>/dev/null &
slurmd -D -N node1 2>/dev/null &
slurmd -D -N node2 2>/dev/null &
until [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ]; do
  [ $SECONDS -lt 30 ] || { echo "the cluster does not come up"; exit 1; }
  sleep 0.1
done

on_two_nodes=(timeout 60 srun -N 2 -n 3)
# shellcheck disable=SC2016  # each task's own variables
tasks=$("${on_two_nodes[@]}" bash -c 'echo $SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID' | sort)
[ "$tasks" = $'0 0 0\n1 0 1\n2 1 0' ] || { echo "rank, node and local rank of the tasks are: $tasks"; exit 1; }

job=(train data.classes=20 train.batch=15 model=mlp train.steps=12 threads=1 report.compare=false comm.init_timeout=60)
"${on_two_nodes[@]}" "$tandem" "${job[@]}" out=/run/tasks >tasks.out 2>&1
"$tandem" "${job[@]}" ranks=3 out=/run/threads >threads.out 2>&1
python3 - <<'PYTHON'
import json
tasks, threads = (json.load(open(f"/run/{name}/result.json")) for name in ("tasks", "threads"))
assert tasks["ranks"] == 3
assert abs(tasks["loss"] - threads["loss"]) < 1e-4, (tasks["loss"], threads["loss"])
for task, thread in zip(tasks["wire"]["ranks"], threads["wire"]["ranks"], strict=True):
    assert task["reduce_scatter"] == thread["reduce_scatter"]
print("three tasks on two nodes give the loss and the bytes of three threads")
PYTHON

# In a batch script that calls no srun one task runs, and waits for nobody.
alone=$(printf '%q ' "$tandem" "${job[@]}" out=/run/alone)
timeout 60 sbatch --wait -N 2 -n 3 -o alone.out --wrap "$alone" >/dev/null
python3 -c 'import json; assert json.load(open("/run/alone/result.json"))["ranks"] == 1'
echo "a batch script without srun trains alone"

# mpirun starts its daemons by srun, whose variables the ranks inherit.
if command -v mpirun.mpich >/dev/null; then
  by_mpirun=$(printf '%q ' mpirun.mpich -n 4 "$tandem" "${job[@]}" out=/run/mpirun)
  timeout 60 sbatch --wait -N 2 -n 4 -o mpirun.out --wrap "$by_mpirun" >/dev/null
  python3 -c 'import json; assert json.load(open("/run/mpirun/result.json"))["ranks"] == 4'
  echo "mpirun on two nodes trains with its own ranks"
fi

# A shell that has the variables of the first of four tasks; the others find nothing to read, and end.
in_shell="$(printf '%q ' "$tandem" "${job[@]}" out=/run/shell) >shell.out 2>&1; exit"
timeout 60 script -qec "srun -n 4 --pty bash" /dev/null <<<"$in_shell" >/dev/null
python3 -c 'import json; assert json.load(open("/run/shell/result.json"))["ranks"] == 1'
echo "a shell of srun --pty trains alone"

# A job without an end, to which something happens after its first checkpoint. srun's status is its tasks' highest.
endless=("${job[@]}" train.steps=1000000 eval.every=0 checkpoint.every=5)
# shellcheck disable=SC2016  # $0: the run's name
saved='until compgen -G "/run/$0/checkpoints/step_*" >/dev/null; do sleep 0.1; done'
ends_with() {
  local wanted=$1 name=$2 status=0
  shift 2
  "${on_two_nodes[@]}" "$@" "$tandem" "${endless[@]}" "out=/run/$name" >"$name.out" 2>&1 || status=$?
  [ $status = "$wanted" ] || { echo "$name: srun ended with $status, wanted $wanted"; exit 1; }
}
# SLURM lets the other tasks be: it is for them to notice.
ends_with 137 killed bash -c "[ \$SLURM_PROCID != 2 ] || { $saved; kill -9 \$\$; } & exec \"\$@\"" killed
for rank in 0 1; do grep -q "^error: .*(rank $rank of 3)" killed.out; done
grep -q 'Exited with exit code 76' killed.out
echo "a task is killed: the others fail with it"

{ bash -c "$saved" cancelled; scancel --name=endless; } &
ends_with 75 cancelled --job-name=endless
grep -q 'saved at step' cancelled.out
echo "a job is cancelled: it saves"
