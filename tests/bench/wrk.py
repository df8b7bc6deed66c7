"""wrk as the client: requests a second, latency, and how many answers had which status."""

import json
import subprocess
from math import ceil
from pathlib import Path
from typing import NamedTuple

SCRIPTS = Path(__file__).parent
_DONE = """
function done(summary, latency, requests)
  io.write("RESULT " .. string.format(
    '{"requests":%d,"seconds":%.3f,"errors":%d,"p50":%.3f,"p99":%.3f}\\n',
    summary.requests, summary.duration / 1e6,
    summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
"""
# The requests are made before the load starts: the client's own work must not count.
_TOKENS = """
local requests, i = {}, 0
function init(args)
  for line in io.lines("%s") do
    local sale, token = line:match("^(%%S+) (%%S+)$")
    requests[#requests + 1] = wrk.format(
      "POST", "/api/v1/sales/" .. sale .. "/purchases", {Authorization = "Bearer " .. token})
  end
end
request = function()
  i = i %% #requests + 1
  return requests[i]
end
"""


class Result(NamedTuple):
    """`errors`: answers that were no 2xx or 3xx, and broken connections. Latency in ms."""

    requests: int
    seconds: float
    errors: int
    p50: float
    p99: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


def run(
    url: str,
    folder: Path,
    *,
    tokens: Path | None = None,
    seconds: float = 6,
    connections: int = 128,
) -> Result:
    """Load one address; with `tokens`, POST a purchase for each line "sale token" of that file.

    Raises RuntimeError with what wrk said if it fails.
    """
    script = folder / "wrk.lua"
    script.write_text((_TOKENS % tokens if tokens else "") + _DONE)
    # wrk takes whole seconds only.
    command = ["wrk", "-t1", f"-c{connections}", f"-d{ceil(seconds)}s", "-s", str(script), url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}{done.stdout}")
    line = next(row for row in done.stdout.splitlines() if row.startswith("RESULT "))
    return Result(**json.loads(line.removeprefix("RESULT ")))
