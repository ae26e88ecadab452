"""Shapes of DeepSeek-V4.1-Flash (public checkpoint revision dba1be0a) that the kernels are built for."""

HIDDEN = 5120
STREAMS = 4
MIX = 24  # 4 pre, 4 post, 16 of the stream matrix
EXPERTS = 384
TOP = 6
Q_LORA = 1280
HEADS, HEAD = 64, 512
O_GROUPS, O_LORA = 8, 1024
O_GROUP_K = HEADS // O_GROUPS * HEAD  # columns of a group's wo_a
VOCABULARY = 129280
KV = 512
ROPE = 64
SINKHORN_STEPS = 20
HC_EPS = 1e-6
RMS_EPS = 1e-20  # the checkpoint's; never 1e-6
ROUTE_SCALE = 1.5
LAYERS = 40
SUBLAYERS = 2 * LAYERS

# Limits of the built kernels (rows of one launch).
BOUNDARY_ROWS = 4096
STATS_ROWS = 256
GATE_ROWS = 256
QKV_ROWS = 4096

# Paged KV cache: (data bytes, scale bytes, page alignment) of a token, by layout name.
KV_LAYOUTS = {"v4": (576, 8, 576), "v41": (512, 16, 512)}


def kv_page_bytes(layout: str, page_size: int) -> int:
    """Bytes of one cache page of ``page_size`` tokens, padded to the layout's row stride."""
    data, scale, align = KV_LAYOUTS[layout]
    return -(-page_size * (data + scale) // align) * align
