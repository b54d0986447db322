"""What the script that runs the silo app under FLARE takes for a failure."""

import json
import os
import runpy
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "examples" / "nvflare-silos" / "run.py"


@pytest.mark.parametrize(
    ("written", "failure"),
    [(None, "without a result"), ({"finished": False}, "in the server's app"), ({"finished": True}, "")],
)
def test_a_run_has_failed_unless_its_app_finished(tmp_path, written, failure):
    if written is not None:
        (tmp_path / "result.json").write_text(json.dumps(written))
    said = runpy.run_path(str(RUN))["attempt"](["true"], dict(os.environ), tmp_path, 60)
    assert failure in said
    assert bool(said) == bool(failure)
