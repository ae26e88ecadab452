"""What boot units run on a host. Standard library only, Python 3.9. ``kit.plan.render.script`` joins ``common`` and one module.

Each sets what a boot loses, reads it back, records what it read in ``/run/b300kit/NAME.json``, and ends with status 1
when something is not as declared. It writes only what differs, so a second run changes nothing.
"""
