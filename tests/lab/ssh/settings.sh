# The hosts of the laboratory, and functions that the scripts share. Sourced by all of them, with $LAB_DIR set: the
# directory that holds all files of one laboratory.

LAB_HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LAB_NET=10.78.0        # inside the namespaces of the laboratory only
LAB_SHOW=${LAB_SHOW:-} # directories that citadel shows read-only, and that no other host shows; separated by colons

# name, last part of the address, user, user id, name of the home file system
LAB_HOSTS='citadel 1 boss 2001 citadel
wizard 2 hobo 2000 wizard
wizard2 3 hobo 2000 wizard
tower 4 hobo 2000 tower
keep 5 boss 2001 citadel'

# Sets the variables host_address, host_user, host_id and host_files.
look_up() {
    local name number
    while read -r name number host_user host_id host_files; do
        host_address=$LAB_NET.$number
        host_cable=cable$number
        [ "$name" != "$1" ] || return 0
    done <<<"$LAB_HOSTS"
    fail "no host $1"
}

fail() {
    echo "$*" >&2
    exit 1
}

# wait_until SECONDS COMMAND…: whether the command succeeded in that time
wait_until() {
    local tries=$(($1 * 100))
    shift
    while ! "$@" >/dev/null 2>&1; do
        [ $((tries -= 1)) -gt 0 ] || return 1
        sleep 0.01
    done
}

is_dead() { [ ! -e "/proc/$1" ] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null; }

# start_host NAME: a host with namespaces, a network cable, a home and an sshd of its own
start_host() {
    local name=$1 own=$LAB_DIR/hosts/$1 pid
    look_up "$name"
    rm -f "$own/pid" "$own/sshd.pid" "$own/up"
    setsid unshare --net --uts --pid --mount --ipc --fork --kill-child \
        bash "$LAB_HERE/host-init" "$name" </dev/null >"$own/boot.log" 2>&1 &
    wait_until 20 test -s "$own/pid" || fail "host $name did not start: $(cat "$own/boot.log")"
    pid=$(cat "$own/pid")
    ip link del "$host_cable" 2>/dev/null
    # The network card stays the same, as others remember its address.
    ip link add "$host_cable" type veth peer name eth0 address "02:00:00:00:00:0${host_cable#cable}" \
        netns "/proc/$pid/ns/net" &&
        ip link set "$host_cable" master switch up || fail "host $name got no network"
}

wait_for_host() { wait_until 20 test -e "$LAB_DIR/hosts/$1/up" || fail "host $1 did not start: $(cat "$LAB_DIR/hosts/$1/boot.log")"; }
