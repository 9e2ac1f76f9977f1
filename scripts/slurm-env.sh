# shellcheck shell=bash
# What slurm-up and slurm-down share: where things lie, which processes are ours, how to end and to start them.
# Sourced, never run. Callers set DIR (absolute) first. The scripts use no state outside DIR.

# shellcheck disable=SC2034
DEFAULT_DIR=/var/tmp/mirage-slurm
umask 022

die() { echo "${0##*/}: $*" >&2; exit 1; }
usage_error() { echo "${0##*/}: $* (see ${0##*/} --help)" >&2; exit 2; }

# The comment block at the top of the calling script is its help text.
show_help() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 0; }

need_root() { [ "$(id -u)" = 0 ] || die "must be run as root (it makes users and starts daemons)"; }

home_of() { getent passwd "$1" | cut -d: -f6 || true; }

# Slurm's commands are those of the instance's release: DIR/bin, or the machine's own where there is none.
use_commands() { export PATH="$DIR/bin:$PATH:/usr/sbin:/sbin"; }

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
    [ -n "$pid" ] && [ "/proc/$pid/root/." -ef / ] && grep -qszxF -- "MIRAGE_SLURM_DAEMON=$DIR:$1" "/proc/$pid/environ"
}

# The daemons' names, in the order in which they start. The nodes are read from slurm.conf's folder list.
daemons() { printf '%s\n' munged mariadb slurmdbd slurmctld; slurmds; [ "$(cat "$DIR/etc/rest" 2>/dev/null)" != on ] || echo slurmrestd; }
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
        # -ef: a chroot that shares our /proc may hold another DIR of the same name
        if [ "$pid" != $$ ] && [ "/proc/$pid/root/." -ef / ]; then echo "$pid"; fi
    done
}

# --- starting: launch_NAME runs a daemon, ready_NAME asks whether it answers ------------------------------------------

# launch NAME COMMAND...: in the foreground of a session of its own (the pid is then known without doubt, and a Ctrl-C
# at the terminal does not reach it), and with a clean environment and folder: users' jobs must not get the caller's.
# DIR/etc/environment has more of it for Slurm's own daemons, one NAME=VALUE a line (scripts/soak: another clock).
launch() {
    local name=$1 more=(); shift
    if [[ $name == slurm* && -e $DIR/etc/environment ]]; then mapfile -t more <"$DIR/etc/environment"; fi
    env -i -C "$DIR/state" PATH="$DIR/bin":/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 SLURM_CONF="$DIR/etc/slurm.conf" MIRAGE_SLURM_DAEMON="$DIR:$name" \
        "${more[@]}" setsid "$@" </dev/null >"$DIR/log/$name.out" 2>&1 9>&- &
    echo $! >"$DIR/run/$name.pid"
}

launch_munged() {
    launch munged munged --foreground --num-threads=4 --key-file="$DIR/etc/munge.key" --socket="$DIR/run/munge.socket" \
        --pid-file="$DIR/run/munged.own.pid" --seed-file="$DIR/state/munged.seed" --force
}
ready_munged() { munge --socket="$DIR/run/munge.socket" -n -o /dev/null 2>/dev/null; }

launch_mariadb() {
    if [ ! -d "$DIR/state/mariadb" ]; then
        rm -rf "$DIR/state/mariadb.new"
        # --force: it does not matter that the machine's own name has no address
        mariadb-install-db --no-defaults --user=mysql --datadir="$DIR/state/mariadb.new" --skip-test-db --force \
            --auth-root-authentication-method=socket >"$DIR/log/mariadb-install.out" 2>&1 || fail mariadb-install
        mv "$DIR/state/mariadb.new" "$DIR/state/mariadb"
    fi
    # Not /tmp: all that an instance writes lies in its folder.
    install -d -o mysql -m 700 "$DIR/state/mariadb.tmp"
    # Small and not durable across a crash of the machine, since a commit that waits for the disk costs seconds at the
    # start; slurmdbd asks for these sizes and this time-out.
    launch mariadb mariadbd --no-defaults --user=mysql --datadir="$DIR/state/mariadb" --socket="$DIR/state/mariadb/s.sock" \
        --tmpdir="$DIR/state/mariadb.tmp" --port=$(($(cat "$DIR/etc/port-base") + 2)) --bind-address=127.0.0.1 --skip-name-resolve --pid-file="$DIR/state/mariadb/pid" \
        --innodb-buffer-pool-size=128M --innodb-log-file-size=64M --innodb-flush-log-at-trx-commit=0 --innodb-lock-wait-timeout=900
}
ready_mariadb() { mariadb-admin --no-defaults --socket="$DIR/state/mariadb/s.sock" ping >/dev/null 2>&1; }

launch_slurmdbd() {
    mariadb --no-defaults --socket="$DIR/state/mariadb/s.sock" -e "
        create database if not exists slurm_acct_db;
        grant all on slurm_acct_db.* to 'slurm'@'127.0.0.1' identified by '$(cat "$DIR/etc/db.password")'" ||
        die "mariadb refused to make slurmdbd's database"
    launch slurmdbd slurmdbd -D
}
ready_slurmdbd() { listens $(($(cat "$DIR/etc/port-base") + 1)) && sacctmgr -n show cluster >/dev/null 2>&1; }

launch_slurmctld() { launch slurmctld slurmctld -D; }
ready_slurmctld() { listens "$(cat "$DIR/etc/port-base")" && scontrol ping >/dev/null 2>&1; }

# As a user without rights: it refuses to be root or SlurmUser. What a caller may do, slurmctld reads from the token.
launch_slurmrestd() {
    launch slurmrestd setpriv --reuid=nobody --regid=nogroup --clear-groups env SLURM_JWT=daemon \
        SLURMRESTD_SECURITY=disable_unshare_sysv,disable_unshare_files \
        slurmrestd -a rest_auth/jwt "127.0.0.1:$(($(cat "$DIR/etc/port-base") + 3))"
}
ready_slurmrestd() { listens $(($(cat "$DIR/etc/port-base") + 3)); }

launch_slurmd() {
    local stepd=() # else it runs the machine's own
    [ ! -e "$DIR/bin" ] || stepd=(-d "$DIR/bin/slurmstepd")
    mkdir -p "$DIR/state/slurmd/$1"
    launch "slurmd-$1" slurmd -D -N "$1" "${stepd[@]}"
}
ready_slurmd() { listens $(($(cat "$DIR/etc/port-base") + 10 + ${1#n})); }

# Asked before a client of Slurm is: that one waits and retries when nobody listens. Read from the kernel's table
# (0A: listening), since a connection that says nothing is an error in the daemons' logs.
listens() { grep -q -- ":$(printf '%04X' "$1") 00000000:0000 0A " /proc/net/tcp; }

fail() {
    local file
    for file in "$DIR/log/$1.out" "$DIR/log/$1.log"; do
        [ ! -s "$file" ] || { echo "--- the end of $file"; tail -n 15 "$file"; } >&2
    done
    die "$1 did not come up"
}

# start NAME...: launches those that do not run, then waits for each
start() {
    local name fresh=() deadline
    for name; do
        if ! alive "$name"; then echo "starting $name"; "launch_${name%%-*}" "${name#*-}"; fresh+=("$name"); fi
    done
    deadline=$((SECONDS + 30))
    for name in "${fresh[@]}"; do
        until "ready_${name%%-*}" "${name#*-}"; do
            kill -0 "$(pid_of "$name")" 2>/dev/null && [ "$SECONDS" -lt "$deadline" ] || fail "$name"
            sleep 0.05
        done
    done
}

# --- scripts/soak and scripts/real-chains ----------------------------------------------------------------------------

# slurm_on_soak_clock DIR NODES PORT_BASE: an instance for a fast clock (tests/conformance/soak_clock.c, built into DIR), which does
# not run on it yet. What bounds work gets longer, since work is not faster.
slurm_on_soak_clock() {
    local line arguments=() sets=(MessageTimeout=600 TCPTimeout=600 SlurmdTimeout=36000 BatchStartTimeout=3600
        UnkillableStepTimeout=36000 KillWait=600 PriorityCalcPeriod=5
        "SchedulerParameters=bf_interval=30,sched_interval=60,batch_sched_delay=3"
        "AuthInfo=socket=$1/run/munge.socket,cred_expire=7200")
    for line in "${sets[@]}"; do arguments+=(--set "$line"); done
    scripts/slurm-up --dir "$1" --nodes "$2" --port-base "$3" "${arguments[@]}"
    gcc -O2 -Wall -Wextra -shared -fPIC -o "$1/soak_clock.so" tests/conformance/soak_clock.c
}
