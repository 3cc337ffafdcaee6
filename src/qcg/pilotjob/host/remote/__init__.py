"""The far side of remote hosts: sub-commands that a manager calls over SSH, and the supervisor that keeps the jobs.

It travels in one zipapp with the rest of `host/`. Commands import only the modules that they need, because a host pays
for each import with each command. May import the modules beside it.
"""
