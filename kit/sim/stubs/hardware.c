/* See hardware.h. */
#define _POSIX_C_SOURCE 200809L
#include "hardware.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *place(const char *variable, const char *usual)
{
    const char *value = getenv(variable);
    return value && *value ? value : usual;
}

static const char *facts_file(void) { return place("SIM_GPUS_FACTS", "/opt/sim/gpus.conf"); }
static const char *state_folder(void) { return place("SIM_GPUS_STATE", "/run/sim/gpus"); }
static const char *log_file(void) { return place("SIM_GPUS_LOG", "/var/log/sim-gpu-writes.log"); }

static void full_key(char *out, size_t size, int gpu, const char *key)
{
    if (gpu < 0)
        snprintf(out, size, "system.%s", key);
    else
        snprintf(out, size, "gpu.%d.%s", gpu, key);
}

static void chomp(char *text)
{
    size_t length = strlen(text);
    while (length && (text[length - 1] == '\n' || text[length - 1] == ' '))
        text[--length] = '\0';
}

/* 1 when the state folder has the key. */
static int from_state(const char *key, char *out, size_t size)
{
    char path[512];
    FILE *file;
    int got;

    snprintf(path, sizeof path, "%s/%s", state_folder(), key);
    file = fopen(path, "re");
    if (!file)
        return 0;
    got = fgets(out, (int)size, file) != NULL;
    fclose(file);
    if (got)
        chomp(out);
    return got;
}

/* 1 when the facts have the key; a GPU's own line beats the one for all. */
static int from_facts(const char *own, const char *common, char *out, size_t size)
{
    static char line[SIM_TEXT];
    int found = 0;
    FILE *file = fopen(facts_file(), "re");

    if (!file)
        return 0;
    while (fgets(line, sizeof line, file)) {
        char *value = strchr(line, ' ');
        if (!value)
            continue;
        *value++ = '\0';
        chomp(value);
        if (strcmp(line, own) == 0 || (found == 0 && common && strcmp(line, common) == 0)) {
            found = strcmp(line, own) == 0 ? 2 : 1;
            snprintf(out, size, "%s", value);
            if (found == 2)
                break;
        }
    }
    fclose(file);
    return found != 0;
}

static int lookup(int gpu, const char *key, char *out, size_t size, int with_state)
{
    char own[128], common[128];

    full_key(own, sizeof own, gpu, key);
    snprintf(common, sizeof common, "gpu.*.%s", key);
    if (!(with_state && from_state(own, out, size)) && !from_facts(own, gpu < 0 ? NULL : common, out, size))
        return SIM_NOT_SUPPORTED;
    if (strcmp(out, "unsupported") == 0)
        return SIM_NOT_SUPPORTED;
    if (strncmp(out, "error ", 6) == 0)
        return atoi(out + 6);
    return SIM_OK;
}

int sim_text(int gpu, const char *key, char *out, size_t size) { return lookup(gpu, key, out, size, 1); }

static int number(int gpu, const char *key, long long *out, int with_state)
{
    char text[SIM_TEXT], *end;
    int code = lookup(gpu, key, text, sizeof text, with_state);

    if (code != SIM_OK)
        return code;
    *out = strtoll(text, &end, 0);
    return *end || end == text ? SIM_UNKNOWN : SIM_OK;
}

int sim_number(int gpu, const char *key, long long *out) { return number(gpu, key, out, 1); }

int sim_number_at_boot(int gpu, const char *key, long long *out) { return number(gpu, key, out, 0); }

static void log_change(const char *function, const char *key, const char *value)
{
    char line[512], when[32];
    time_t now = time(NULL);
    struct tm utc;
    int file = open(log_file(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

    if (file < 0)
        return;
    gmtime_r(&now, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(line, sizeof line, "%s pid=%ld %s %s=%s\n", when, (long)getpid(), function, key, value ? value : "(reset)");
    if (write(file, line, strlen(line)) < 0)
        perror("simulated GPU write log");
    close(file);
}

int sim_change(int gpu, const char *key, const char *value, const char *function)
{
    char own[128], path[512], fresh[560];
    FILE *file;

    if (geteuid() != 0)
        return SIM_NO_PERMISSION;
    full_key(own, sizeof own, gpu, key);
    snprintf(path, sizeof path, "%s/%s", state_folder(), own);
    if (!value) {
        if (unlink(path) != 0 && errno != ENOENT)
            return SIM_OPERATING_SYSTEM;
    } else {
        snprintf(fresh, sizeof fresh, "%s.%ld", path, (long)getpid());
        file = fopen(fresh, "we");
        if (!file)
            return SIM_OPERATING_SYSTEM;
        fprintf(file, "%s\n", value);
        if (fclose(file) != 0 || rename(fresh, path) != 0)
            return SIM_OPERATING_SYSTEM;
    }
    log_change(function, own, value);
    return SIM_OK;
}

void sim_enter(const char *function)
{
    char name[128];
    long long delay;

    if (sim_text(-1, "hang", name, sizeof name) == SIM_OK && (strcmp(name, "*") == 0 || strcmp(name, function) == 0))
        for (;;)
            pause();
    if (sim_number(-1, "delay_ms", &delay) == SIM_OK && delay > 0) {
        struct timespec pause_for = {delay / 1000, (delay % 1000) * 1000000L};
        nanosleep(&pause_for, NULL);
    }
}
