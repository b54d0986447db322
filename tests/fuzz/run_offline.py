"""Fuzz the decoders for as long as you like, outside the suite.

    python tests/fuzz/run_offline.py --seconds 600 --only ledger --only plan-fields
    python tests/fuzz/run_offline.py --atheris messages -- -runs=10000000   # coverage-guided, needs atheris

Each decoder gets the same time. Inputs that end in a new way (another outcome, at other lines) are kept in
the corpus and mutated further. A crash is written to the corpus as crash-*; the exit code is then 1. Memory
beyond 4 GiB counts as a crash.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.decoders import DECODERS, Decoder
from fuzz.mutations import mutate


def outcome(decoder: Decoder, data: bytes) -> tuple[str, ...]:
    """How the decoder ended: the lines of skelmix that a named error passed through, or "accepted"."""
    try:
        decoder.run(data)
    except decoder.named as error:
        trace, lines = error.__traceback__, [type(error).__name__]
        while trace is not None:
            if "skelmix" in trace.tb_frame.f_code.co_filename:
                lines.append(f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")
            trace = trace.tb_next
        cause = error.__cause__
        return (*lines, type(cause).__name__ if cause else "")
    return ("accepted",)


def kept(folder: Path, data: bytes, prefix: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{prefix}{hashlib.sha256(data).hexdigest()[:20]}").write_bytes(data)


def fuzz(decoder: Decoder, seconds: float, corpus: Path, chance: random.Random) -> dict[str, int]:
    folder = corpus / decoder.name
    pool = list(decoder.seeds)
    if folder.exists():
        pool += [path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.startswith("crash-")]
    seen = {outcome(decoder, data) for data in pool}
    runs = crashes = accepted = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            data = mutate(chance.choice(pool), chance, pool)
            if decoder.seal is not None and chance.random() < 0.5:
                data = decoder.seal(data)
            runs += 1
            try:
                found = outcome(decoder, data)
            except Exception as error:
                crashes += 1
                kept(folder, data, "crash-")
                print(f"{decoder.name}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            accepted += found == ("accepted",)
            if found not in seen:
                seen.add(found)
                pool.append(data)
                kept(folder, data)
    return {"executions": runs, "crashes": crashes, "accepted": accepted, "outcomes": len(seen)}


def guided(name: str, rest: list[str], corpus: Path) -> None:
    import atheris

    decoder = DECODERS[name]
    folder = corpus / name
    for seed in decoder.seeds:
        kept(folder, seed)
    for module in (
        "messages", "stored", "ledger", "idx", "rows", "plan", "registry", "wrapping", "records", "memory"
    ):  # fmt: skip
        for loaded in [m for n, m in sys.modules.items() if n.startswith("skelmix.") and n.endswith(module)]:
            for key, value in vars(loaded).items():
                if getattr(value, "__module__", None) == loaded.__name__ and hasattr(value, "__code__"):
                    setattr(loaded, key, atheris.instrument_func(value))

    def once(data: bytes) -> None:
        decoder.accepts(decoder.seal(data) if decoder.seal is not None else data)

    atheris.Setup([sys.argv[0], *rest, str(folder)], once)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="in all")
    parser.add_argument("--corpus", type=Path, default=Path("tests/fuzz/corpus"))
    parser.add_argument("--only", choices=list(DECODERS), action="append")
    parser.add_argument("--atheris", choices=list(DECODERS), help="one decoder, coverage-guided")
    parser.add_argument("rest", nargs="*", help="options of libFuzzer, after --")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.atheris:
        guided(options.atheris, options.rest, options.corpus)
        return 0
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    names = options.only or list(DECODERS)
    seed = random.SystemRandom().randrange(2**32)
    results = {
        name: fuzz(DECODERS[name], options.seconds / len(names), options.corpus, random.Random(seed))
        for name in names
    }
    total = {key: sum(result[key] for result in results.values()) for key in ("executions", "crashes")}
    print(
        json.dumps({"seed": seed, "seconds": options.seconds, "total": total, "decoders": results}, indent=1)
    )
    return 1 if total["crashes"] else 0


if __name__ == "__main__":
    sys.exit(main())
