/* The parts of NVML's interface that the stub answers, laid out as nvidia-ml-py 13 reads them. */
#ifndef SIM_NVML_H
#define SIM_NVML_H

#include "hardware.h"

struct sim_device {
    int index;
};
typedef struct sim_device *device_t;

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info_t;

typedef struct {
    unsigned long long total, free, used;
} memory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2_t;

typedef struct {
    unsigned version;
    int sensor;
    int temperature;
} temperature_t;

typedef struct {
    unsigned field, scope;
    long long timestamp, latency_us;
    int value_type;
    int result;
    union {
        double d;
        unsigned ui;
        unsigned long long ull;
    } value;
} field_value_t;

typedef struct {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique, state, health_mask;
    unsigned char health_summary;
} fabric_t;

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} process_t;

/* Start a function: delay or hang, then refuse when the library was not initialized. */
int sim_begin(const char *function);

#define BEGIN                                                                                                          \
    do {                                                                                                               \
        int begun = sim_begin(__func__);                                                                               \
        if (begun != SIM_OK)                                                                                           \
            return begun;                                                                                              \
    } while (0)

int sim_unsigned(int gpu, const char *key, unsigned *out);

#endif
