# ---------------------------------------------------------------------------------------------------------------------
# One link of a chain of jobs. mirage-submit put this file together: the user's #SBATCH lines, the values of this chain
# (m_...), and this code, which is the same for every chain. It needs a POSIX shell and Slurm's commands, nothing else.
#
#   job.sh SEGMENT PREDECESSOR [the user's arguments]        PREDECESSOR: job id of the link before, 0 for the first
#
# Outside of a job, for mirage extend, pause, resume, done and cancel:
#   job.sh queue SEGMENT PREDECESSOR    queues this link, held while the chain is paused, and prints its job id
#   job.sh follow-up                    the chain is over: queues --then if it is done, else takes it out of the queue
#   job.sh ask JOB SEGMENT              asks this link to checkpoint and end, as its successor would
#   job.sh reaches LENGTH SEGMENT       exits with 0 if this link would be the last one of a chain of this length
#
# What it does: leaves at once if the chain is over or a later link has taken over; queues the next link; takes over
# from the link before if that one still runs; runs the user's script, passing signals on; keeps a record of the end,
# and ends the chain if the work is done or the failure policy says so. Its exit code is the script's; but 0 where the
# chain is done, 1 in place of 0 where it has failed or the next link could not be queued, $m_used_up_exit where this
# last link left at its own signal, and its job counts as cancelled where the chain was: so Slurm's records say how the
# chain ended.
#
# Files in the chain's folder $m_dir (K: a link's number; all written under another name and renamed):
#   chain         what was asked for (key=value). length= is what the links may use in all: 5 (time limits), 604800s
#                 (seconds), done (no bound), or nothing: as many links as segments= says. segments= is the number of
#                 the last link, as far as it is known, else the greatest that it may have. mirage extend changes both
#   script        the user's script, as it was submitted
#   submitting    there while mirage-submit is at work              job.sh    this file
#   queued.K      job id of link K, once it is queued; queued.K.error: why it could not be queued so far
#   start.K       job=, restart=, start=, out=, err=, limit=        link K has started, writes to these files, and may run
#                 for so many seconds. ran=, part=: what it ran before a requeue, seconds and thousandths of its limit
#   link.K        job=, restart=, start=, work=, end=, exit=, how=, swept=, reason=  link K has ended. work: when the user's script
#                 started. how: exit (by itself), handover (its successor asked it to), slurm (time limit and the
#                 signal before it, scancel, requeue, preemption), paused (mirage pause --now or mirage scale asked it to),
#                 early (a signal before its work began). swept=1: Slurm ended or requeued the job, so some of
#                 its processes may still be at it; then reason= is Slurm's, if it says one. steps=1: its script left
#                 job steps, which may be at it too. beside=J: link J of the service was ready, and ran on. A link that was killed outright leaves none.
#   handover.K    job= of the successor that asks link K to end, grace= (seconds), asked=; gone= once it has ended;
#                 cut=, by= where that took too long and it was cancelled (by: grace, max-overlap); to=, the number of the
#                 successor whose script started.
#                 job=pause: mirage pause --now asked; job=scale: mirage scale, or the scaler, did
#   ready.K       link K is ready since at=, else since its time of change, which is of the file system's clock. A training
#                 program creates it as $MIRAGE_READY_FILE once it goes on where the last link stopped. A service creates
#                 it, or this file does: by= (check, startup) tells why. down=: seconds without a ready server since then,
#                 since that one died and was started again
#   endpoint.K    {"host", "port", "link", "ready_s", "job"}: where clients reach link K of a service. Here from its readiness
#                 until it stops serving; its successor takes it away before it asks link K to end
#   address.K     HOST:PORT or PORT, if the script of link K chose it ($MIRAGE_ENDPOINT)
#   draining.K.G  gateway G still has clients at link K, whose endpoint.K is gone
#   unready.K     the service of link K was never ready, or died too often: link K gave up, or ran to its end so. The first
#                 line says which
#   writer.G/     the one-writer lock: whoever makes the directory with the highest G may write. owner: segment=, job=
#   paused        no further link begins its work; queued ones are held. mirage resume renames it to resumed
#   done, failed, cancelled    the chain is over; the first line says why
#   notified/     somebody has run the user's --notify command for the chain's end
#   then.N.sh     the N-th script of --then        then.N    its job id, once it is queued
#   then.N.claim/ whoever makes this directory lets it follow the chain. job: who; settled: it does. then.N.error: why
#                 that failed
# ---------------------------------------------------------------------------------------------------------------------
# shellcheck disable=SC2154,SC2034  # m_* that are not assigned, or not used, here belong to this chain's values, above.
# shellcheck disable=SC2329  # several functions are called by name
# Every variable begins with m_: the shell would pass a change to an exported one of the user's on to the user's script.

m_say() { printf 'mirage: %s\n' "$*" >&2; }

m_now() { date +%s; }

m_write() { # FILE TEXT: puts a record in place, whole or not at all
    m_fresh=$m_dir/.${1##*/}.$m_job
    printf '%s\n' "$2" >"$m_fresh" && mv -f "$m_fresh" "$m_dir/$1"
}

# Not `:`, whose failed redirection ends a POSIX shell.
m_touch() { { true >"$1"; } 2>/dev/null || return 0; } # FILE: makes it, if the folder can be written

# A disk that is full gets room again, and a file system that was away comes back: no reason to end a chain at once.
m_cannot_write() { # ERROR: says so once, and leaves when that has lasted too long
    m_why=${1##*: }
    if [ ! -d "$m_dir" ]; then
        m_why="it is not there"
    elif [ "$(df -P "$m_dir" 2>/dev/null | sed -n '2s/^.* \([0-9][0-9]*\)  *[0-9]*% .*$/\1/p')" = 0 ]; then
        m_why="its file system is full" # some shells only say that the write failed
    fi
    m_why="cannot write to the chain's folder $m_dir: $m_why"
    if [ -z "$m_unwritten" ]; then
        m_unwritten=$(m_now)
        m_say "$m_why; trying again for $m_write_patience s"
    fi
    [ $(($(m_now) - m_unwritten)) -ge "$m_write_patience" ] || return 0
    m_leave 1 "$m_why; make room, or set MIRAGE_HOME to a folder on a file system that all nodes share"
}

m_write_soon() { # FILE TEXT: as m_write, and again for some time. Fails if this link must end meanwhile
    until m_error=$(m_write "$1" "$2" 2>&1); do
        m_cannot_write "$m_error"
        ! m_must_end || return 1
        sleep 5
    done
    [ -z "$m_unwritten" ] || m_say "the chain's folder can be written again"
    m_unwritten=
}

m_read() { # FILE KEY
    sed -n "s/^$2=//p" "$m_dir/$1" 2>/dev/null
}

# ---- Slurm ----------------------------------------------------------------------------------------------------------

m_slurm() ( # COMMAND...: without the user's defaults for squeue and scancel
    for m_name in $(env | sed -n -e 's/^\(SQUEUE_[A-Z_]*\)=.*/\1/p' -e 's/^\(SCANCEL_[A-Z_]*\)=.*/\1/p'); do
        unset "$m_name"
    done
    unset SLURM_CLUSTERS
    export PATH="$PATH:$m_bin"
    exec "$@"
)

m_list() { # this chain's links in the queue, "job state segment"; fails if Slurm gave no sound answer
    m_queue=$(m_slurm squeue -h -a -u "$(id -u)" -o '%A %T %k' 2>/dev/null) || return 1
    case "
$m_queue" in *"
$m_job "*) ;; *) [ "$m_job" -eq 0 ] || return 1 ;; esac # this job is in every sound answer; 0: this is no job
    printf '%s\n' "$m_queue" | sed -n "s|^\([0-9]*\) \([A-Z_]*\) mirage/1 chain=$m_chain seg=\([0-9]*\)/.*|\1 \2 \3|p"
}

m_find_link() { # SEGMENT: sets m_id, its job in the queue; empty: it has none. Fails if Slurm gave no sound answer
    m_lines=$(m_list) || return 1
    m_id=$(printf '%s\n' "$m_lines" | sed -n "s/^\([0-9]*\) [A-Z_]* $1\$/\1/p" | head -n 1)
}

m_later() { # STATE (a pattern): the jobs of the links after this one that are in it; fails as m_list
    m_lines=$(m_list) || return 1
    printf '%s\n' "$m_lines" | sed -n "s/^\([0-9]*\) $1 \([0-9]*\)\$/\1 \2/p" | while read -r m_id m_number; do
        [ "$m_number" -le "$m_seg" ] || echo "$m_id"
    done
}

# A slurmctld that is killed forgets its last jobs, and gives their ids to others. So an id alone names no job: its
# owner and its script, which lies in the chain's folder, belong to it.
m_look_up() { # JOB: sets m_state, its STATE/NODES; NONE: this chain has no such job. Fails without an answer
    m_answer=$(m_slurm squeue -h -a -t all -j "$1" -o '%T/%N %U %o' 2>&1)
    case $m_answer in *'Invalid job id'*) m_state=NONE; return 0 ;; esac
    m_answer=$(printf '%s\n' "$m_answer" | grep '^[A-Z_][A-Z_]*\(/[^ ]*\)\{0,1\}\( [0-9]\|$\)' | head -n 1)
    m_state=${m_answer%% *}
    case $m_answer in
        '') return 1 ;;
        # Slurm 22.05 shows the script's arguments too, 26.05 does not.
        "$m_state" | "$m_state $(id -u) $m_dir/job.sh" | "$m_state $(id -u) $m_dir/job.sh "*) ;;
        *) m_state=NONE ;;
    esac
}

m_over_in_slurm() { # JOB: it has ended, or was requeued; unknown counts as running
    m_look_up "$1" || return 1
    # Whatever a newer release calls its state: a job without nodes does not run.
    case $m_state in *[A-Z]/) return 0 ;; esac
    m_is_over_state "${m_state%%/*}"
}

# Slurm may be telling all processes of this job to end: not these, before they have finished.
m_own() { # FORMAT: sets m_shown, what squeue says of this job
    m_shown=$(
        m_ignore_signals
        m_slurm squeue -h -a -t all -j "$m_job" -o "$1" 2>/dev/null | tail -n 1
    )
}

m_is_taken_back() { # Slurm has ended or requeued this job, though its script still runs. No answer counts as no
    m_own %T
    [ "$m_shown" = COMPLETING ] || m_is_over_state "$m_shown"
}

m_is_over_state() { # STATE
    case $1 in
        NONE | BOOT_FAIL | CANCELLED | COMPLETED | DEADLINE | FAILED | NODE_FAIL | OUT_OF_MEMORY | PREEMPTED) ;;
        REVOKED | TIMEOUT | PENDING | EXPEDITING | REQUEUED | REQUEUE_HOLD | SPECIAL_EXIT) ;;
        *) return 1 ;;
    esac
}

# The record of a link that Slurm ended, or that left job steps, does not count: they may save until KillWait is over.
m_gone() { # JOB SEGMENT: looks at its record each time, asks Slurm every ten seconds (at once after m_look_at=0)
    if [ "$(m_read "link.$2" job)" = "$1" ] && [ -z "$(m_read "link.$2" swept)$(m_read "link.$2" steps)" ]; then return 0; fi
    [ "$(m_now)" -ge "$m_look_at" ] || return 1
    m_look_at=$(($(m_now) + 10))
    m_over_in_slurm "$1"
}

# ---- How long, and is it over? --------------------------------------------------------------------------------------

m_read_length() { # sets m_segments and m_length: mirage extend changes them while links run
    m_value=$(m_read chain segments)
    case $m_value in '' | *[!0-9]*) ;; *) m_segments=$m_value m_length=$(m_read chain length) ;; esac
}

m_is_last() { m_read_length; [ "$m_seg" -ge "$m_segments" ]; }

# Links that are handed over early are shorter, so which link is the last one is known as it starts: its number then
# becomes the chain's length, as if mirage extend had set it.
m_settle_length() {
    ! m_is_last && m_reaches || return 0
    m_segments=$m_seg
    m_write chain "$(sed "s/^segments=.*/segments=$m_seg/" "$m_dir/chain")"
    m_cancel_rest
    m_say "this is the last link: with it the chain has run for $(m_length_words)"
}

m_tag_as_last() { # so others see by this job's comment that no link follows it. Fails if Slurm does not answer
    m_tag=$(m_slurm squeue -h -a -j "$m_job" -o %k 2>/dev/null) || return 1
    case $m_tag in
        "mirage/1 chain=$m_chain seg=$m_seg/$m_seg "*) ;;
        "mirage/1 chain=$m_chain seg=$m_seg/"*)
            m_tag=$(printf '%s\n' "$m_tag" | sed "s|^\(mirage/1 chain=$m_chain seg=$m_seg/\)[0-9]*|\1$m_seg|")
            m_slurm scontrol update "JobId=$m_job" "Comment=$m_tag" >/dev/null 2>&1
            ;;
    esac
}

m_length_words() {
    case $m_length in *s) echo "--total-time" ;; *) echo "$m_length time limits (--segments)" ;; esac
}

m_reaches() { # with this link the chain has used all of m_length
    case $m_length in
        '' | done) return 1 ;;
        *s) m_left=$(m_seconds_left) && [ $(($(m_used) + m_left + m_seg * m_limit_lead)) -ge "${m_length%s}" ] ;;
        *) [ $(($(m_used) + 1000)) -ge $((m_length * 1000)) ] ;;
    esac
}

m_used() { # by the links before this one, and its own earlier runs: seconds, or thousandths of their time limits
    m_sum=0 m_at=1
    while [ "$m_at" -lt "$m_seg" ]; do
        m_add_use "$m_at"
        m_add_runs "$m_at"
        m_at=$((m_at + 1))
    done
    m_add_runs "$m_seg"
    echo "$m_sum"
}

m_add_runs() { # SEGMENT: those before it was requeued
    case $m_length in *s) m_to=$(m_read "start.$1" ran) ;; *) m_to=$(m_read "start.$1" part) ;; esac
    m_sum=$((m_sum + ${m_to:-0}))
}

# A link that ended by itself is one of N, however long it ran. One that had to end early counts for what it ran.
m_add_use() { # SEGMENT
    m_from=$(m_read "start.$1" start) m_to=$(m_read "link.$1" end) m_limit=$(m_read "start.$1" limit)
    [ -n "$m_from" ] || return 0
    [ -n "$m_to" ] || m_to=$(m_read "start.$(($1 + 1))" start)
    [ "${m_to:-0}" -ge "$m_from" ] || m_to=$m_from
    case $m_length in
        *s) m_sum=$((m_sum + m_to - m_from)) ;;
        *) if [ -n "$m_limit" ] && m_had_to_end "$1"; then
            m_sum=$((m_sum + 1000 * (m_to - m_from) / m_limit))
        else
            m_sum=$((m_sum + 1000))
        fi ;;
    esac
}

m_sum_up_runs() { # sets m_ran and m_ran_part, seconds and thousandths of its limit that this link ran before a requeue
    m_ran=0 m_ran_part=0
    [ "$m_restart" -gt 0 ] && [ "$(m_read "start.$m_seg" job)" = "$m_job" ] || return 0
    m_from=$(m_read "start.$m_seg" start) m_limit=$(m_read "start.$m_seg" limit) m_to=''
    [ "$(m_read "link.$m_seg" job)" != "$m_job" ] || m_to=$(m_read "link.$m_seg" end)
    m_ran=$(m_read "start.$m_seg" ran) m_ran_part=$(m_read "start.$m_seg" part) m_to=${m_to:-$(m_last_end "$m_job")}
    [ "${m_to:-0}" -gt "${m_from:-0}" ] && [ -n "$m_limit" ] || return 0
    m_ran=$((${m_ran:-0} + m_to - m_from)) m_ran_part=$((${m_ran_part:-0} + 1000 * (m_to - m_from) / m_limit))
}

m_had_to_end() { # SEGMENT: its successor, its owner or Slurm ended it, or its successor is about to
    case $(m_read "link.$1" how) in
        handover | paused | early) ;;
        slurm) [ -n "$(m_read "link.$1" swept)" ] && [ $((10 * (m_to - m_from))) -lt $((9 * m_limit)) ] ;; # no limit
        '') [ -e "$m_dir/handover.$1" ] || { [ "$1" -eq $((m_seg - 1)) ] && m_will_ask "$1"; } ;;
        *) return 1 ;;
    esac
}

m_will_ask() { # SEGMENT: it runs, and this link will ask it to end
    [ "$m_handover_signal" != none ] && m_look_at=0 && ! m_gone "$(m_read "start.$1" job)" "$1"
}

m_note_limit() { # the time limit of this link, as Slurm has it
    m_times=$(m_slurm env SLURM_TIME_FORMAT=%s squeue -h -a -j "$m_job" -o '%S %e' 2>/dev/null)
    case $m_times in *[!0-9\ ]* | '' | ' '* | *' ') return 0 ;; esac
    m_write "start.$m_seg" "$(cat "$m_dir/start.$m_seg")
limit=$((${m_times#* } - ${m_times% *}))" 2>/dev/null || :
}

m_is_paused() { [ -e "$m_dir/paused" ]; }

m_is_over() {
    [ -e "$m_dir/done" ] || [ ! -e "$m_done_file" ] || m_write "done" "$m_done_file exists"
    [ -e "$m_dir/done" ] || [ -e "$m_dir/failed" ] || [ -e "$m_dir/cancelled" ]
}

m_mark() { # done|failed REASON: the first mark stays
    m_is_over || m_write "$1" "$2"
}

m_failed() { # SEGMENT: ended by itself, with an error. Beside a link that serves nothing was lost, so the chain goes on
    [ "$(m_read "link.$1" how)" = exit ] && [ "$(m_read "link.$1" exit)" -ne 0 ] && ! m_was_beside "$1"
}

m_short() { # SEGMENT: ended too soon. Without a record (out of memory, say) the next link's start tells
    ! m_was_beside "$1" || return 1
    [ ! -e "$m_dir/unready.$1" ] || return 0
    m_kind=$(m_read "link.$1" how) m_from=$(m_read "link.$1" work) m_to=$(m_read "link.$1" end)
    case $m_kind in
        exit) ;;
        slurm) [ -n "$(m_read "link.$1" swept)" ] || return 1 ;;
        '')
            [ ! -e "$m_dir/handover.$1" ] || return 1
            m_from=$(m_read "start.$1" start) m_to=$(m_read "start.$(($1 + 1))" start)
            ;;
        *) return 1 ;;
    esac
    [ -n "$m_from" ] && [ -n "$m_to" ] && [ $((m_to - m_from)) -lt "$m_min_runtime" ] || return 1
    [ "$m_kind" = exit ] || ! m_was_taken "$1"
}

m_was_beside() { [ -n "$(m_read "link.$1" beside)" ]; } # SEGMENT: another link served as it ended: nothing was lost

m_was_taken() { # SEGMENT: Slurm took its nodes, by preemption, a failed node or its limit: no fault of the script
    m_ended=$(m_read "start.$1" job)
    m_answer=$(
        m_slurm sacct -n -X -D -P -j "$m_ended" -o State 2>/dev/null
        m_slurm squeue -h -a -t all -j "$m_ended" -o %T 2>/dev/null
    )
    case $m_answer in
        *PREEMPTED* | *NODE_FAIL* | *BOOT_FAIL* | *TIMEOUT* | *DEADLINE*) return 0 ;;
        PENDING) return 0 ;; # requeued; without accounting nobody knows why
    esac
    return 1
}

m_in_a_row() { # TEST SEGMENT: of how many links up to this one TEST holds
    m_total=0 m_at=$2
    while [ "$m_at" -ge 1 ] && "$1" "$m_at"; do m_total=$((m_total + 1)) m_at=$((m_at - 1)); done
    echo "$m_total"
}

m_verdict() { # SEGMENT, which has ended: sets m_reason, why the chain must stop there; empty: it goes on
    m_reason=
    if m_failed "$1"; then
        m_reason="link $1 ended with exit code $(m_read "link.$1" exit)"
        case $m_on_failure in
            continue) m_reason= ;;
            retry) [ "$(m_in_a_row m_failed "$1")" -gt "$m_retries" ] || m_reason= ;;
        esac
    fi
    [ -z "$m_reason" ] && [ "$m_max_short" -gt 0 ] && [ "$1" -lt "$m_segments" ] || return 0
    [ "$(m_in_a_row m_short "$1")" -lt "$m_max_short" ] || m_another_serves ||
        m_reason="crash loop: $m_max_short links in a row (--max-short) ran for less than $m_min_runtime s each (--min-runtime)$(
            ! m_is_service || echo ", or did not become ready"
        )"
}

m_cancel_rest() { # the queued links after this one
    for m_try in 1 2 3; do
        m_ids=$(m_later PENDING) && break
        [ "$m_try" -lt 3 ] || { m_say "Slurm does not answer; the queued links will leave as they start"; return; }
        sleep 2
    done
    # shellcheck disable=SC2086  # one word a job id
    [ -z "$m_ids" ] || m_slurm scancel --state=PENDING $m_ids
}

m_leave() { # CODE TEXT: ends this job before its work, or a service that may not go on
    m_say "$2"
    if [ -n "$m_child" ]; then # this is beside it
        m_end_script
    else
        m_stop_queuing
    fi
    exit "$1"
}

m_end_script() { # from beside it, which its end ends too
    kill -s TERM "$m_child" 2>/dev/null
    sleep 30 >/dev/null 2>&1
    kill -s KILL "$m_child" 2>/dev/null
}

m_set_exit_code() { # CODE: sets m_exit_code, what this job exits with. Others have only Slurm's records of the chain
    m_exit_code=$1
    if [ -e "$m_dir/done" ]; then
        m_exit_code=0
    elif [ -e "$m_dir/cancelled" ]; then
        m_slurm scancel "$m_job" 2>/dev/null
    elif [ -e "$m_dir/failed" ] || [ -n "$m_stranded" ]; then
        case $m_exit_code in 0 | "$m_used_up_exit") m_exit_code=1 ;; esac
    elif [ -n "$m_at_signal" ] && m_is_last; then
        m_exit_code=$m_used_up_exit
        m_mail_no_failure
    fi
}

m_mail_no_failure() { # Slurm's mail goes by exit codes, and this link did not fail: who asked for mail of an end gets that
    case $(m_slurm scontrol show job "$m_job" 2>/dev/null) in
        *MailType=*END*) m_slurm scontrol update "JobId=$m_job" MailType=END >/dev/null 2>&1 ;;
        *MailType=*FAIL*) m_slurm scontrol update "JobId=$m_job" MailType=NONE >/dev/null 2>&1 ;;
    esac
}

m_leave_if_over() { # but a service that is ready goes on: the link before it may have ended already
    if [ -z "$m_serves" ] && m_is_over; then
        m_follow_up
        m_cancel_rest
        m_notify_end
        m_set_exit_code 0
        m_leave "$m_exit_code" "the chain is over: $(cat "$m_dir/done" "$m_dir/failed" "$m_dir/cancelled" 2>/dev/null)"
    fi
}

# A paused chain's link that has not begun its work goes back to the queue, held: its turn is not used up.
m_leave_if_paused() {
    [ -z "$m_child" ] || return 0
    while m_is_paused && { ! m_must_end || [ "$(m_asked_by)" = pause ]; }; do
        if m_requeue_held; then
            m_leave 0 "the chain is paused: this link waits, held, for \`mirage resume $m_chain\`"
        fi
        [ -n "$m_cannot_wait" ] || m_say "the chain is paused, but Slurm does not take this link back; it tries on"
        m_cannot_wait=1 m_waited=0
        while m_is_paused && [ "$m_waited" -lt 10 ]; do sleep 1; m_waited=$((m_waited + 1)); done
        m_leave_if_over
    done
}

m_requeue_held() ( # Slurm then tells every process of this job to end: not these, before they have finished
    m_ignore_signals
    m_answer=$(m_slurm scontrol show job "$m_job" 2>/dev/null)
    case $m_answer in *Requeue=0*) m_slurm scontrol update "JobId=$m_job" Requeue=1 >/dev/null 2>&1 ;; esac
    m_slurm scontrol requeuehold "$m_job" >/dev/null 2>&1 || exit 1
    case $m_answer in *Requeue=0*) m_slurm scontrol update "JobId=$m_job" Requeue=0 >/dev/null 2>&1 ;; esac
)

m_leave_if_broken() { # the link before may have been unable to say so
    [ -z "$m_serves" ] || return 0
    m_verdict $((m_seg - 1))
    [ -z "$m_reason" ] || m_mark failed "$m_reason"
    m_leave_if_over
}

# ---- Telling the user -----------------------------------------------------------------------------------------------

m_notify() { # EVENT REASON SECONDS: runs the user's command for at most a minute. How it ends changes nothing
    m_event=$1
    set -- env MIRAGE_EVENT="$1" MIRAGE_REASON="$2" MIRAGE_INTERRUPTED_S="$3" MIRAGE_CHAIN_ID="$m_chain" \
        MIRAGE_SEGMENT="$m_seg" MIRAGE_SEGMENTS="$m_segments" MIRAGE_CHAIN_DIR="$m_dir" sh -c "$m_notify_command"
    m_bounded "$m_notify_limit" "$@" </dev/null >&2 3<&- ||
        m_say "--notify, $m_event: the command failed or ran too long (exit code $?)"
}

m_notify_end() { # whoever sees the chain's end first
    [ -n "$m_notify_command" ] && m_is_over && mkdir "$m_dir/notified" 2>/dev/null || return 0
    if [ -e "$m_dir/done" ]; then m_event=ended m_marker="done"
    elif [ -e "$m_dir/failed" ]; then m_event=failed m_marker=failed
    else m_event=cancelled m_marker=cancelled; fi
    m_text=$(head -n 1 "$m_dir/$m_marker" 2>/dev/null)
    m_notify "$m_event" "${m_text:-the work is done}" 0
}

m_report_used_up() { # HOW: the last link ran to its time limit, where Slurm does not requeue, or to its own signal
    [ "$1" = slurm ] && m_is_last && ! m_is_over || return 0
    if [ -n "$m_at_signal" ]; then
        m_text="the signal before its time limit"
    elif [ "$(m_read "link.$m_seg" reason)" = TimeLimit ]; then
        m_text="its time limit"
    else
        return 0
    fi
    m_say "this last link ran to $m_text, and nothing says that the work is done." \
        "If it is: mirage done $m_chain. For more links: mirage extend $m_chain --segments +1"
    [ -n "$m_notify_command" ] && mkdir "$m_dir/notified" 2>/dev/null || return 0
    m_notify ended "all $m_segments links have run, the last one to $m_text" 0
}

# Looks back, since a link that is killed outright can tell nobody. Without its record Slurm tells when it ended.
m_notify_interrupted() { # TIME: nothing served, or worked, from the end of m_before until then
    [ -n "$m_notify_command" ] && [ -n "$m_before" ] || return 0
    [ -n "$m_end" ] || m_end=$(m_last_end "$m_before")
    m_resumed=$(cat "$m_dir/resumed" 2>/dev/null) # a pause is no interruption
    [ "${m_resumed:-0}" -le "${m_end:-0}" ] || m_end=$m_resumed
    m_gap=$(($1 - ${m_end:-$1}))
    m_did=ran
    ! m_is_service || m_did=served
    [ "$m_gap" -lt "$m_notify_after" ] ||
        m_notify interrupted "nothing $m_did for $m_gap s after link $m_before_seg (job $m_before) ended" "$m_gap"
}

m_last_end() { # JOB: of its runs
    m_slurm env SLURM_TIME_FORMAT=%s sacct -n -X -D -P -j "$1" -o End 2>/dev/null | grep '^[0-9][0-9]*$' | sort -n | tail -n 1
}

m_look_back() { # sets m_before and m_before_seg, the job that has ended before this one, and m_end
    [ -z "$m_before" ] && [ -n "$m_notify_command" ] || return 0
    if [ "$m_restart" -gt 0 ] && [ -z "$m_work" ] && [ -e "$m_dir/start.$m_seg" ]; then
        m_before=$m_job m_before_seg=$m_seg
    elif [ "$m_pred" -gt 0 ] && m_gone "$m_pred" $((m_seg - 1)); then
        m_before=$m_pred m_before_seg=$((m_seg - 1))
    else
        return 0
    fi
    m_end='' m_look_at=0
    [ "$(m_read "link.$m_before_seg" job)" != "$m_before" ] || m_end=$(m_read "link.$m_before_seg" end)
}

# ---- The next link --------------------------------------------------------------------------------------------------

m_forget_job() { # the environment as it was at submission: without what Slurm put into it for this job
    for m_name in $(env | sed -n 's/^\(SLURM[A-Z]*_[A-Za-z0-9_]*\)=.*/\1/p'); do
        [ "$m_name" = SLURM_CONF ] || unset "$m_name"
    done
    unset MIRAGE_CHAIN_ID MIRAGE_SEGMENT MIRAGE_SEGMENTS MIRAGE_PRED_JOBID
    unset MIRAGE_CHAIN_DIR MIRAGE_DONE_FILE MIRAGE_READY_FILE MIRAGE_SCRIPT MIRAGE_PORT MIRAGE_ENDPOINT
    unset CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK ENVIRONMENT TMPDIR
    m_put_back
}

# As submitted_ids of sbatch.py. Sites print a banner, which may have numbers: then the queue tells which job it is.
m_printed_id() { # COMMENT (a pattern of the job's): the id in what sbatch printed; nothing if there is none
    m_ids=$(sed -n -e 's/^Submitted batch job //' -e 's/ on cluster [^ ]*$//' -e 's/;[^ ]*$//' \
        -e 's/[[:space:]]*$//' -e 's/^\([1-9][0-9]*\)$/\1/p')
    m_own=''
    [ "$(printf '%s\n' "$m_ids" | sort -u | wc -l)" -le 1 ] ||
        m_own=$(m_slurm squeue -h -a -u "$(id -u)" -o '%A %k' 2>/dev/null | sed -n "s|^\([0-9]*\) $1\$|\1|p" | tail -n 1)
    [ -n "$m_own" ] || m_own=$(printf '%s\n' "$m_ids" | tail -n 1)
    printf '%s\n' "$m_own"
}

m_submit_as() ( # COMMENT (a pattern of the job's) SBATCH...: prints the job id
    m_sbatch_program=$(m_slurm sh -c 'command -v sbatch') || m_sbatch_program=sbatch
    m_pattern=$1
    shift
    m_forget_job
    cd "$m_submit_dir" 2>/dev/null || : # where it is not mounted, --chdir still says where to run
    m_answer=$("$@" 2>"$m_dir/.sbatch.$m_job") || exit 1
    m_answer=$(printf '%s\n' "$m_answer" | m_printed_id "$m_pattern")
    [ -n "$m_answer" ] || { echo "sbatch printed no job id" >"$m_dir/.sbatch.$m_job"; exit 1; }
    echo "$m_answer"
)

m_submit() { # SEGMENT PREDECESSOR ARGUMENTS...: prints the job id
    m_tag="mirage/1 chain=$m_chain seg=$1/$m_segments${m_length:+ of=$m_length} pred=$2 mode=$m_mode $m_wishes$(m_cost_word)"
    ! m_is_service || m_tag="$m_tag ready=0"
    m_submit_as "mirage/1 chain=$m_chain seg=$1/.*" m_sbatch --parsable ${m_hold:+"$m_hold"} \
        --comment="$m_tag${m_comment:+ -- $m_comment}" --dependency="afterany:$2$m_singleton" "$m_dir/job.sh" "$@"
}

# The mean of this chain's links. In training, what a handover costs: from the signal until the successor's program said
# in $MIRAGE_READY_FILE that it goes on. A service's start-up: from the start of a link until it was ready. Where no link
# tells, what the owner said.
m_measure_cost() { # sets m_cost
    m_sum=0 m_known=0
    for m_entry in "$m_dir"/ready.*; do
        m_to=${m_entry##*.}
        if m_is_service; then m_from=$(m_read "start.$m_to" start); else m_from=$(m_asked_before "$m_to"); fi
        m_to=$(m_ready_at "$m_to") && [ -n "$m_from" ] || continue
        m_sum=$((m_sum + m_to - m_from)) m_known=$((m_known + 1))
    done
    [ "$m_known" -eq 0 ] || m_cost=$((m_sum / m_known))
}

m_ready_at() { # SEGMENT: by the clock of its job, else by that of the file system
    m_at=$(m_read "ready.$1" at)
    case $m_at in '' | *[!0-9]*) date -r "$m_dir/ready.$1" +%s 2>/dev/null ;; *) echo "$m_at" ;; esac
}

m_asked_before() { # SEGMENT: when the link from which it took over was asked to end
    m_entry_of=$(grep -lx "to=$1" "$m_dir"/handover.* 2>/dev/null | head -n 1)
    [ -z "$m_entry_of" ] || m_read "${m_entry_of##*/}" asked
}

m_cost_word() {
    m_measure_cost
    [ -z "$m_cost" ] || [ "$m_cost" -lt 0 ] || [ "$m_cost" -gt 9999999 ] || printf ' cost=%s' "$m_cost" # as the tag takes it
}

# In a paused chain it is queued held. A pause or a resume may come while sbatch runs: each of the two sides writes
# first and looks then, so one of them sees the other.
m_submit_as_paused() { # SEGMENT PREDECESSOR ARGUMENTS...: sets m_id
    m_hold=''
    ! m_is_paused || m_hold=--hold
    m_id=$(m_submit "$@") || return 1
    if ! m_is_paused; then
        [ -z "$m_hold" ] || m_slurm scontrol release "$m_id" >/dev/null 2>&1 || :
    elif [ -z "$m_hold" ]; then
        m_slurm scontrol uhold "$m_id" >/dev/null 2>&1 || : # then it goes back to the queue as it starts
    fi
}

m_has_slurm() { m_slurm sh -c 'command -v squeue' >/dev/null; }

m_silent() { # in place of sbatch's own words
    m_text="Slurm does not answer"
    m_has_slurm || m_text="squeue is not found here. If this runs in a container, start \
only the program in it (srun --container-image); else submit with --up-front"
    echo "$m_text" >"$m_dir/.sbatch.$m_job"
}

m_queue_once() { # ARGUMENTS...: succeeds once the next link is in the queue
    m_queue_link "$m_next" "$m_job" "$@"
}

m_queue_link() { # SEGMENT PREDECESSOR ARGUMENTS...: succeeds once this link is in the queue
    if [ -e "$m_dir/queued.$1" ] || m_is_over; then return 0; fi
    m_find_link "$1" || { m_silent; return 1; }
    [ -n "$m_id" ] || m_submit_as_paused "$@" || return 1
    m_write "queued.$1" "$m_id"
    rm -f "$m_dir/queued.$1.error"
}

m_tell_refusal() { # SEGMENT: that it is not queued, in this log and for `mirage status`
    m_error=$(cat "$m_dir/.sbatch.$m_job" 2>/dev/null)
    [ "$m_error" != "$m_said" ] || return 0
    m_say "link $1 is not queued yet, trying on: $m_error"
    m_write "queued.$1.error" "$m_error" 2>/dev/null || :
    m_said=$m_error
}

m_may_pass() { # m_error: a queue that is full, a limit, a slurmctld that is away; not: this node may not submit
    case $m_error in
        *' limit'* | *MaxSubmit* | *temporar* | *' contact '* | *' answer'* | *'imed out'* | *'Zero Bytes'*) ;;
        *onnection* | *'not available'* | *'ry again'*) ;;
        *) return 1 ;;
    esac
}

# mirage-submit queued link 2 elsewhere. That this node's jobs may not submit is known now, and not a link later.
m_try_submitting() { # ARGUMENTS...
    [ "$m_seg" -eq 1 ] && [ "$m_next" -lt "$m_segments" ] || return 0
    m_hold=--test-only m_error=''
    m_submit $((m_next + 1)) "$m_job" "$@" >/dev/null || m_error=$(cat "$m_dir/.sbatch.$m_job" 2>/dev/null)
    case $m_error in '' | *'no job id' | *' to start at '*) return 0 ;; esac # sbatch would take it
    m_may_pass || m_tell_refusal $((m_next + 1))
}

# Where waits are longer than a link, one successor is too few. A further one is queued behind the last one once that
# competes for nodes: `afterany` keeps it back until it is let in, or until the one before has ended.
m_queue_ahead() { # ARGUMENTS...: beside the user's script, until m_stop_queuing says stop
    while [ -z "$m_stop" ]; do
        m_rest "$m_look_ahead"
        [ -z "$m_stop" ] || return 0
        m_read_length
        m_tip=$m_next
        while [ -e "$m_dir/queued.$((m_tip + 1))" ]; do m_tip=$((m_tip + 1)); done
        if [ "$m_tip" -lt "$m_segments" ] && [ $((m_tip - m_seg)) -lt "$m_ahead" ] && m_competes "$m_tip"; then
            m_is_paused || m_queue_link $((m_tip + 1)) "$m_id" "$@" || :
        fi
    done
}

m_competes() { # SEGMENT: it is pending, and no dependency keeps it back. Sets m_id
    m_find_link "$1" && [ -n "$m_id" ] || return 1
    m_answer=$(m_slurm squeue -h -a -j "$m_id" -o '%T %E' 2>/dev/null) || return 1
    case $m_answer in 'PENDING (null)' | 'PENDING ' | PENDING) return 0 ;; esac
    return 1
}

m_rest() { # SECONDS: or until m_stop_queuing says stop
    m_left=$1
    while [ "$m_left" -gt 0 ] && [ -z "$m_stop" ] && [ ! -e "$m_dir/.stop.$m_job" ]; do
        sleep "$([ "$m_left" -lt 5 ] && echo "$m_left" || echo 5)" &
        m_nap=$!
        wait "$m_nap"
        m_left=$((m_left - 5))
    done
    [ ! -e "$m_dir/.stop.$m_job" ] || m_stop=1
}

# slurmctld saves its state every few seconds. One that is killed has forgotten the jobs that it took since then.
m_was_saved() { # fails if the next link has to be queued again, and if Slurm gives no sound answer
    if m_is_over || [ -e "$m_dir/link.$m_next" ]; then return 0; fi
    m_silent
    m_lines=$(m_later '[A-Z_]*') || return 1
    [ -z "$m_lines" ] || return 0
    m_id=$(cat "$m_dir/queued.$m_next" 2>/dev/null) && m_look_up "$m_id" || return 1
    [ "$m_state" = NONE ] || return 0
    m_say "Slurm has forgotten link $m_next (job $m_id): it is queued again"
    rm -f "$m_dir/queued.$m_next"
    return 1
}

m_queue_next() { # ARGUMENTS...: tries until it is queued for good, or fails as the link ends. Beside the user's script
    m_stop='' m_pause=2 m_said='' m_waited=0 m_nap='' m_tagged=''
    m_ignore_signals
    trap 'm_stop=1; [ -z "$m_nap" ] || kill "$m_nap" 2>/dev/null' TERM
    m_note_limit
    while [ -e "$m_dir/submitting" ] && [ "$m_waited" -lt 60 ]; do sleep 1; m_waited=$((m_waited + 1)); done
    m_try_submitting "$@"
    while [ -z "$m_stop" ]; do
        if m_is_last; then
            [ -n "$m_tagged" ] || ! m_tag_as_last || m_tagged=1
            m_rest 5 # mirage extend may give the chain more
            continue
        fi
        if m_queue_once "$@"; then
            m_rest "$m_confirm_after"
            [ -z "$m_stop" ] || return 1
            m_was_saved || continue
            [ "$m_ahead" -le 1 ] || m_queue_ahead "$@"
            return 0
        fi
        m_tell_refusal "$m_next"
        m_rest "$m_pause"
        [ "$m_pause" -ge 300 ] || m_pause=$((m_pause * 2))
    done
    return 1
}

m_queue_at_end() { # ARGUMENTS...: succeeds once it is queued for good. What may pass is waited for until near the limit
    m_pause=2 m_said='' m_tried=$(m_now)
    if ! m_has_slurm; then # nothing to wait for
        [ ! -e "$m_dir/queued.$m_next" ] || return 0
        m_silent
        m_tell_refusal "$m_next"
        return 1
    fi
    until { [ -n "$m_saved" ] || m_was_saved || [ ! -e "$m_dir/queued.$m_next" ]; } && m_queue_once "$@"; do
        ! m_is_paused || return 1
        m_tell_refusal "$m_next"
        [ -z "$m_swept" ] && ! m_must_end || return 1
        m_may_pass || [ $(($(m_now) - m_tried)) -lt "$m_write_patience" ] || return 1
        ! m_left=$(m_seconds_left) || [ "$m_left" -gt "$m_end_lead" ] || return 1
        sleep "$m_pause"
        [ "$m_pause" -ge 60 ] || m_pause=$((m_pause * 2))
    done
}

m_queues_next() { [ "$m_up_front" -eq 0 ] && ! m_is_last; }

m_stop_queuing() {
    [ -n "$m_queuer" ] || return 0
    m_touch "$m_dir/.stop.$m_job" # a shell that was forked a moment ago can lose the signal
    kill "$m_queuer" 2>/dev/null # it finishes a submission under way
    wait "$m_queuer" && m_saved=1
    m_queuer=
    rm -f "$m_dir/.stop.$m_job"
}

# ---- What follows the chain -----------------------------------------------------------------------------------------

m_running_links() { # "afterany:JOB:JOB": this job and all links that have nodes; nothing if none has
    m_lines=$(m_list) || [ "$m_job" -ne 0 ] || return 1
    m_ids=$(printf '%s\n' "$m_lines" | sed -n '/ PENDING /!s/^\([0-9]*\) .*/:\1/p' | grep -vx ":$m_job" | tr -d '\n')
    [ "$m_job" -eq 0 ] || m_ids=":$m_job$m_ids"
    [ -z "$m_ids" ] || echo "afterany$m_ids"
}

m_submit_then() { # NUMBER: prints the job id
    m_after=$(m_running_links) || return 1
    m_submit_as "mirage-then/1 chain=$m_chain n=$1\( -- .*\)\{0,1\}" m_sbatch_then "$1" "${m_after:+--dependency=$m_after}"
}

m_find_then() { # NUMBER: sets m_id and m_state of its job, which may have ended; empty: none. Fails without an answer
    m_lines=$(m_slurm squeue -h -a -t all -u "$(id -u)" -o '%A %T %D/%N %k' 2>"$m_dir/.sbatch.$m_job") || return 1
    # Of a job that it refuses slurmctld keeps a record too: FAILED, and without nodes.
    m_id=$(printf '%s\n' "$m_lines" | sed -e '/^[0-9]* FAILED [0-9]*\/ /d' -e '/^[0-9]* CANCELLED [0-9]*\/ /d' |
        sed -n "s|^\([0-9]* [A-Z_]*\) [^ ]* mirage-then/1 chain=$m_chain n=$1\( -- .*\)\{0,1\}\$|\1|p" | head -n 1)
    m_state=${m_id#* } m_id=${m_id% *}
}

m_then_once() { # NUMBER: succeeds once it is in the queue, to start when no link of the chain runs any more
    m_find_then "$1" || return 1
    if [ -e "$m_dir/then.$1" ]; then # since the chain began, in case its jobs have no sbatch
        [ "$m_state" = PENDING ] || return 0 # let go already
        m_after=$(m_running_links) || return 1
        m_slurm scontrol update "JobId=$m_id" "Dependency=$m_after" 2>"$m_dir/.sbatch.$m_job"
        return
    fi
    # One whose submission got no answer may be there.
    [ -n "$m_id" ] || m_id=$(m_submit_then "$1") || return 1
    m_write "then.$1" "$m_id"
    m_say "the chain is done: job $m_id follows it"
}

m_let_follow() { # NUMBER: mkdir decides between links that find the chain over at the same time
    m_claimed=$m_dir/then.$1.claim
    if ! mkdir "$m_claimed" 2>/dev/null; then # `mirage done` takes it from a link that died in between
        [ "$m_job" -eq 0 ] && [ ! -e "$m_claimed/settled" ] || return 0
        m_id=$(cat "$m_claimed/job" 2>/dev/null)
        if [ "${m_id:-0}" -gt 0 ]; then
            m_over_in_slurm "$m_id" || return 0
        else
            [ -n "$(find "$m_claimed" -prune -mmin +30)" ] || return 0
        fi
    fi
    echo "$m_job" >"$m_claimed/job"
    for m_pause in 1 2 4 8 15 0; do
        if m_then_once "$1"; then
            rm -f "$m_dir/then.$1.error"
            m_touch "$m_claimed/settled"
            return 0
        fi
        sleep "$m_pause"
    done
    m_error=$(cat "$m_dir/.sbatch.$m_job" 2>/dev/null)
    m_write "then.$1.error" "${m_error:-Slurm does not answer}"
    m_say "script $1 of --then does not follow the chain: $m_error. To try again: mirage done $m_chain"
    rm -rf "$m_claimed"
    return 1
}

m_follow_up() { # the chain is over: if it is done, --then follows; else what was queued for that goes
    m_number=0 m_lost=0
    while [ "$m_number" -lt "$m_then" ]; do
        m_number=$((m_number + 1))
        if [ -e "$m_dir/done" ]; then
            m_let_follow "$m_number" || m_lost=1
        elif [ -e "$m_dir/then.$m_number" ] && m_find_then "$m_number" && [ -n "$m_id" ]; then
            m_slurm scancel --state=PENDING "$m_id" 2>/dev/null
        fi
    done
    return "$m_lost"
}

# ---- Taking over ----------------------------------------------------------------------------------------------------

m_read_last_writer() {
    m_last=0 m_owner_job='' m_owner_seg=0
    for m_entry in "$m_dir"/writer.*; do
        m_number=${m_entry##*.}
        [ -d "$m_entry" ] && [ "$m_number" -gt "$m_last" ] && m_last=$m_number
    done
    m_owner_job=$(m_read "writer.$m_last/owner" job)
    m_owner_seg=$(m_read "writer.$m_last/owner" segment)
}

m_was_lost() { # JOB SEGMENT: a slurmctld that was killed has forgotten it, and it cannot have ended by itself
    [ "$2" -eq "$m_seg" ] && [ "$(m_read "link.$2" job)" != "$1" ] && m_look_up "$1" && [ "$m_state" = NONE ]
}

m_leave_if_superseded() {
    [ -n "$m_owner_job" ] && [ "$m_owner_job" != "$m_job" ] || return 0
    [ "$m_owner_seg" -lt "$m_seg" ] || m_was_lost "$m_owner_job" "$m_owner_seg" ||
        m_leave 0 "link $m_owner_seg (job $m_owner_job) has taken over; nothing to do"
}

# mkdir decides between two that want the lock at the same time, also on NFS. Fails while somebody else has it.
m_claim() {
    m_read_last_writer
    m_leave_if_superseded
    if [ -z "$m_owner_job" ] && [ "$m_last" -gt 0 ]; then
        # Its owner is about to write its name, or died in between.
        m_nameless=$((m_nameless + 1))
        [ "$m_nameless" -gt 30 ] || return 1
    elif [ "$m_last" -gt 0 ] && [ "$m_owner_job" != "$m_job" ]; then
        m_look_at=0
        m_gone "$m_owner_job" "$m_owner_seg" || return 1
    fi
    m_mine=$((m_last + 1))
    if ! m_error=$(mkdir "$m_dir/writer.$m_mine" 2>&1); then
        [ -d "$m_dir/writer.$m_mine" ] || m_cannot_write "$m_error"
        return 1
    fi
    # Without its owner's name the lock would keep nobody away.
    m_error=$(m_write "writer.$m_mine/owner" "segment=$m_seg
job=$m_job" 2>&1) || {
        rmdir "$m_dir/writer.$m_mine" 2>/dev/null
        m_cannot_write "$m_error"
        return 1
    }
    m_unwritten=
    m_read_last_writer
    [ "$m_last" -eq "$m_mine" ]
}

# To the job steps if there are any. The batch script would not expect it then, and could die of it with its work unsaved:
# so no answer does not count as none, and the signal is for a later try.
m_find_target() { # JOB: sets m_target, the option of scancel. Fails if Slurm does not say whether it has steps
    m_target=--batch
    [ "$m_handover_signal" = "$m_signal" ] || return 0 # B:
    m_steps=$(m_slurm squeue -h -a -s -j "$1" -o %i 2>/dev/null) || return 1
    ! printf '%s\n' "$m_steps" | grep -q "^$1\.[0-9]" || m_target=
}

m_begin_handover() { # SEGMENT: link SEGMENT reads its record to know that its end is no failure
    [ -e "$m_dir/handover.$1" ] || m_write "handover.$1" "job=$m_job
grace=$m_grace_now"
}

m_note() { # SEGMENT KEY VALUE: adds to the record of a handover; what stands there stays
    [ -n "$(m_read "handover.$1" job)" ] && [ -z "$(m_read "handover.$1" "$2")" ] || return 0
    m_write "handover.$1" "$(cat "$m_dir/handover.$1")
$2=$3"
}

m_seconds_left() { # of this job's time limit; fails if Slurm does not say
    m_limit=$(m_slurm env SLURM_TIME_FORMAT=%s squeue -h -a -j "$m_job" -o %e 2>/dev/null)
    case $m_limit in
        '' | *[!0-9]*)
            m_limit=$(m_read "start.$m_seg" limit)
            [ -n "$m_limit" ] || return 1
            m_limit=$((m_started + m_limit)) # as it was
            ;;
    esac
    echo $((m_limit - $(m_now)))
}

# Without a --handover-grace it follows the checkpoints of this chain: twice the longest one, and twice what was not
# enough. All of it is time that this link has less for its work, so it is at most a quarter of what is left to it.
m_settle_grace() { # sets m_grace_now
    m_grace_now=$m_grace
    [ -z "$m_grace" ] && [ "$m_handover_signal" != none ] || return 0
    m_grace_now=$m_least_grace
    for m_entry in "$m_dir"/handover.*; do
        m_from=$(m_read "${m_entry##*/}" asked) m_to=$(m_read "${m_entry##*/}" cut)
        [ -n "$m_to" ] || m_to=$(m_read "${m_entry##*/}" gone)
        [ -n "$m_from" ] && [ -n "$m_to" ] && [ $((2 * (m_to - m_from))) -gt "$m_grace_now" ] || continue
        m_grace_now=$((2 * (m_to - m_from)))
    done
    [ "$m_grace_now" -gt "$m_least_grace" ] && m_left=$(m_seconds_left) || return 0
    [ "$m_grace_now" -le $((m_left / 4)) ] || m_grace_now=$((m_left / 4))
    [ "$m_grace_now" -ge "$m_least_grace" ] || m_grace_now=$m_least_grace
}

m_ask() { # JOB SEGMENT: to checkpoint and end
    m_begin_handover "$2"
    m_signal=${m_handover_signal#B:}
    # shellcheck disable=SC2086  # no word, or one
    m_find_target "$1" && m_slurm scancel $m_target --signal="$m_signal" "$1" 2>/dev/null
}

m_end() { # JOB SEGMENT: however it takes that. m_by: what is used up
    m_begin_handover "$2"
    m_before=$(cat "$m_dir/handover.$2")
    [ -z "$m_by" ] || { m_note "$2" by "$m_by"; m_note "$2" cut "$(m_now)"; } # link SEGMENT tells of it too
    if ! m_slurm scancel "$1" 2>/dev/null; then
        m_write "handover.$2" "$m_before"
        return 1
    fi
    [ -n "$m_by" ] || return 0
    m_say "link $2 (job $1) is cancelled, $(m_had_time "$m_by" "$m_grace_now"): what it has not saved is lost." \
        "To give it longer, submit the chain with $(m_remedy "$m_by" "$m_grace_now")"
    [ "$m_by" != grace ] || [ -n "$m_grace" ] || m_say "the next handover of this chain gets up to twice as long"
}

m_had_time() { # BY GRACE
    case $1 in
        grace) echo "since it did not end within $2 s after it was asked to" ;;
        *) echo "since two links ran together for $m_max_overlap s (--max-overlap)" ;;
    esac
}

m_remedy() { # BY GRACE
    case $1 in grace) echo "--handover-grace=$(($2 > 30 ? 2 * $2 : 60))s" ;; *) echo "a longer --max-overlap" ;; esac
}

m_say_if_cut() { # in the log of the link that is cancelled
    m_by=$(m_read "handover.$m_seg" by) m_had=$(m_read "handover.$m_seg" grace)
    [ -n "$m_by" ] || return 0
    m_say "job $(m_read "handover.$m_seg" job) takes over and cancels this link, $(m_had_time "$m_by" "$m_had"):" \
        "what it has not saved is lost. To give it longer, submit the chain with $(m_remedy "$m_by" "$m_had")"
}

m_overlap_is_used_up() { [ -n "$m_max_overlap" ] && [ "$(m_now)" -ge $((m_started + m_max_overlap)) ]; }

m_may_end() { # the predecessor has had its time. Sets m_by: what of it is used up
    m_by=max-overlap
    ! m_overlap_is_used_up || return 0
    if [ "$m_handover_signal" = none ]; then
        m_by=
        m_is_service
    else
        m_by=grace
        [ "$(m_now)" -ge $((m_asked_at + m_grace_now)) ]
    fi
}

m_must_end() { # before its work began, by Slurm or by its own successor, to end
    [ -z "$m_child" ] || return 1
    case $m_early in *TERM* | *INT* | *HUP* | *QUIT*) ;; *) return 1 ;; esac
}

m_hand_over() { # JOB SEGMENT: asks it to end, and waits until it has. Fails if this link must end itself
    m_look_at=0
    ! m_gone "$1" "$2" || return 0
    m_say "link $2 (job $1) still runs; taking over from it"
    m_settle_grace
    ! m_is_service || m_drain "$1" "$2" || return 1
    m_asked='' m_ended='' m_asked_at=$(m_now)
    [ "$m_handover_signal" != none ] || m_asked=1
    until m_gone "$1" "$2"; do
        m_leave_if_over
        m_leave_if_paused
        ! m_must_end || return 1
        if [ -z "$m_asked" ] && m_ask "$1" "$2"; then
            m_asked=1 m_asked_at=$(m_now) # Slurm may have been away for a while
            m_note "$2" asked "$m_asked_at"
        fi
        [ -n "$m_ended" ] || ! m_may_end || ! m_end "$1" "$2" || m_ended=1
        sleep 1
    done
    m_note "$2" gone "$(m_now)"
    m_took_from=$2
}

m_drain() { # JOB SEGMENT: its clients leave, within the grace. Fails if this link must end itself
    [ -e "$m_dir/endpoint.$2" ] || return 0
    rm -f "$m_dir/endpoint.$2"
    m_drain_from=$(m_now)
    while m_is_draining "$2"; do
        m_leave_if_over
        ! m_must_end || return 1
        ! m_gone "$1" "$2" && ! m_overlap_is_used_up || return 0
        sleep 1
    done
}

m_is_draining() { # SEGMENT: gateways may not have seen yet that it leaves, or have clients there
    m_drained_for=$(($(m_now) - m_drain_from))
    [ "$m_drained_for" -ge "$m_notice" ] || return 0
    [ "$m_drained_for" -lt "${m_grace_now:-$m_least_grace}" ] || return 1
    for m_entry in "$m_dir/draining.$1".*; do # opens the folder, so that NFS does not answer from its cache
        [ ! -e "$m_entry" ] || return 0
    done
    return 1
}

m_take_over() {
    m_nameless=0
    [ "$m_pred" -eq 0 ] || m_hand_over "$m_pred" $((m_seg - 1)) || return 1
    until m_claim; do
        m_leave_if_paused
        ! m_must_end || return 1
        [ -z "$m_owner_job" ] || m_hand_over "$m_owner_job" "$m_owner_seg" || return 1
        sleep 1
    done
    m_cancel_passed
    m_clear_endpoints
    m_leave_if_broken
}

m_clear_endpoints() { # of links that were killed outright, and could not take theirs away
    for m_entry in "$m_dir"/endpoint.*; do
        case ${m_entry##*.} in *[!0-9]*) ;; *) [ "${m_entry##*.}" -ge "$m_seg" ] || rm -f "$m_entry" ;; esac
    done
}

m_cancel_passed() { # the link before may still wait, as a later one may start first: its turn is over
    m_passed_seg=$((m_seg - 1))
    while [ "$m_passed_seg" -gt 1 ] && [ ! -e "$m_dir/start.$m_passed_seg" ]; do
        m_find_link "$m_passed_seg" && [ -n "$m_id" ] && m_slurm scancel --state=PENDING "$m_id" 2>/dev/null
        m_passed_seg=$((m_passed_seg - 1))
    done
}

# ---- Is a service ready? --------------------------------------------------------------------------------------------

m_is_service() { [ "$m_mode" = service ]; }

m_bounded() { # SECONDS COMMAND...
    m_bound=$1
    shift
    ! command -v timeout >/dev/null || set -- timeout -k 5 "$m_bound" "$@"
    "$@"
}

# bash can open a connection, and is there wherever Slurm is. A server may listen on one of the node's names alone.
m_answers() { # [PATH]: something accepts a connection to the service's port of this node, and answers 2xx or 3xx
    for m_host in localhost "$(uname -n)"; do
        # shellcheck disable=SC2016  # bash expands these
        m_bounded "$m_port_limit" bash -c 'exec 3<>"/dev/tcp/$0/$1" || exit 1
            [ -n "$2" ] || exit 0
            printf "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" "$2" "$0" >&3
            read -r version code rest <&3
            read -r -t 1 -N 65536 rest <&3 # else the server finds the connection broken
            case $code in [23][0-9][0-9]*) ;; *) exit 2 ;; esac' \
            "$m_host" "$m_health_port" "${1-}" </dev/null >/dev/null 2>&1 3<&-
        m_answer=$?
        [ "$m_answer" -eq 1 ] || break
    done
    return "$m_answer"
}

# ---- Where is a service reached? ------------------------------------------------------------------------------------

m_settle_port() { # before the script starts: sets m_port, the one of --port, and if the check asks that one m_health_port
    export MIRAGE_ENDPOINT="$m_dir/address.$m_seg"
    rm -f "$MIRAGE_ENDPOINT"
    m_asked_port=${m_asked_port:-$m_port} m_asked_check=${m_asked_check:-$m_health_port}
    [ "$m_asked_port" != free ] || m_pick_port
    export MIRAGE_PORT="$m_port"
}

m_pick_port() { # one that nothing answers on, below those that the kernel gives to clients
    m_try=$m_deaths
    while m_port=$((20000 + (m_job + 7919 * m_try) % 12000)) m_health_port=$m_port && m_answers; do m_try=$((m_try + 1)); done
    [ "$m_asked_check" = free ] || m_health_port=$m_asked_check
}

m_find_address() { # sets m_host and m_at_port. Fails if nobody said where clients reach this link
    m_address=$(head -n 1 "$m_dir/address.$m_seg" 2>/dev/null)
    m_address=${m_address:-$m_port}
    case $m_address in
        '') return 1 ;;
        *:*) m_host=${m_address%:*} m_host=${m_host#\[} m_host=${m_host%]} m_at_port=${m_address##*:} ;;
        *) m_host=$(uname -n) m_at_port=$m_address ;;
    esac
    case $m_host/$m_at_port in
        /* | */ | *[!A-Za-z0-9.:_/-]* | */*[!0-9]*)
            m_say "\$MIRAGE_ENDPOINT has '$m_address', which is not HOST:PORT or PORT: clients do not find this link"
            return 1
            ;;
    esac
}

m_write_endpoint() { # fails while it can't be written. Nobody is sent to a link that a later one replaces
    for m_entry in "$m_dir"/endpoint.*; do
        case ${m_entry##*.} in *[!0-9]*) ;; *) [ "${m_entry##*.}" -le "$m_seg" ] || return 0 ;; esac
    done
    m_find_address || return 0
    if m_error=$(m_write "endpoint.$m_seg" \
        "{\"host\": \"$m_host\", \"port\": $m_at_port, \"link\": $m_seg, \"ready_s\": $(m_now), \"job\": $m_job}" 2>&1); then
        [ -z "$m_unlisted" ] || m_say "endpoint.$m_seg is written: clients find this link"
        m_unlisted=
        return 0
    fi
    [ -n "$m_unlisted" ] || m_say "this link serves at $m_host:$m_at_port, but clients do not find it: can't write" \
        "$m_dir/endpoint.$m_seg (${m_error##*: }). Make room there; it tries on"
    m_unlisted=1
    return 1
}

m_look_after() { # beside the script, from its readiness on: what could not be written, whether it answers, its end nears
    m_tag_at=0 m_ask_at=0 m_missed=0 m_check_at=0 m_asks_on=''
    [ -z "$m_health_port$m_health_command" ] || [ "$m_health_failures" -eq 0 ] || m_asks_on=1
    while :; do
        [ -z "$m_unlisted" ] || m_write_endpoint || :
        [ "$(m_now)" -lt "$m_tag_at" ] || { ! m_tag_ready && m_tag_at=$(($(m_now) + 20)); } || m_tag_at=9999999999
        ! m_nears_limit || { rm -f "$m_dir/endpoint.$m_seg"; m_unlisted='' m_asks_on=''; }
        [ -z "$m_asks_on" ] || m_ask_on
        [ -e "$m_dir/endpoint.$m_seg" ] || [ -n "$m_unlisted$m_asks_on" ] || [ "$m_tag_at" -lt 9999999999 ] || return 0
        sleep 5 >/dev/null 2>&1
    done
}

m_ask_on() { # a server that does not answer any more is ended, as if it had died. One that was asked to end may be slow
    m_asked_s=$(m_now)
    [ "$m_asked_s" -ge "$m_check_at" ] || return 0
    m_check_at=$((m_asked_s + m_health_again))
    if m_check_passes; then m_missed=0; return; fi
    [ "$m_missed" -gt 0 ] || m_hung_s=$m_asked_s
    m_missed=$((m_missed + 1))
    [ "$m_missed" -ge "$m_health_failures" ] && [ ! -e "$m_dir/handover.$m_seg" ] || return 0
    m_say "$m_missed checks in a row failed, the first $(($(m_now) - m_hung_s)) s ago: the service is ended, as if it had died ($m_check)"
    rm -f "$m_dir/endpoint.$m_seg"
    echo "$m_hung_s" >"$m_dir/.hung.$m_job"
    m_end_script
}

m_nears_limit() { # Slurm, or the script's own signal, ends it soon: gateways send nobody here any more
    [ "$(m_now)" -ge "$m_ask_at" ] || return 1
    m_ask_at=$(($(m_now) + 300))
    m_left=$(m_seconds_left) || return 1
    m_left=$((m_left - m_limit_lead - m_leave_lead))
    [ "$m_left" -ge 300 ] || m_ask_at=$(($(m_now) + m_left))
    [ "$m_left" -le 0 ]
}

m_settle_check() { # before the script starts: sets m_stranger and m_patience
    m_stranger=''
    m_measure_cost
    m_patience=$((2 * (${m_cost:-0} > m_startup ? m_cost : m_startup)))
    if [ -n "$m_health_port" ] && ! command -v bash >/dev/null; then
        m_say "there is no bash here to ask port $m_health_port with"
        m_health_port=
    elif [ -n "$m_health_port" ] && m_answers; then
        m_stranger=1
        m_say "another program answers on port $m_health_port of this node before the script has started: that does not count." \
            "Let the script choose a port that is free and --health-command ask it, or submit with --exclusive"
    fi
    [ -n "$m_health_port$m_health_command$m_says_so" ] ||
        m_say "no health check is there: this link counts as ready $m_startup s after its start (--startup), or once the script" \
            "creates \$MIRAGE_READY_FILE"
}

m_is_ready() { # sets m_by, why
    m_by=check
    if [ -z "$m_health_port$m_health_command" ]; then
        [ ! -e "$m_dir/ready.$m_seg" ] || [ "$(m_touched)" = "${m_seen_ready:-never}" ] || return 0
        m_by=startup
        [ -z "$m_says_so" ] && [ "$(m_now)" -ge $((m_run_from + m_startup)) ]
        return
    fi
    if m_check_passes; then m_passed=$((m_passed + 1)); else m_passed=0; fi
    [ "$m_passed" -ge "$m_health_count" ]
}

m_check_passes() {
    if [ -z "$m_health_port" ]; then
        m_bounded "$m_command_limit" sh -c "$m_health_command" >/dev/null 2>&1 </dev/null
    elif [ -n "$m_stranger" ]; then
        m_answers || m_stranger='' # the next one that answers is the service
        return 1
    else
        m_answers "$m_health_path"
    fi
}

m_is_alone() { # no other link of the chain runs. Asks every ten seconds
    [ "$(m_now)" -ge "$m_alone_at" ] || return 1
    m_alone_at=$(($(m_now) + 10)) m_look_at=0
    [ "$m_pred" -eq 0 ] || m_gone "$m_pred" $((m_seg - 1)) || return 1
    m_read_last_writer
    [ "${m_owner_job:-$m_job}" != "$m_job" ] || return 0
    m_look_at=0
    m_gone "$m_owner_job" "$m_owner_seg"
}

m_watch_service() { # beside the user's script
    m_passed=0 m_took='' m_late='' m_alone_at=0
    m_ignore_signals
    trap - TERM
    until m_is_ready; do
        if [ -z "$m_took" ]; then
            m_leave_if_over
            if m_is_alone || m_overlap_is_used_up; then m_take_over && m_took=1; fi
        fi
        [ -n "$m_late" ] || [ "$(m_now)" -lt $((m_run_from + m_patience)) ] || m_is_late
        sleep "$m_health_interval"
    done
    m_serves=1
    m_note_ready
    until m_write_endpoint || m_is_alone; do sleep 5; done # its clients would find none
    m_tag_ready || : # before the link before has had its time to end
    [ -n "$m_took" ] || m_take_over
    m_look_after
}

m_is_late() { # twice the start-up is over. Beside a link that serves, two sets of nodes would be held for nothing
    m_late=1
    m_why="the service is not ready $m_patience s after its start (twice its start-up): look at $m_check and at the script's messages"
    if [ -n "$m_took" ]; then
        m_say "$m_why. No other link of the chain runs, so this one goes on"
        return
    fi
    m_give_up "$m_why"
    m_leave 1 "$m_why. Another link of the chain runs on, and this one ends. If it needs longer, say so by --startup"
}

m_give_up() { m_write "unready.$m_seg" "$1" 2>/dev/null || :; } # REASON

m_touched() { # when the script, or this file, said that it is ready
    date -r "$m_dir/ready.$m_seg" +%s 2>/dev/null
}

m_note_ready() {
    m_write_ready "$(m_now)"
    m_touch "$m_dir/.up.$m_job"
    m_look_back
    m_notify_interrupted "$(m_now)" &
}

# A service that is started again stays ready since its first time.
m_write_ready() { # UNTIL: the record of readiness, with the seconds from the server's death until then
    m_why="by=$m_by"
    [ ! -e "$m_dir/ready.$m_seg" ] || m_why=$(sed -e '/^at=/d' -e '/^down=/d' "$m_dir/ready.$m_seg") # the script's own words
    m_at=${m_ready_since:-$(m_read "ready.$m_seg" at)} m_down=$m_down_before
    [ -z "$m_died" ] || [ "$1" -le "$m_died" ] || m_down=$((${m_down:-0} + $1 - m_died))
    m_write "ready.$m_seg" "$m_why
at=${m_at:-$1}${m_down:+
down=$m_down}" 2>/dev/null || :
}

m_down_so_far() { sed -n 's/^down=\([1-9][0-9]\{0,6\}\)$/\1/p' "$m_dir/ready.$m_seg" 2>/dev/null | tail -n 1; }

m_note_down() { # as this link ends: it died, and was not ready again before it ended or its successor took over
    [ -n "$m_died" ] && [ ! -e "$m_dir/.up.$m_job" ] || return 0
    m_until=$(m_read "handover.$m_seg" asked)
    m_write_ready "${m_until:-$m_end}"
    m_tag_ready || :
}

m_tag_ready() { # so others see by this job's comment since when it is ready, and for how long it was not since. Succeeds once it stands there
    m_tag=$(m_slurm squeue -h -a -j "$m_job" -o %k 2>/dev/null) || return 1
    m_words=${m_tag%% -- *} m_down=$(m_down_so_far) m_at=$(m_ready_at "$m_seg") || return 0
    m_at=$m_at${m_down:+ down=$m_down}
    case $m_words in
        "mirage/1 chain=$m_chain seg=$m_seg/"*" ready=$m_at") return 0 ;;
        "mirage/1 chain=$m_chain seg=$m_seg/"*) ;;
        *) return 0 ;; # its owner took it out
    esac
    m_slurm scontrol update "JobId=$m_job" "Comment=${m_words%% ready=*} ready=$m_at${m_tag#"$m_words"}" >/dev/null 2>&1
    return 1
}

m_note_death() { # sets m_was_up, and m_died: since when a server that was ready serves nobody
    m_was_up=''
    [ -e "$m_dir/.up.$m_job" ] || return 0
    m_was_up=1 m_died=$m_end m_ready_since=$(m_ready_at "$m_seg") m_down_before=$(m_down_so_far)
    [ -e "$m_dir/.hung.$m_job" ] || return 0
    m_died=$(cat "$m_dir/.hung.$m_job")
    rm -f "$m_dir/.up.$m_job"
}

# Its nodes are there, and the queue may be long. A link that dies too often gives up: other nodes may do better.
m_starts_again() { # the user's service, which ended by itself with an error
    m_is_service && [ "$m_how" = exit ] && [ "$m_on_failure" = continue ] && [ "$m_code" -ne 0 ] || return 1
    [ -z "$m_terms" ] && [ ! -e "$m_dir/unready.$m_seg" ] && ! m_is_over && ! m_is_paused || return 1
    m_read_last_writer
    [ "${m_owner_seg:-0}" -le "$m_seg" ] || return 1
    m_ran=$((m_end - m_run_from)) m_deaths=$((m_deaths + 1))
    [ -z "$m_was_up" ] || [ "$m_ran" -lt "$m_min_runtime" ] || m_deaths=1
    m_why="the service ended with exit code $m_code after $m_ran s"
    m_pause_s=$((m_deaths <= 3 ? 1 << 2 * (m_deaths - 1) : 60))
    if [ "$m_max_short" -gt 0 ] && [ "$m_deaths" -ge "$m_max_short" ]; then
        m_say "$m_why, $m_deaths times in a row too soon (--max-short, --min-runtime): this link gives up"
        m_give_up "$m_why"
        return 1
    fi
    m_say "$m_why: it is started again in this job, in $m_pause_s s"
    m_before=$m_job m_before_seg=$m_seg m_seen_ready=$(m_touched)
    while [ "$m_pause_s" -gt 0 ]; do
        sleep 1
        m_pause_s=$((m_pause_s - 1))
        ! m_must_end || { m_judge; return 1; }
        ! m_is_over && ! m_is_paused || return 1
    done
}

m_another_serves() { # a link of this service is ready, and runs
    m_is_service || return 1
    m_read_last_writer
    [ "${m_owner_job:-$m_job}" != "$m_job" ] && [ -e "$m_dir/ready.$m_owner_seg" ] || return 1
    m_look_at=0
    ! m_gone "$m_owner_job" "$m_owner_seg"
}

m_note_never_ready() { # beside no link that serves. It ran for long enough
    m_is_service && [ "$m_how" != paused ] && [ ! -e "$m_dir/ready.$m_seg" ] && [ ! -e "$m_dir/unready.$m_seg" ] || return 0
    [ $((m_end - m_run_from)) -lt "$m_patience" ] ||
        m_give_up "the service was not ready in the $((m_end - m_run_from)) s for which it ran: look at $m_check"
}

m_delay_next() { # this link failed beside one that serves: what made it fail may pass, and nodes are not held meanwhile
    [ -n "$m_beside" ] && ! m_is_over && m_id=$(cat "$m_dir/queued.$m_next" 2>/dev/null) || return 0
    m_pause=$(m_in_a_row m_was_beside "$m_seg") # minutes
    [ "$m_pause" -le 5 ] || m_pause=5
    m_until=$((m_pause + (m_end - m_started + 59) / 60)) # after:JOB+MINUTES counts from that job's start
    ! m_slurm scontrol update "JobId=$m_id" "Dependency=afterany:$m_owner_job?after:$m_job+$m_until" >/dev/null 2>&1 ||
        m_say "link $m_owner_seg serves on, and link $m_next starts in $m_pause min, or once that one has ended"
}

# ---- The user's script ----------------------------------------------------------------------------------------------

# A shell starts what it runs in the background with SIGINT and SIGQUIT ignored and cannot take that back; these can.
m_run() { # PROGRAM ARGUMENTS...
    # shellcheck disable=SC2016  # the inner shell and perl expand these
    if env --default-signal=INT,QUIT true 2>/dev/null; then
        exec env --default-signal=INT,QUIT sh -c 'exec "$0" "$@"' "$@"
    elif command -v perl >/dev/null; then
        exec perl -e '$SIG{INT} = $SIG{QUIT} = "DEFAULT"; exec { $ARGV[0] } @ARGV; exit 127' "$@"
    fi
    exec "$@"
}

# Slurm signals this shell alone (--signal=B:, scancel --batch), its process group (scancel --full), or every process of
# the job (time limit, scancel). The script has only had the last, and must not get it twice. Two processes that do
# nothing tell which it was by who still lives: the canary is of this shell's group, the stray of no group but its own.
m_start_canary() {
    m_run sleep 2147483647 </dev/null >/dev/null 2>&1 3<&- &
    m_canary=$! m_stray=''
    [ -n "$m_session" ] || return 0
    m_run "$m_session" sleep 2147483647 </dev/null >/dev/null 2>&1 3<&- &
    m_stray=$!
}

# On a busy node a process that has been sent its end may wait for its turn to die: then the signal is pending.
m_alive() { # PID: running, no zombie, and not about to die
    kill -0 "$1" 2>/dev/null || return 1
    m_state=$(sed -n -e 's/^State:[[:space:]]*Z.*/over/p' -e 's/^ShdPnd:[[:space:]0]*[1-9a-f].*/over/p' "/proc/$1/status" 2>/dev/null)
    [ -z "$m_state" ]
}

# The script leads a session, and so a process group, as a batch script does under slurmstepd: a `kill 0` in it reaches
# neither this shell nor the canary. But proctrack/pgid ends a job by its process group: there the script stays in it.
m_settle_session() { # sets m_session
    m_session=''
    case $(m_slurm scontrol show config 2>/dev/null) in *proctrack/pgid*) return 0 ;; esac
    ! command -v setsid >/dev/null || m_session=setsid
}

# slurmstepd kills what a batch script leaves behind. It must not write beside the next link, which starts soon.
m_end_session() {
    [ -n "$m_session" ] && [ -z "$m_swept" ] || return 0
    kill -s KILL -- "-$m_script" 2>/dev/null || :
    for m_entry in /proc/[0-9]*/stat; do # `set -m` gives each of the script's children a group of its own
        read -r m_line <"$m_entry" || continue
        # shellcheck disable=SC2086  # state, parent, group, session
        set -- ${m_line##*) }
        m_entry=${m_entry%/stat}
        [ "$4" != "$m_script" ] || kill -s KILL "${m_entry#/proc/}" || :
    done 2>/dev/null
}

# Job steps that the script did not wait for have the time to save that slurmstepd gives them.
m_look_at_steps() { # sets m_left_steps: some still run, or Slurm does not say
    [ -z "$m_swept" ] && m_has_slurm || return 0
    for m_try in 1 2 3; do
        m_left_steps=1
        m_shown=$(m_slurm squeue -h -a -s -j "$m_job" -o %i 2>/dev/null) || return 0
        case $m_shown in *"$m_job".[0-9]*) ;; *) m_left_steps=''; return 0 ;; esac
        sleep 0.5 2>/dev/null || sleep 1
    done
}

m_pass_on() { # SIGNAL CANARY STRAY: fails if the whole job had the signal
    sleep 0.2 2>/dev/null || sleep 1
    if m_alive "$2"; then
        m_to=$m_child
    elif [ -n "$3" ] && m_alive "$3"; then
        m_to=-$m_child
    else
        return 1
    fi
    kill -s "$1" -- "$m_to" 2>/dev/null
    # shellcheck disable=SC2086  # one or two
    kill -s KILL $2 $3 2>/dev/null
    return 0
}

m_on_signal() { # SIGNAL: only forks, so that m_wait does not miss anything
    m_signals_seen=$((m_signals_seen + 1))
    if [ -z "$m_child" ]; then
        m_early="$m_early $1"
        return
    fi
    m_pass_on "$1" "$m_canary" "$m_stray" &
    [ "$1" != TERM ] || m_terms="$m_terms $!"
    [ "$1" != TERM ] || rm -f "$m_dir/endpoint.$m_seg" &
    [ "$1" != TERM ] || m_say_if_cut & # now: the script may not heed it, and then all is killed after KillWait
    m_start_canary
}

# The script can die of a signal to the whole job before this shell has had it. Then the canary dies too.
m_look_at_canary() {
    [ "$m_code" -eq 143 ] && [ -z "$m_terms" ] || return 0
    m_first=$m_canary
    for m_try in 1 2 3 4 5; do
        if ! m_alive "$m_first"; then m_swept=1; return; fi
        sleep 0.2 2>/dev/null || sleep 1
    done
}

m_is_swept() { # Slurm has ended the job: every process had SIGTERM
    [ -z "$m_swept" ] || return 0
    for m_passer in $m_terms; do
        wait "$m_passer" || return 0
    done
    return 1
}

m_watch_signals() {
    m_signals_seen=0 m_early='' m_terms=''
    for m_signal in $m_signals; do
        # shellcheck disable=SC2064  # the name is meant now
        trap "m_on_signal $m_signal" "$m_signal"
    done
}

m_ignore_signals() { # meant for the user's script, not for what runs beside it
    # shellcheck disable=SC2064  # the name is meant now
    for m_signal in $m_signals; do trap '' "$m_signal"; done
}

m_start() { # ARGUMENTS...: again, where a service died
    rm -f "$m_dir/.up.$m_job" "$m_dir/.hung.$m_job"
    ! m_is_service || { m_settle_port; m_settle_check; }
    export MIRAGE_CHAIN_ID="$m_chain" MIRAGE_SEGMENT="$m_seg" MIRAGE_SEGMENTS="$m_segments" MIRAGE_PRED_JOBID="$m_pred"
    export MIRAGE_CHAIN_DIR="$m_dir" MIRAGE_DONE_FILE="$m_done_file" MIRAGE_READY_FILE="$m_dir/ready.$m_seg"
    export MIRAGE_SCRIPT="$m_source"
    m_start_canary
    m_run_from=$(m_now)
    m_work=${m_work:-$m_run_from}
    m_run_script "$@" <&3 3<&- &
    m_child=$! m_script=$!
    [ -z "$m_took_from" ] || m_note "$m_took_from" to "$m_seg"
    for m_signal in $m_early; do m_on_signal "$m_signal"; done
    m_early=''
    if m_is_service; then m_watch_service & m_helper=$!; fi
}

m_wait() { # sets m_code. A signal interrupts `wait`, and whether it did cannot be seen from its status alone
    while :; do
        m_seen=$m_signals_seen
        wait "$m_child"
        m_code=$?
        if [ "$m_seen" -eq "$m_signals_seen" ] || [ "$m_code" -le 128 ]; then return; fi
        # bash (5.2) can lose a child that ends just as a signal comes, and would wait for it for ever. This happens
        # only when the whole job is signalled; then the signal stands in for the script's exit code.
        kill -0 "$m_child" 2>/dev/null || return
    done
}

m_stop_helpers() {
    m_child=''
    # A shell that was forked a moment ago can lose any other signal.
    # shellcheck disable=SC2086  # one or two
    kill -s KILL $m_canary $m_stray 2>/dev/null
    [ -z "$m_helper" ] || kill -s KILL "$m_helper" 2>/dev/null
}

# ---- The end --------------------------------------------------------------------------------------------------------

# A program that exits with 0 there has saved or is finished: only the done-file tells the two apart.
m_left_at_signal() { # it died of the user's own --signal near its time limit, or exited with 0 there
    [ "$m_limit_signal" -gt 0 ] || return 1
    [ "$m_code" -eq 0 ] || [ "$m_code" -eq $((128 + m_limit_signal)) ] || return 1
    m_left=$(m_seconds_left) || return 1
    [ "$m_left" -le "$m_limit_lead" ] # with Slurm's slack
}

m_asked_by() { m_read "handover.$m_seg" job; } # who asked this link to end

m_judge() { # sets m_how, m_swept and m_at_signal
    ! m_is_swept && ! m_is_taken_back || m_swept=1
    case $(m_asked_by) in
        '') ;;
        pause | scale) m_how=paused; return 0 ;;
        *) m_how=handover; return 0 ;;
    esac
    [ -n "$m_swept" ] || ! m_left_at_signal || m_at_signal=1
    if [ -n "$m_swept$m_at_signal" ]; then m_how="slurm"; else m_how="exit"; fi
    if [ -e "$m_dir/unready.$m_seg" ] || [ -e "$m_dir/.hung.$m_job" ]; then # it was told to end, which is no success
        [ "$m_code" -ne 0 ] || m_code=1
    fi
}

m_record() { # HOW
    m_end=$(m_now)
    until m_error=$(m_write "link.$m_seg" "job=$m_job
restart=$m_restart
start=$m_started
work=${m_work:-$m_end}
end=$m_end
exit=$m_code
how=$1
swept=$m_swept${m_left_steps:+
steps=$m_left_steps}${m_beside:+
beside=$m_beside}" 2>&1); do
        # Slurm may end this job soon, and the next link can tell without the record, so it is tried for a shorter time.
        if [ $(($(m_now) - m_end)) -ge "$m_record_patience" ]; then
            m_say "how this link ended is not recorded: cannot write to $m_dir ($m_error)"
            return
        fi
        sleep 5
    done
}

m_add_reason() { # to the record. Afterwards, since slurmctld may be slow, and Slurm ends this job soon
    [ -n "$m_swept" ] || return 0
    m_own %r
    [ -z "$m_shown" ] || m_write "link.$m_seg" "$(cat "$m_dir/link.$m_seg")
reason=$m_shown" 2>/dev/null || :
}

m_conclude() { # HOW ARGUMENTS...: ends the chain, or makes sure that it goes on
    m_ending=$1
    shift
    m_read_last_writer
    [ "${m_owner_seg:-0}" -le "$m_seg" ] || m_ending=handover
    if m_is_over; then
        m_reason=''
    elif [ "$m_ending" = exit ] && m_verdict "$m_seg" && [ -n "$m_reason" ]; then
        m_say "$m_reason: the chain ends here"
        m_mark failed "$m_reason"
    elif m_is_done_by_exit; then
        m_mark "done" "link $m_seg ended by itself with exit code 0, and the chain has no --segments and no --total-time"
    elif m_is_last && [ -e "$m_dir/unready.$m_seg" ]; then
        m_mark failed "link $m_seg, the last one: $(cat "$m_dir/unready.$m_seg")"
    elif [ "$m_ending" = exit ] && m_is_last; then
        m_mark "done" "all $m_segments links have run"
        # mirage extend writes the length and looks for the mark then; this looks the other way round.
        if ! m_is_last && grep -q '^all [0-9]* links have run$' "$m_dir/done"; then
            rm -f "$m_dir/done"
            m_conclude "$m_ending" "$@"
            return
        fi
    elif m_queues_next && ! m_queue_at_end "$@"; then
        m_say "link $m_next could not be queued; \`mirage resume $m_chain\` does it: $m_said"
        m_stranded=1
    fi
    m_is_over || return 0
    m_follow_up
    m_cancel_rest
}

# A link of a chain with a length may be one of several that end so. A signal that was passed on may be why it ended.
m_is_done_by_exit() {
    [ "$m_ending" = exit ] && [ "$m_code" -eq 0 ] && [ "$m_signals_seen" -eq 0 ] || return 1
    ! m_is_service || [ -e "$m_dir/ready.$m_seg" ] || return 1 # it left its server in the background, say
    [ "$m_limit_signal" -eq 0 ] || m_seconds_left >/dev/null || return 1 # else nobody knows whether it had its signal
    m_read_length
    [ "$m_length" = "done" ]
}

m_say_if_not_ready() { # a training program that took over from a running link
    [ -n "$m_took_from" ] && ! m_is_service && [ ! -e "$m_dir/ready.$m_seg" ] || return 0
    m_say "what this handover cost is not known, since the program did not create \$MIRAGE_READY_FILE after its start:" \
        "the chain goes on with what it knew (--handover-cost, else 10 min, at most a tenth of the limit)"
}

m_finish() { # HOW ARGUMENTS...
    m_beside=''
    [ "$1" != exit ] || ! m_another_serves || m_beside=$m_owner_seg
    m_record "$1"
    m_stop_queuing
    m_conclude "$@"
    m_delay_next
    m_notify_end
    [ -z "$m_stranded" ] || [ -z "$m_notify_command" ] ||
        m_notify failed "link $m_next could not be queued; mirage resume $m_chain does it" 0
    m_note_down
    m_add_reason
    m_report_used_up "$1"
    rm -f "$m_dir/.sbatch.$m_job" "$m_dir/.up.$m_job" "$m_dir/.hung.$m_job"
    m_set_exit_code "$m_code"
    exit "$m_exit_code"
}

# ---- The link -------------------------------------------------------------------------------------------------------

m_main() { # SEGMENT PREDECESSOR ARGUMENTS...
    case ${1:+${2:+$1$2}} in
        '' | *[!0-9]*)
            m_say "this is the job script of chain $m_chain, not a script to submit: yours is $m_source"
            exit 2
            ;;
    esac
    m_seg=$1 m_pred=$2 m_next=$(($1 + 1)) m_job=$SLURM_JOB_ID m_restart=${SLURM_RESTART_COUNT:-0} m_started=$(m_now)
    m_child='' m_before='' m_deaths=0 m_took_from='' m_queuer='' m_helper='' m_work='' m_look_at=0 m_swept='' m_at_signal='' m_cannot_wait='' m_unwritten='' m_saved='' m_stranded='' m_left_steps=''
    m_asked_port='' m_asked_check='' m_unlisted='' m_serves='' m_was_up='' m_ready_since='' m_seen_ready='' m_died='' m_down_before='' # of a service that was started again
    shift 2
    m_watch_signals
    m_read_length
    m_leave_if_over
    m_read_last_writer
    m_leave_if_superseded
    m_leave_if_paused
    m_look_back
    m_is_service || m_notify_interrupted "$m_started" &
    m_sum_up_runs
    rm -f "$m_dir/link.$m_seg" "$m_dir/handover.$m_seg" "$m_dir/ready.$m_seg" "$m_dir/unready.$m_seg" \
        "$m_dir/endpoint.$m_seg" "$m_dir/draining.$m_seg".* # of this link before it was requeued
    m_write_soon "start.$m_seg" "job=$m_job
restart=$m_restart
ran=$m_ran
part=$m_ran_part
start=$m_started
out=$(readlink "/proc/$$/fd/1")
err=$(readlink "/proc/$$/fd/2")" || m_leave 143 "asked to end before the work began"
    m_settle_length
    if [ "$m_pred" -gt 0 ] && m_gone "$m_pred" $((m_seg - 1)); then m_leave_if_broken; fi
    if [ "$m_up_front" -eq 0 ]; then m_queue_next "$@" & m_queuer=$!; fi
    exec 3<&0
    m_is_service || m_take_over || : # fails if this link must end
    if m_must_end; then
        m_say "asked to end before the work began"
        m_code=143
        m_finish early "$@"
    fi
    m_settle_session
    while :; do
        m_start "$@"
        m_wait
        rm -f "$m_dir/endpoint.$m_seg"
        m_end=$(m_now)
        m_look_at_canary
        m_stop_helpers
        m_judge
        m_end_session
        m_look_at_steps
        m_note_death
        m_starts_again || break
    done
    m_say_if_not_ready
    m_note_never_ready
    m_finish "$m_how" "$@"
}

m_outside() { # queue SEGMENT PREDECESSOR, ask JOB SEGMENT, or reaches LENGTH SEGMENT
    m_read_length
    if [ "$1" = reaches ]; then
        m_job=0 m_length=$2 m_seg=$3
        m_reaches
        exit
    fi
    if [ "$1" = queue ]; then
        for m_name in $(env | sed -n 's/^\(SBATCH_[A-Z_]*\)=.*/\1/p'); do unset "$m_name"; done
        m_job=outside.$$
        m_with_arguments m_submit_as_paused "$2" "$3"
        m_code=$?
        cat "$m_dir/.sbatch.$m_job" >&2
        rm -f "$m_dir/.sbatch.$m_job"
        [ "$m_code" -ne 0 ] || echo "$m_id"
        exit "$m_code"
    fi
    m_job=${4:-pause}
    [ "$m_handover_signal" != none ] || { m_say "its chain has --handover-signal none"; exit 1; }
    m_ask "$2" "$3"
}

case $1 in
    follow-up)
        m_job=0
        m_follow_up
        m_code=$?
        rm -f "$m_dir/.sbatch.$m_job"
        exit "$m_code"
        ;;
    queue | ask | reaches) m_outside "$@" ;;
    *) m_main "$@" ;;
esac
