"""Find out why a table cannot be read or written, before a job does: from the network to the topic's settings.

Each module looks at one layer and gives findings; `examine` goes through them from the bottom up and stops where
nothing above can be right.
"""

from __future__ import annotations

from kdsl.diagnostics.doctor.examine import examine
from kdsl.diagnostics.doctor.findings import Finding, State

__all__ = ["Finding", "State", "examine"]
