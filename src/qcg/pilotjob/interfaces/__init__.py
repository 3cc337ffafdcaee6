"""The file and network interfaces: requests, one handler each, published events, and queries on ended runs.

May import `manager` and lower layers.
"""
