"""Reports for people and programs: `jobs.report`, written while jobs end, and the report on a whole run.

May import `runs` and everything below it; `manager`, `interfaces`, the clients and `cli` import it.
"""
