"""`headgate doctor`: what keeps a gateway from working in front of its cluster, and the line that mends it.

    async for finding in examine(config, tell=print):
        print(finding.verdict, finding.text, finding.mend)

Read `findings.py` (what is said), `examination.py` (the order), then one module a question: `machine`, `certificates`,
`dialling`, `nodes`, `features`, `rights` with `probing`, `topics`, `dead_letters` with `dead_letter_probing`, `clock`.
Nothing here changes the cluster.
"""

from headgate.doctor.examination import examine
from headgate.doctor.findings import Check, Finding, Verdict, count

__all__ = ["Check", "Finding", "Verdict", "count", "examine"]
