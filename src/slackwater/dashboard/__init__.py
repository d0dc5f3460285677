"""The live page of an attached application: what it sends once a second, and the files that show it.

`frames` puts one second into bytes, `feed` hands them to whoever reads, `page` has the files, `routes` mounts them all.
"""
