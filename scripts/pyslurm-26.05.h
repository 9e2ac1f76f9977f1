/* What Slurm 26.05 has otherwise than 25.11, for PySlurm 25.11 (scripts/pyslurm-up): jobs are named by a step's id. */
#include <slurm/slurm.h>

static inline slurm_step_id_t whole_job(uint32_t job_id)
{
    slurm_step_id_t step = SLURM_STEP_ID_INITIALIZER;
    step.job_id = job_id;
    return step;
}

#define slurm_load_job(answer, job_id, flags) slurm_load_job(answer, whole_job(job_id), flags)
#define slurm_kill_job(job_id, signal, flags) slurm_kill_job(whole_job(job_id), signal, flags)
#define slurm_suspend(job_id) slurm_suspend(whole_job(job_id))
#define slurm_resume(job_id) slurm_resume(whole_job(job_id))
#define slurm_requeue(job_id, flags) slurm_requeue(whole_job(job_id), flags)
#define slurm_notify_job(job_id, text) slurm_notify_job(whole_job(job_id), text)
#define slurm_free_ctl_conf(configuration) slurm_free_conf(configuration)
