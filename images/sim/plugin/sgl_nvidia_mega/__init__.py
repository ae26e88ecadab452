"""A stand-in for NVIDIA's megakernel plugin: the public contract, no kernel. Simulated images only."""

ARCHITECTURE = "DeepseekV4ForCausalLM"


def register() -> None:
    """The entry point ``nvidia_megakernel``; SGLang calls it once in every process."""
    from sglang.kernels.plugin_kernels.nvidia.spec import register as add

    add(architecture=ARCHITECTURE, path="sgl_nvidia_mega.spec:SPEC")
