#pragma once
// Launch geometry, repeated from sgl_nvidia_mega/config.py.
constexpr int kResidentBlocks = 4 * 38;
constexpr int kThreadsPerBlock = 512;
