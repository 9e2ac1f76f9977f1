/* LD_PRELOAD: the wall clock of a whole machine's Slurm, faster than real by a constant factor. Built by scripts/soak.
 *
 * CLOCK_REALTIME runs SPEED times as fast, from the moment at which the clock's file was made, plus a step that
 * scripts/soak changes to make the clock jump. Waits for a time of it are as much shorter: sleep, usleep, nanosleep,
 * pthread_cond_timedwait. CLOCK_MONOTONIC stays as it is, since what is measured by it bounds work (time-outs of
 * commands and of connections), and a machine does not work faster because its clock does. One wait is on that clock
 * and not for work: Python's, for the next cycle. Those of a minute and more are shortened too.
 *
 * SOAK_CLOCK: the file, four doubles: CLOCK_MONOTONIC and Unix time at its making, the speed, the step.
 * SOAK_REAL_BELOW: sleeps shorter than this are left alone. Jobs sleep so to let other processes do something.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct soak { double monotonic0, unix0, speed; volatile double step; };
static const struct soak *soak;
static double real_below;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SOAK_CLOCK"), *below = getenv("SOAK_REAL_BELOW");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(0, sizeof *soak, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) soak = page;
    real_below = below ? atof(below) : 0;
}

static double seconds(const struct timespec *t) { return t->tv_sec + t->tv_nsec * 1e-9; }

static struct timespec timespec_of(double s) {
    struct timespec t = {(time_t)s, 0};
    t.tv_nsec = (long)((s - t.tv_sec) * 1e9);
    return t;
}

static double real(clockid_t clock) {
    struct timespec t;
    syscall(SYS_clock_gettime, clock, &t);
    return seconds(&t);
}

static double now(void) {
    if (!soak) return real(CLOCK_REALTIME);
    return soak->unix0 + (real(CLOCK_MONOTONIC) - soak->monotonic0) * soak->speed + soak->step;
}

static double shorter(double s) { return soak && s > 0 && s >= real_below ? s / soak->speed : s; }

int clock_gettime(clockid_t clock, struct timespec *t) {
    if (!soak || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return syscall(SYS_clock_gettime, clock, t);
    *t = timespec_of(now());
    return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    (void)zone;
    struct timespec s = timespec_of(now());
    t->tv_sec = s.tv_sec;
    t->tv_usec = s.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t) {
    time_t s = (time_t)now();
    if (t) *t = s;
    return s;
}

int timespec_get(struct timespec *t, int base) {
    if (base != TIME_UTC) return 0;
    *t = timespec_of(now());
    return base;
}

int nanosleep(const struct timespec *wanted, struct timespec *left) {
    struct timespec t = timespec_of(shorter(seconds(wanted))), rest;
    if (syscall(SYS_nanosleep, &t, &rest) == 0) return 0;
    if (left) *left = timespec_of(seconds(&rest) * (soak ? seconds(wanted) / (seconds(&t) + 1e-9) : 1));
    return -1;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left) {
    if (flags) {
        if (clock != CLOCK_REALTIME) return syscall(SYS_clock_nanosleep, clock, flags, wanted, left) ? errno : 0;
        double s = shorter(seconds(wanted) - now());
        struct timespec t = timespec_of(s > 0 ? s : 0);
        return syscall(SYS_nanosleep, &t, 0) ? errno : 0;
    }
    return nanosleep(wanted, left) ? errno : 0;
}

int usleep(useconds_t us) {
    struct timespec t = timespec_of(us * 1e-6);
    return nanosleep(&t, 0);
}

unsigned sleep(unsigned s) {
    struct timespec t = {s, 0}, left;
    return nanosleep(&t, &left) ? (unsigned)left.tv_sec : 0;
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*original)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!original) original = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!soak || until->tv_sec < 1000000000) return original(cond, mutex, until); /* on CLOCK_MONOTONIC */
    struct timespec t = timespec_of(real(CLOCK_REALTIME) + shorter(seconds(until) - now()));
    return original(cond, mutex, &t);
}

int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until) {
    static int (*original)(sem_t *, clockid_t, const struct timespec *);
    if (!original) original = dlsym(RTLD_NEXT, "sem_clockwait");
    double left = seconds(until) - real(CLOCK_MONOTONIC);
    if (!soak || clock != CLOCK_MONOTONIC || left < 60) return original(sem, clock, until);
    struct timespec t = timespec_of(real(CLOCK_MONOTONIC) + left / soak->speed);
    return original(sem, clock, &t);
}
