"""What the workers' server process does before any worker starts: read every case once."""

from __future__ import annotations

import tests.conformance.engines  # noqa: F401
from tests.conformance.cases import all_cases

all_cases()
