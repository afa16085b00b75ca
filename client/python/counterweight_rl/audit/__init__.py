"""Audits of recorded batches: drift, faults, and what methods would have done.

    from counterweight_rl import audit

    spec = audit.Spec(methods={"token_tis": cw.Preset("token_tis")})
    parts = [audit.unit(each.path, each.group, spec) for each in audit.units("DIR")]
    print(audit.report(functools.reduce(audit.merge, parts), spec).digest)

``unit`` may run in any process and ``merge`` in any order and grouping: the report has the same
bits. It needs the extra [record].
"""

from counterweight_rl.audit.report import Causes, Drift, Effect, Report, report
from counterweight_rl.audit.sources import Unit, units
from counterweight_rl.audit.spec import Spec
from counterweight_rl.audit.steps import merge, unit

__all__ = [
    "Causes",
    "Drift",
    "Effect",
    "Report",
    "Spec",
    "Unit",
    "merge",
    "report",
    "unit",
    "units",
]
