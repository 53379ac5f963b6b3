"""What became of one random program."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

PASSED, FAILED = "passed", "failed"
NOT_EXPORTED, NOT_RUN = "MindSpore does not export it", "MindSpore does not run it"
REFUSED, NOT_FINITE, SHOWS_NOTHING = "refused", "not finite natively", "shows nothing"
"""`SHOWS_NOTHING`: boost-verify cannot tell, for want of gradients or of data that does not overflow."""


@dataclass
class Outcome:
    """`stage` and `message` say what failed, or what was refused by whom; `refusals` name passes that did not apply,
    `judges` what the program was compared with."""

    status: str
    stage: str = ""
    message: str = ""
    refusals: dict[str, str] = field(default_factory=dict)
    judges: list[str] = field(default_factory=list)
    bit_equal: bool | None = None
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.status == FAILED

    @property
    def kind(self) -> str:
        """The same for the same failure."""
        return f"{self.stage}: {re.sub(r'[0-9.e+-]+|%[^ ]+', '_', self.message.strip().splitlines()[-1])[:80]}"
