# What a cluster is like (each can be set in the environment), and what the scripts share. Sourced by all of them,
# with $LAB_DIR set: the directory that holds all files of one cluster.

LAB_NODES=${LAB_NODES:-4}                       # n1, n2 …
LAB_CPUS=${LAB_CPUS:-4}                         # of each node: as many as one likes, they need not exist
LAB_THREADS=${LAB_THREADS:-1}                   # of each core
LAB_MEMORY=${LAB_MEMORY:-4000}                  # MiB of each node
LAB_GPUS=${LAB_GPUS:-2}                         # of each node: device files that do nothing
LAB_TASK_PLUGIN=${LAB_TASK_PLUGIN:-task/none}   # task/affinity binds, where all CPUs that are claimed exist
LAB_KILL_WAIT=${LAB_KILL_WAIT:-10}              # seconds between SIGTERM and SIGKILL
LAB_SLURMD_TIMEOUT=${LAB_SLURMD_TIMEOUT:-20}    # seconds of silence after which a node is taken for dead
LAB_CONFIGURATION=${LAB_CONFIGURATION:-}        # more lines of slurm.conf

LAB_HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LAB_NET=10.77.0                                 # node ni is .i, the login node .254
LAB_CONTROLLER_PORT=6817
LAB_SLURMD_PORT=6818
export SLURM_CONF=$LAB_DIR/etc/slurm.conf

fail() {
    echo "$*" >&2
    exit 1
}

# wait_until SECONDS COMMAND…: whether the command succeeded in that time
wait_until() {
    local tries=$(($1 * 50))
    shift
    while ! "$@" >/dev/null 2>&1; do
        [ $((tries -= 1)) -gt 0 ] || return 1
        sleep 0.02
    done
}

is_dead() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null; }

start_controller() { # also again: it finds the jobs that it knew
    rm -f "$LAB_DIR/slurmctld.pid"
    slurmctld -f "$SLURM_CONF" </dev/null >>"$LAB_DIR/log/slurmctld.out" 2>&1 ||
        fail "slurmctld did not start: $(tail -n 5 "$LAB_DIR/log/slurmctld.out")"
    wait_until 20 test -s "$LAB_DIR/slurmctld.pid" || fail 'slurmctld wrote no pid file'
}

# start_node NAME: a host of its own (namespaces), on a cable of its own, with slurmd
start_node() {
    local name=$1 number=${1#n} pid
    mkdir -p "$LAB_DIR/spool/$name" "$LAB_DIR/tmp/$name"
    chmod 1777 "$LAB_DIR/tmp/$name"
    rm -f "$LAB_DIR/nodes/$name" "$LAB_DIR/slurmd.$name.pid"
    setsid unshare --net --uts --pid --mount --ipc --fork --kill-child \
        bash "$LAB_HERE/node-init" "$name" "$LAB_NET.$number" </dev/null >>"$LAB_DIR/log/$name.out" 2>&1 &
    wait_until 20 test -s "$LAB_DIR/nodes/$name" || fail "node $name did not start: $(cat "$LAB_DIR/log/$name.out")"
    pid=$(cat "$LAB_DIR/nodes/$name")
    ip link del "cable$number" 2>/dev/null
    ip link add "cable$number" type veth peer name eth0 netns "$pid" &&
        ip link set "cable$number" master switch up || fail "node $name got no network"
}
