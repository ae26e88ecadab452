"""Engine images: what is wanted and what was resolved, the build, the proof of what is inside, the way to a host.

image.yml + lock.yml -> context -> build -> manifest -> signed statement -> delivery
"""
