// Nextflow with a chain: the process TRAIN starts one and waits for its end.
// train.sbatch has a line `#MIRAGE --segments=5`, and writes model.txt once the work is done.
// Not run by us: see docs/workflows.md.
// The process runs where Nextflow does (executor local) and sleeps.

params.script = "$launchDir/train.sbatch"

process TRAIN {
    executor 'local'
    cpus 1

    output:
    path 'model.txt'

    script:
    """
    job=\$(mirage-sbatch --parsable --chdir="\$PWD" ${params.script})
    mirage wait "\$job"
    """
}

process REPORT {
    input:
    path model

    output:
    path 'report.txt'

    script:
    "wc -c <${model} >report.txt"
}

workflow {
    REPORT(TRAIN())
}
