"""Stands in for sgl_kernel; see b300kit_absent."""

from b300kit_absent import stand_in

__version__ = "0+absent"
stand_in(__name__)
