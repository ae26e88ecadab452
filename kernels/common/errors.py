"""Exceptions of the kernels: a bad argument never reaches the device."""


class KernelError(RuntimeError):
    """Base: what a caller of the kernels may catch."""


class ArgumentError(KernelError, ValueError):
    """A bad argument; the text names the argument, what was expected, what was found."""

    def __init__(self, op: str, argument: str, expected: str, found: str) -> None:
        super().__init__(f"{op}: argument {argument!r}: expected {expected}, found {found}")


class UnsupportedDevice(KernelError):
    """The GPU, its driver or the library file is not one that the kernels were built for."""


class LaunchError(KernelError):
    """The library refused or could not launch."""
