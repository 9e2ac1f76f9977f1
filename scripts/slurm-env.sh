# shellcheck shell=bash
# What slurm-up and slurm-down share: where things lie, which processes are ours, and how to end them.
# Sourced, never run. Callers set DIR (absolute) first. The scripts use no state outside DIR.

DEFAULT_DIR=/var/tmp/mirage-slurm

die() { echo "${0##*/}: $*" >&2; exit 1; }
usage_error() { echo "${0##*/}: $* (see ${0##*/} --help)" >&2; exit 2; }

# The comment block at the top of the calling script is its help text.
show_help() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 0; }

need_root() { [ "$(id -u)" = 0 ] || die "must be run as root (it makes users and starts daemons)"; }

absolute_dir() { realpath -m -- "$1"; }

# One slurm-up or slurm-down at a time for a folder. Every daemon is started with 9>&-, or it would hold the lock.
take_lock() {
    exec 9>"$DIR/.lock"
    flock -w 120 9 || die "another slurm-up or slurm-down has held $DIR/.lock for two minutes"
}

# --- processes: every daemon carries MIRAGE_SLURM_DAEMON=DIR:NAME in its environment -------------------------------
# A pid file alone may name a process that got the number later. slurmdbd has no argument that names its folder, so
# the command line cannot tell two instances apart; the environment can, and no user's process ever has this variable.

pid_of() { cat "$DIR/run/$1.pid" 2>/dev/null || true; }

alive() {
    local pid; pid=$(pid_of "$1")
    [ -n "$pid" ] && grep -qszxF -- "MIRAGE_SLURM_DAEMON=$DIR:$1" "/proc/$pid/environ"
}

# The daemons' names, in the order in which they start. The nodes are read from slurm.conf's folder list.
daemons() { printf '%s\n' munged mariadb slurmdbd slurmctld; slurmds; }
slurmds() { local i; for ((i = 1; i <= $(cat "$DIR/etc/nodes" 2>/dev/null || echo 0); i++)); do echo "slurmd-n$i"; done; }

# NAME as people type it -> daemons: "slurmd" means all of them.
expand() {
    if [ "$1" = slurmd ]; then slurmds; return; fi
    daemons | grep -xF -- "$1" || usage_error "no daemon '$1' in $DIR; there are: slurmd $(daemons | tr '\n' ' ')"
}

# send SIGNAL NAME...: only to processes that are ours
send() {
    local signal=$1 name; shift
    for name; do if alive "$name"; then kill -s "$signal" "$(pid_of "$name")" 2>/dev/null || true; fi; done
}

# gone SECONDS NAME...: waits until none of them runs; fails when time is up
gone() {
    local deadline=$((SECONDS + $1)) name; shift
    for name; do
        while alive "$name"; do [ "$SECONDS" -lt "$deadline" ] || return 1; sleep 0.05; done
        rm -f "$DIR/run/$name.pid"
    done
}

# stop SECONDS NAME...: TERM, and KILL for what is still there after SECONDS
stop() {
    local seconds=$1; shift
    send TERM "$@"
    gone "$seconds" "$@" || { send KILL "$@"; gone 5 "$@" || die "could not end: $*"; }
}

# What the daemons leave behind: slurmstepd and slurmscriptd inherit our variable; the jobs' own processes, also
# those that left their process group, have SLURMD_NODENAME and our SLURM_CONF (a user's shell has only the latter).
leftover_pids() {
    local pid file
    { grep -lsz -F -- "MIRAGE_SLURM_DAEMON=$DIR:" /proc/[0-9]*/environ || true
      { grep -lszxF -- "SLURM_CONF=$DIR/etc/slurm.conf" /proc/[0-9]*/environ || true; } | while read -r file; do
          grep -lsz '^SLURMD_NODENAME=' "$file" || true
      done; } | while read -r file; do
        pid=${file#/proc/}; pid=${pid%/environ}
        [ "$pid" = $$ ] || echo "$pid"
    done
}
