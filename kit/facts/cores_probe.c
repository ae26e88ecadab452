/*
 * Core clock from the time that a chain of dependent register adds takes: one add, one cycle.
 *
 *   cores_probe BUDGET_S CPU[,CPU...]      one CPU of each physical core
 *
 * Prints {"cores":[{"cpu":0,"alone_mhz":4600.1,"loaded_mhz":4598.7},...],"seconds":1.2}; null where nothing clean was seen.
 * Bursts of about 0.6 ms fit between timer ticks. A burst during which the thread was switched out is dropped; the best
 * burst of the others counts, since noise only ever slows one down. Each core first alone, then all at the same time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define ADDS_PER_TURN 64L
#define TURNS 28000L /* 1.8 million adds: 0.4 ms at 4.6 GHz, 0.8 ms at 2.3 GHz */
#define WARM_NS 30000000L
#define WINDOW_NS 60000000L
#define LOADED_WARM_NS 150000000L
#define LOADED_WINDOW_NS 200000000L
#define MAX_CPUS 4096

static long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

#if defined(__x86_64__)
#define ADD "add %1, %0\n\t"
#elif defined(__aarch64__)
#define ADD "add %0, %0, %1\n\t"
#else
#error "no add chain for this machine"
#endif
#define ADD4 ADD ADD ADD ADD
#define ADD16 ADD4 ADD4 ADD4 ADD4

/* Register operands: an add of an immediate can be folded away at rename on newer cores, and then takes no time. */
static void chain(void)
{
    unsigned long value = 1, step = 3;
    for (long turn = 0; turn < TURNS; turn++)
        __asm__ volatile(ADD16 ADD16 ADD16 ADD16 : "+r"(value) : "r"(step) : "cc");
}

static long switches(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw + usage.ru_nivcsw;
}

/* Best clean burst in MHz over a window after a warm-up; 0 when there was none. */
static double best_mhz(long warm_ns, long window_ns)
{
    double best = 0;
    long warm_until = now_ns() + warm_ns;
    while (now_ns() < warm_until)
        chain();
    long end = now_ns() + window_ns;
    while (now_ns() < end) {
        long switched = switches();
        long began = now_ns();
        chain();
        long took = now_ns() - began;
        if (switches() != switched || took <= 0)
            continue;
        double mhz = (double)(ADDS_PER_TURN * TURNS) * 1000.0 / (double)took;
        if (mhz > best)
            best = mhz;
    }
    return best;
}

static int pin(int cpu)
{
    size_t size = CPU_ALLOC_SIZE(MAX_CPUS);
    cpu_set_t *set = CPU_ALLOC(MAX_CPUS);
    if (!set)
        return -1;
    CPU_ZERO_S(size, set);
    CPU_SET_S((size_t)cpu, size, set);
    int result = sched_setaffinity(0, size, set);
    CPU_FREE(set);
    return result;
}

struct job {
    int cpu;
    double alone, loaded;
    pthread_t thread;
};

static atomic_int ready;
static atomic_int go;

static void *loaded_job(void *argument)
{
    struct job *job = argument;
    int pinned = pin(job->cpu) == 0;
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&go))
        sched_yield();
    if (pinned)
        job->loaded = best_mhz(LOADED_WARM_NS, LOADED_WINDOW_NS);
    return NULL;
}

static int parse(char *listing, struct job **jobs)
{
    int count = 0;
    *jobs = calloc(MAX_CPUS, sizeof **jobs);
    if (!*jobs)
        return -1;
    for (char *word = strtok(listing, ","); word; word = strtok(NULL, ",")) {
        char *rest;
        long cpu = strtol(word, &rest, 10);
        if (*rest || rest == word || cpu < 0 || cpu >= MAX_CPUS || count == MAX_CPUS)
            return -1;
        (*jobs)[count++].cpu = (int)cpu;
    }
    return count;
}

static void print_mhz(const char *name, double mhz)
{
    if (mhz > 0)
        printf(",\"%s\":%.1f", name, mhz);
    else
        printf(",\"%s\":null", name);
}

int main(int argc, char **argv)
{
    struct job *jobs;
    char *rest = NULL;
    double budget = argc == 3 ? strtod(argv[1], &rest) : 0;
    int count = argc == 3 ? parse(argv[2], &jobs) : -1;
    if (!(budget > 0) || *rest || count <= 0) {
        fprintf(stderr, "usage: cores_probe BUDGET_S CPU[,CPU...]\n");
        return 2;
    }
    long began = now_ns();
    long deadline = began + (long)(budget * 1e9);
    long loaded_ns = LOADED_WARM_NS + LOADED_WINDOW_NS;
    for (int i = 0; i < count; i++) {
        if (now_ns() + loaded_ns + WARM_NS + WINDOW_NS > deadline)
            break;
        if (pin(jobs[i].cpu) == 0)
            jobs[i].alone = best_mhz(WARM_NS, WINDOW_NS);
    }
    if (now_ns() + loaded_ns <= deadline) {
        int started = 0;
        while (started < count && pthread_create(&jobs[started].thread, NULL, loaded_job, &jobs[started]) == 0)
            started++;
        while (atomic_load(&ready) < started)
            sched_yield();
        /* With fewer threads than cores the machine is not loaded: say nothing then. */
        atomic_store(&go, 1);
        for (int i = 0; i < started; i++)
            pthread_join(jobs[i].thread, NULL);
        if (started < count) {
            fprintf(stderr, "could not start %d threads: %s\n", count, strerror(errno));
            return 1;
        }
    }
    printf("{\"cores\":[");
    for (int i = 0; i < count; i++) {
        printf("%s{\"cpu\":%d", i ? "," : "", jobs[i].cpu);
        print_mhz("alone_mhz", jobs[i].alone);
        print_mhz("loaded_mhz", jobs[i].loaded);
        printf("}");
    }
    printf("],\"seconds\":%.3f}\n", (double)(now_ns() - began) / 1e9);
    free(jobs);
    return 0;
}
