#!/bin/bash
# A command on one of two hosts, which have names and addresses of their own and lie on one wire: a job's submitter.
#   unshare --pid --mount --net --fork --kill-child --mount-proc bash tests/hosts.sh FOLDER COMMAND ...
# Ray's head is on the first host, a node on the other, each of 2 CPUs; both share this machine's files but /tmp/ray.
set -euo pipefail
folder=$1 port=6379
shift
mount -t tmpfs t /run && mkdir -p /run/netns /tmp/ray
ip link set lo up
ip link add wire type bridge
ip link set wire up

hosts=(one two)
for i in 0 1; do
  host=${hosts[i]}
  ip netns add "$host"
  ip link add "to-$host" type veth peer name wire0 netns "$host"
  ip link set "to-$host" master wire up
  ip -n "$host" link set lo up
  ip -n "$host" address add "10.77.0.$((i + 1))/24" dev wire0
  ip -n "$host" link set wire0 up
  ip -n "$host" route add default dev wire0
  mkdir -p "$folder/$host"
  printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$host" >"$folder/$host-hosts" # as Debian's installer writes it
done

on() { # on HOST COMMAND ...
  # shellcheck disable=SC2016
  ip netns exec "$1" unshare --mount --uts bash -c '
    hostname "$0"
    mount --bind "$1/$0-hosts" /etc/hosts
    mount -t tmpfs t /tmp/ray
    mount -t tmpfs t /dev/shm
    shift
    exec "$@"' "$1" "$folder" "${@:2}"
}

answers() { # answers HOST ADDRESS PORT: wait until something listens there
  until on "$1" bash -c "exec 3<>/dev/tcp/$2/$3" 2>/dev/null; do sleep 0.2; done
}

on one ray start --head --block --num-cpus=2 --port=$port --dashboard-host=10.77.0.1 >"$folder/one/log" 2>&1 &
answers one 10.77.0.1 $port
on two ray start --address=10.77.0.1:$port --block --num-cpus=2 >"$folder/two/log" 2>&1 &
answers one 10.77.0.1 8265
answers one 10.77.0.1 52365 # a node's agent, which comes last and starts jobs
answers one 10.77.0.2 52365
on one "$@"
