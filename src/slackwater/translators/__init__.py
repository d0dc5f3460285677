"""How priorities take effect on a host: nice and cgroups, on the processes that are named and on no others."""
