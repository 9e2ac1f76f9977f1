"""Which parameters Slurm 22.05 has (`slurm.conf(5)`), and what the ones that are not simulated
would do.

Those that are used stand where they are used: `scheduler.py`, `slurm_conf.py`. Names are in lower
case.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurm_sim.clusters.notes import Entry, Note

Differences = Mapping[str, tuple[str, str]]
"""Name -> (values with which it does nothing, separated by blanks; what it would do)."""


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def _typed(bits: int | None, text: str) -> dict[str, int | None]:
    return dict.fromkeys(text.split(), bits)


_MEMORY = "jobs ask for their memory themselves here; give it in the job's memory_mib_per_node"
_SCRIPT = "the time that it takes on the nodes is not simulated"
_WHO = "who may use it is not checked; every user may"
_POWER = "nodes are never powered down here, so none has to boot"
_LIMIT = "jobs above this limit are not refused"
_LESS = "jobs get the whole node, also what is kept back for the system"

GLOBAL_DIFFERENCES: Differences = {
    "burstbuffertype": ("burst_buffer/none", "burst buffers and the time to stage data"),
    "completewait": ("0", "nodes of an ended job are free at once"),
    "defcpupergpu": (
        "0",
        "jobs ask for their CPUs themselves here; give them in the job's cpus_per_node",
    ),
    "defmempergpu": ("0 unlimited", _MEMORY),
    "dependencyparameters": ("", "how dependencies that cannot be fulfilled are dealt with"),
    "enforcepartlimits": (
        "all any yes up true 1",
        "jobs over a limit of their partition are refused, as with ALL",
    ),
    "epilog": ("", _SCRIPT),
    "epilogslurmctld": ("", _SCRIPT),
    "fairsharedampeningfactor": ("1", "the fair-share factor is not dampened"),
    "federationparameters": ("", "jobs do not move between clusters"),
    "jobdefaults": ("", _MEMORY),
    "jobrequeue": ("1", "whether a job is requeued is the job's own here: give requeue=False"),
    "jobsubmitplugins": ("", "it may change or refuse jobs; here they are taken as they are"),
    "licenses": ("", "licenses that jobs share"),
    "maxjobcount": ("", "submissions above it are not refused"),
    "maxmempercpu": ("0 unlimited", _LIMIT),
    "maxmempernode": ("0 unlimited", _LIMIT),
    "mcsplugin": ("mcs/none", "who may share nodes"),
    "nodefeaturesplugins": ("", "features that nodes change by rebooting"),
    "powerplugin": ("power/none", "power caps"),
    "preemptexempttime": ("0 -1 00:00:00 none", "no job is preempted"),
    "preemptmode": ("off", "no job is preempted, suspended or time-sliced (gang scheduling)"),
    "preempttype": ("preempt/none", "no job is preempted"),
    "prioritysitefactorplugin": ("site_factor/none", "a factor of the site's own in the priority"),
    "priorityusageresetperiod": ("none", "usage is only reduced by its half-life"),
    "priorityweightassoc": ("0", "no association's own priority"),
    "prolog": ("", _SCRIPT),
    "prologslurmctld": ("", _SCRIPT),
    "requeueexit": ("", "an exit code requeues no job"),
    "requeueexithold": ("", "an exit code requeues no job"),
    "resumeprogram": ("", _POWER),
    "resvoverrun": ("0", "jobs of a reservation end with it"),
    "suspendprogram": ("", _POWER),
    "suspendtime": ("-1 infinite none", _POWER),
    "topologyparam": ("", "which nodes a job gets does not depend on the network"),
    "topologyplugin": (
        "topology/none topology/default",
        "which nodes a job gets does not depend on the network",
    ),
    "trackwckey": ("no 0", "keys for accounting are not checked"),
}

OPTION_DIFFERENCES: Differences = {
    "assoc_limit_stop": ("", "a job over its limits does not stop those behind it"),
    "bf_licenses": ("", "licenses"),
    "bf_max_time": ("", "a pass takes no time, so it always gets to its end"),
    "bf_running_job_reserve": ("", "no reservations for running jobs beyond their nodes' ends"),
    "max_rpc_cnt": ("0", "passes are not put off under load"),
    "max_sched_time": ("", "a pass takes no time, so it always gets to its end"),
    "max_switch_wait": ("", "no network topology"),
    "pack_serial_at_end": ("", "jobs of one CPU are placed like others"),
    "preempt_reorder_count": ("", "no job is preempted"),
    "preempt_strict_order": ("", "no job is preempted"),
    "preempt_youngest_first": ("", "no job is preempted"),
    "reduce_completing_frag": ("", "nodes of an ended job are free at once"),
}

NODE_DIFFERENCES: Differences = {
    "corespeccount": ("0", _LESS),
    "cpuspeclist": ("", _LESS),
    "memspeclimit": ("0", _LESS),
    "tmpdisk": ("0", "jobs do not ask for local disk (--tmp)"),
}

PARTITION_DIFFERENCES: Differences = {
    "allocnodes": ("all", "where jobs are submitted is not known"),
    "allowaccounts": ("all", _WHO),
    "allowgroups": ("all", _WHO),
    "allowqos": ("all", _WHO),
    "alternate": ("", "jobs are not sent to another partition"),
    "defcpupergpu": ("0", GLOBAL_DIFFERENCES["defcpupergpu"][1]),
    "defmempergpu": ("0 unlimited", _MEMORY),
    "denyaccounts": ("", _WHO),
    "denyqos": ("", _WHO),
    "exclusiveuser": ("no", "users may share a node"),
    "gracetime": ("0", "no job is preempted"),
    "jobdefaults": ("", _MEMORY),
    "lln": ("no", "nodes are not chosen by their load"),
    "maxcpuspernode": ("unlimited", _LIMIT),
    "maxcpuspersocket": ("unlimited", _LIMIT),
    "maxmempercpu": ("0 unlimited", _LIMIT),
    "maxmempernode": ("0 unlimited", _LIMIT),
    "preemptmode": ("off", "no job is preempted, suspended or time-sliced (gang scheduling)"),
    "reqresv": ("no", "jobs need no reservation"),
    "resumetimeout": ("", _POWER),
    "rootonly": ("no", _WHO),
    "selecttypeparameters": (
        "none",
        "the cluster's own SelectTypeParameters holds in every partition",
    ),
    "suspendtime": ("-1 infinite none", _POWER),
    "suspendtimeout": ("", _POWER),
}

NODE_NO_EFFECT = names("nodeaddr nodehostname bcastaddr port reason cpubind tresweights")
PARTITION_NO_EFFECT = names("hidden disablerootjobs cpubind")

OPTION_NO_EFFECT = names("""
    allow_zero_lic bb_array_stage_cnt bf_continue bf_hetjob_immediate bf_hetjob_prio
    bf_yield_interval bf_yield_sleep build_queue_timeout correspond_after_task_cnt delay_boot disable_hetjob_steps
    disable_job_shrink enable_hetjob_steps enable_user_top ignore_numa ignore_prefer_validation max_array_tasks
    max_script_size no_backup_scheduling no_env_cache nohold_on_prolog_fail requeue_setup_env_fail salloc_wait_nodes
    sbatch_wait_nodes spec_cores_first step_retry_count step_retry_time whole_hetjob whole_pack
    """)

GLOBAL_NO_EFFECT = names("""
    accountingstoragebackuphost accountingstorageexternalhost accountingstoragehost accountingstorageparameters
    accountingstoragepass accountingstorageport accountingstoragetres accountingstorageuser accountingstoreflags
    acctgatherenergytype acctgatherfilesystemtype acctgatherinterconnecttype acctgathernodefreq acctgatherprofiletype
    allowspecresourcesusage authaltparameters authalttypes authtype backupaddr backupcontroller batchstarttimeout
    bcastexclude bcastparameters boot_time clifilterplugins communicationparameters
    cryptotype keepalivetime sbcastparameters acctgatherinfinibandtype burstbufferparameters  controladdr controlmachine
    corespecplugin cpufreqdef cpufreqgovernors credtype debugflags disablerootjobs eiotimeout
    epilogmsgtime extsensorsfreq extsensorstype firstjobid getenvtimeout gpufreqdef grestypes groupupdateforce
    groupupdatetime hash_val healthcheckinterval healthchecknodestate healthcheckprogram inactivelimit
    interactivestepoptions jobacctgatherfrequency jobacctgatherparams jobacctgathertype jobcomphost jobcomploc
    jobcompparams jobcomppass jobcompport jobcomptype jobcompuser jobcontainertype jobcredentialprivatekey
    jobcredentialpubliccertificate jobfileappend killonbadexit launchparameters launchtype logtimeformat
    maildomain mailprog maxarraysize maxdbdmsgs maxjobid maxnodecount maxstepcount maxtaskspernode mcsparameters
    messagetimeout mpidefault mpiparams multiple_slurmd next_job_id plugindir plugstackconfig powerparameters
    prepparameters prepplugins priorityparameters prioritysitefactorparameters privatedata proctracktype
    prologepilogtimeout prologflags propagateprioprocess propagateresourcelimits propagateresourcelimitsexcept
    rebootprogram reconfigflags resumefailprogram resumerate resumetimeout resvepilog resvprolog returntoservice
    routeplugin schedulertimeslice scronparameters slurm_conf slurm_version slurmctldaddr slurmctlddebug slurmctldhost
    slurmctldlogfile slurmctldparameters slurmctldpidfile slurmctldplugstack slurmctldport slurmctldprimaryoffprog
    slurmctldprimaryonprog slurmctldsyslogdebug slurmctldtimeout slurmddebug slurmdlogfile slurmdparameters
    slurmdpidfile slurmdport slurmdspooldir slurmdsyslogdebug slurmdtimeout slurmduser slurmschedlogfile
    slurmschedloglevel slurmuser srunepilog srunportrange srunprolog statesavelocation suspendexcnodes suspendexcparts
    suspendrate suspendtimeout switchparameters switchtype taskepilog taskplugin taskpluginparam taskprolog tcptimeout
    tmpfs treewidth unkillablestepprogram unkillablesteptimeout usepam vsizefactor waittime x11parameters
    """)

NUMBERS: Mapping[str, int | None] = {
    **_typed(
        16,
        """
        accountingstorageport acctgathernodefreq batchstarttimeout completewait eiotimeout extsensorsfreq
        fairsharedampeningfactor getenvtimeout groupupdateforce groupupdatetime healthcheckinterval inactivelimit
        jobfileappend jobrequeue killonbadexit killwait maxtaskspernode messagetimeout overtimelimit
        prologepilogtimeout propagateprioprocess resumerate resumetimeout resvoverrun returntoservice
        schedulertimeslice slurmctldtimeout slurmschedloglevel slurmdtimeout suspendrate suspendtimeout tcptimeout
        treewidth unkillablesteptimeout vsizefactor waittime
        """,
    ),
    **_typed(
        32,
        """
        epilogmsgtime firstjobid jobcompport maxarraysize maxdbdmsgs maxjobcount maxjobid maxnodecount maxstepcount
        minjobage priorityweightage priorityweightassoc priorityweightfairshare priorityweightjobsize
        priorityweightpartition priorityweightqos slurmdport
        """,
    ),
    **_typed(64, "defcpupergpu defmempercpu defmempergpu defmempernode maxmempercpu maxmempernode"),
    **_typed(None, "allowspecresourcesusage disablerootjobs priorityfavorsmall trackwckey usepam"),
}
"""Parameters of the whole cluster that slurmctld reads as numbers of this many bits; None: as YES or
NO.
"""

NODE_NUMBERS: Mapping[str, int | None] = {
    **_typed(
        16, "boards corespeccount corespersocket cpus procs sockets socketsperboard threadspercore"
    ),
    **_typed(32, "tmpdisk weight"),
    **_typed(64, "memspeclimit realmemory"),
}
PARTITION_NUMBERS: Mapping[str, int | None] = {
    **_typed(16, "priority priorityjobfactor prioritytier resumetimeout suspendtimeout"),
    **_typed(32, "gracetime maxcpuspernode maxnodes minnodes"),
    **_typed(64, "defcpupergpu defmempercpu defmempergpu defmempernode maxmempercpu maxmempernode"),
    **_typed(None, "default disablerootjobs exclusiveuser hidden lln reqresv rootonly"),
}

OBSOLETE = names("""
    accountingstorageloc accountingstorejobcomment cachegroups checkpointtype defaultstoragehost
    defaultstorageloc defaultstoragepass defaultstorageport defaultstoragetype defaultstorageuser fastschedule
    jobcheckpointdir jobdefaults memlimitenforce sallocdefaultcommand schedulerauth schedulerport schedulerrootfilter
    """)
"""Of older releases; 22.05 does not take them any more."""
NEWER = names("""
    certgenparameters certgentype certmgrparameters certmgrtype clifilterparameters dataparserparameters epilogtimeout
    hashplugin healthchecktimeout httpparsertype jobcomppassscript licenseparameters maxbatchrequeue metricsauthusers
    metricsparameters metricstype namespacetype preemptparameters prologtimeout slurmctldhttpauthparameters
    slurmdhttpauthparameters suspendexcstates tlsparameters tlstype urlparsertype
    gresconf restrictedcorespergpu powerdownonidle topology
    ll_shared_gres multiple_sharing_gres_pj enforce_binding_gres one_task_per_sharing_gres cr_no_dist_topo_block
    """)
"""Of releases from 23.02 to 26.05, of the cluster, nodes and partitions, and of SelectTypeParameters;
22.05 does not take them yet.
"""
CGROUP_CONF = names("""
    allowedramspace allowedswapspace cgroupautomount cgroupmountpoint constraincores constraindevices
    constrainkmemspace constrainramspace constrainswapspace enablecontrollers ignoresystemd ignoresystemdonfailure
    maxkmempercent maxrampercent maxswappercent memoryswappiness minkmemspace minramspace signalchildrenprocesses
    systemdtimeout taskaffinity
    """)
"""Of cgroup.conf, where they belong."""


def note_on(entry: Entry, differences: Differences, no_effect: frozenset[str]) -> Note:
    """The note on a parameter that is not used."""
    name = entry.key.split("[")[0].lower()
    if name in differences:
        harmless, would = differences[name]
        # scontrol prints some with their unit: "0 sec".
        if entry.value.split(" ")[0].lower() in harmless.split():
            return entry.no_effect("this value asks for nothing that is not simulated")
        return entry.not_simulated(would)
    if name in no_effect:
        return entry.no_effect("it does not influence scheduling as simulated")
    if name in OBSOLETE:
        return entry.no_effect(
            "of an older release; Slurm 22.05 does not take it, nor does it influence scheduling"
            " here"
        )
    if name in NEWER:
        return entry.not_simulated(
            "of a newer release; Slurm 22.05 does not take it, and nothing is known of it here"
        )
    if name in CGROUP_CONF:
        return entry.no_effect("of cgroup.conf; in slurm.conf, Slurm does not take it")
    return entry.unknown()
