"""The Python client: submit jobs to a manager, wait for them, query them.

May import the packages of lower layers, except `manager` and `interfaces`; importing it must stay fast.
"""
