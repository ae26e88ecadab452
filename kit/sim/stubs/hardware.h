/* What the simulated GPUs are and what was done to them: shared by the NVML and the CUDA stub.
 *
 * Facts come from one text file ("KEY VALUE" a line, keys "system.X", "gpu.*.X" and, stronger, "gpu.N.X"). What a
 * process changes is one small file a key in a state folder, stronger still, seen by every process; on a simulated
 * host that folder is on a tmpfs, so a reboot loses it as real hardware does. Each write is added to a log.
 *
 * A value "unsupported" makes the call that asks for it answer NOT_SUPPORTED; "error N" makes it answer N.
 * "system.hang FUNCTION" (or *) makes that function never return, "system.delay_ms N" makes each take N ms.
 *
 * Plain C11 with few libc symbols: built on the control machine, whose libc may be newer than the guest's.
 */
#ifndef SIM_HARDWARE_H
#define SIM_HARDWARE_H

#include <stddef.h>

#define SIM_MAX_GPUS 16
#define SIM_TEXT 4096

enum {
    SIM_OK = 0,
    SIM_UNINITIALIZED = 1,
    SIM_INVALID_ARGUMENT = 2,
    SIM_NOT_SUPPORTED = 3,
    SIM_NO_PERMISSION = 4,
    SIM_NOT_FOUND = 6,
    SIM_INSUFFICIENT_SIZE = 7,
    SIM_OPERATING_SYSTEM = 17,
    SIM_VERSION_MISMATCH = 25,
    SIM_UNKNOWN = 999
};

/* Value of a key of one GPU (gpu >= 0) or of the system (gpu < 0); an NVML return code. */
int sim_text(int gpu, const char *key, char *out, size_t size);
int sim_number(int gpu, const char *key, long long *out);
/* The same from the facts alone, without what was changed since boot. */
int sim_number_at_boot(int gpu, const char *key, long long *out);

/* Change a key (root only) and log it as `function`; value NULL forgets the change. */
int sim_change(int gpu, const char *key, const char *value, const char *function);

/* Delay or hang as the facts say; called first in every function. */
void sim_enter(const char *function);

#endif
