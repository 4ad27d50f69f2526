# shellcheck shell=bash
# Starts processes that outlive the calling script, and finds them again by cgroups. Sourced, never run.

CGROUPS=/sys/fs/cgroup

# ---- cgroups: every process started here, and every container, is in a cgroup named after the
# ---- state folder, so that a stop finds all of them and no others.

cgroup_make() { # cgroup_make GROUP: in every mounted v1 hierarchy
    local c f
    if [ ! -d "$CGROUPS/pids" ] || [ ! -d "$CGROUPS/memory" ]; then
        die "needs the cgroup v1 hierarchies mounted under $CGROUPS"
    fi
    for c in "$CGROUPS"/*/; do
        [ -e "$c/tasks" ] || continue # not a v1 hierarchy
        mkdir -p "$c/$1"
        for f in cpuset.cpus cpuset.mems; do # no process can enter while these are empty
            if [ -e "$c/$1/$f" ] && [ -z "$(<"$c/$1/$f")" ]; then cat "$c/$f" >"$c/$1/$f"; fi
        done
    done
}

cgroup_pids() { # cgroup_pids GROUP
    [ ! -d "$CGROUPS/pids/$1" ] || find "$CGROUPS/pids/$1" -name cgroup.procs -exec cat {} + 2>/dev/null || true
}

cgroup_kill() { # cgroup_kill GROUP: SIGKILL to all in it, then wait until it is empty
    local pids i
    for i in {1..200}; do
        mapfile -t pids < <(cgroup_pids "$1")
        [ ${#pids[@]} -gt 0 ] || return 0
        kill -KILL "${pids[@]}" 2>/dev/null || true
        sleep 0.05
    done
    die "processes in cgroup $1 do not die: ${pids[*]}"
}

cgroup_remove() {
    local c i
    for c in "$CGROUPS"/*/"$1"; do
        for i in {1..20}; do
            [ -d "$c" ] || break
            find "$c" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
        done
        [ ! -d "$c" ] || say "left over: $c"
    done
}

# unmount_below DIR: unmounts everything at or under DIR, and checks that no mount is left
# (removing DIR would delete the source of a remaining bind mount)
unmount_below() {
    local m
    while read -r m; do
        umount "$m" 2>/dev/null || umount -l "$m" || true
    done < <(awk -v d="$1" '$5 == d || index($5, d "/") == 1 { print $5 }' /proc/self/mountinfo | tac)
    ! awk -v d="$1" '$5 == d || index($5, d "/") == 1 { f = 1 } END { exit !f }' /proc/self/mountinfo ||
        die "still mounted under $1; not removing it"
}

# ---- daemons. RUN, set by the sourcing script, is the folder of their pid files.

# spawn GROUP NAME LOGFILE COMMAND...: starts it in the background, in its own cgroup GROUP/daemons/NAME
spawn() {
    local group=$1 name=$2 log=$3 c
    shift 3
    cgroup_make "$group/daemons"
    cgroup_make "$group/daemons/$name"
    (
        for c in "$CGROUPS"/*/"$group/daemons/$name"; do echo "$BASHPID" >"$c/cgroup.procs"; done
        exec 9>&-
        ulimit -n "$(ulimit -Hn)"
        exec env GOGC=400 setsid "$@" # there is more memory than CPU, which garbage collections take
    ) </dev/null >>"$log" 2>&1 &
    c=$!
    echo $c >"$RUN/$name.pid"
    until pid_of "$group" "$name" >/dev/null || ! kill -0 $c 2>/dev/null; do sleep 0.01; done
}

# pid_of GROUP NAME: prints the pid of the process that spawn started; fails if it has ended.
# A later process with the same pid is not in the cgroup, and a zombie has no exe.
pid_of() {
    local pid
    { read -r pid <"$RUN/$2.pid"; } 2>/dev/null || return 1
    [ -e "/proc/$pid/exe" ] && grep -q ":pids:/$1/daemons/$2\$" "/proc/$pid/cgroup" 2>/dev/null || return 1
    echo "$pid"
}

# stop_daemon GROUP NAME SECONDS: SIGTERM, then SIGKILL after SECONDS (0: SIGKILL only)
stop_daemon() {
    local pid i
    pid=$(pid_of "$1" "$2") || return 0
    [ "$3" = 0 ] || kill -TERM "$pid" 2>/dev/null || true
    for ((i = 0; i < $3 * 20; i++)); do
        pid_of "$1" "$2" >/dev/null || return 0
        sleep 0.05
    done
    kill -KILL "$pid" 2>/dev/null || true
    for i in {1..100}; do
        pid_of "$1" "$2" >/dev/null || return 0
        sleep 0.05
    done
    die "$2 (pid $pid) does not end after SIGKILL"
}
