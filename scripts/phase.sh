# shellcheck shell=bash
# To be sourced. phase NAME COMMAND...: runs the command, then prints how long it took.
phase() {
    local name=$1
    shift
    echo "== $name"
    # CPU seconds show what a busy machine adds to the others.
    local TIMEFORMAT="== $name: %0R s (CPU: %0U s)"
    time "$@"
}
