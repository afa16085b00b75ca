"""Audits a folder on a Dask cluster that sees it: on_dask.py DIR [ADDRESS]."""

import functools
import sys

from dask import distributed

import counterweight_rl as cw
from counterweight_rl import audit

if __name__ == "__main__":
    spec = audit.Spec(methods={"token_tis": cw.Preset("token_tis")})
    units = audit.units(sys.argv[1])
    with distributed.Client(*sys.argv[2:]) as cluster:
        paths, groups = [each.path for each in units], [each.group for each in units]
        parts = cluster.gather(cluster.map(audit.unit, paths, groups, spec=spec, pure=False))
    print(audit.report(functools.reduce(audit.merge, parts), spec).digest)
