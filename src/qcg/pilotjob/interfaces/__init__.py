"""The file and network interfaces: requests, one handler each, published events, and queries on ended runs.

May import everything up to manager, but not api, executor_api and cli.
"""
