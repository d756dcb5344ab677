"""`headgate doctor`: checks all that a gateway needs in front of its cluster, and says how to correct what is missing.

    async for finding in examine(config, tell=print):
        print(finding.verdict, finding.text, finding.mend)

Read `findings.py` (what is reported), `examination.py` (the order), then one module a subject: `machine`, `brokers`,
`cluster`, `rights` with `probes`, `topics`. Nothing here changes the cluster.
"""

from headgate.doctor.examination import examine
from headgate.doctor.findings import Check, DoctorFinding, FindingVerdict, count

__all__ = ["Check", "DoctorFinding", "FindingVerdict", "count", "examine"]
