"""What can be set on the page, checked field by field, and the plan, command and program that it means."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skelmix.mechanisms.names import DISTRIBUTED

if TYPE_CHECKING:
    from skelmix.planning import Plan

_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")


@dataclass(frozen=True)
class Field:
    """A number on the page, with a slider from `low` to `high`; `least` and `most` may be typed.

    argument: its name in the planner's errors. option: of `skelmix plan`. who: "cohort" or "silos" where only
    one of them has it. whole: no fractions. log: the slider goes by factors.
    """

    name: str
    label: str
    help: str
    default: float
    low: float
    high: float
    least: float
    most: float
    option: str
    argument: str
    who: str = ""
    whole: bool = False
    log: bool = True

    def read(self, given: Any) -> float | int:
        """The number that was given; `ValueError` says what is wrong with it."""
        text = str(given).strip()
        if "," in text:
            if not _THOUSANDS.fullmatch(text):
                raise ValueError(
                    f"{given!r} is not a number: write 1.5 for one and a half, 1,500 for thousands"
                )
            text = text.replace(",", "")
        try:
            number = float(text)
        except ValueError:
            raise ValueError(f"{given!r} is not a number: give one such as {self.default:g}") from None
        if not self.least <= number <= self.most:  # NaN too
            raise ValueError(f"{text} is outside {self.least:g} to {self.most:g}: choose one between them")
        if self.whole and number != int(number):
            raise ValueError(f"{text} is not a whole number: give {round(number)} or another one")
        return int(number) if self.whole else number


def _field(name: str, label: str, help: str, default: float, low: float, high: float, **more: Any) -> Field:
    own: dict[str, Any] = {
        "least": low,
        "most": high,
        "argument": name,
        "option": "--" + name.replace("_", "-"),
    }
    return Field(name, label, help, default, low, high, **(own | more))


FIELDS = {
    field.name: field
    for field in (
        _field("epsilon", "ε", "privacy target for observers", 3.0, 0.1, 20.0, least=1e-3, most=1e3),
        _field("delta", "δ", "well below 1/population", 1e-5, 1e-10, 1e-3, least=1e-15, most=0.1),
        _field("rate", "Bits per weight", "that an upload may have", 1.0, 0.0625, 16.0, least=0.01, most=32),
        _field(
            "dimension", "Weights", "length of a participant's vector", 63_610, 10, 10_000_000,
            least=1, most=1 << 26, whole=True,
        ),
        _field("rounds", "Rounds", "that the budget pays for", 1_000, 1, 10_000, most=1_000_000, whole=True),
        _field(
            "cohort", "Cohort", "participants expected in a round", 240, 3, 10_000,
            least=1, most=10_000_000, whole=True, who="cohort", argument="expected",
        ),
        _field(
            "population", "Population", "participants in all", 60_000, 10, 10_000_000,
            least=1, most=1 << 40, whole=True, who="cohort",
        ),
        _field(
            "silos", "Silos", "that hold many records each", 10, 2, 500,
            least=1, most=100_000, whole=True, who="silos", argument="count",
        ),
        _field(
            "records", "Records", "in all silos together", 60_000, 100, 10_000_000,
            least=1, most=1 << 40, whole=True, who="silos",
        ),
        _field(
            "batch", "Batch", "records expected in a round", 240, 10, 100_000,
            least=1, most=1 << 40, whole=True, who="silos",
        ),
        _field(
            "dropouts", "Dropouts", "fraction of a cohort, or of the silos, that may drop out", 0.0, 0.0, 0.6,
            most=0.99, log=False, option="--dropout-tolerance", argument="dropout_tolerance",
        ),
        _field(
            "coin", "Coin", "probability that a participant of a round sends its vector", 1.0, 0.01, 1.0,
            least=1e-4, who="cohort", option="--contribute", argument="contribute",
        ),
        _field(
            "alignment", "Alignment", "mean cosine between vectors; 1 is safe, gradients have 0.02 or less",
            0.005, 0.0, 1.0, log=False,
        ),
    )
}  # fmt: skip


class BadFields(ValueError):
    """What is wrong, by field; the empty name is for what belongs to none of them."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = dict(errors)


@dataclass(frozen=True)
class Settings:
    """What the page asks for: hashable, so that answers can be kept."""

    who: str
    mechanism: str
    numbers: tuple[tuple[str, float | int], ...]

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Settings:
        """Check what came from the page; raises `BadFields`. Missing fields have their defaults."""
        who, mechanism = str(given.get("who", "cohort")), str(given.get("mechanism", "smm"))
        errors = {}
        if who not in ("cohort", "silos"):
            errors["who"] = "choose cohort or silos"
        if mechanism not in DISTRIBUTED:
            errors["mechanism"] = f"choose one of {', '.join(DISTRIBUTED)}"
        numbers = []
        for field in FIELDS.values():
            if field.who not in ("", who):
                continue
            try:
                numbers.append((field.name, field.read(given.get(field.name, field.default))))
            except ValueError as error:
                errors[field.name] = str(error)
        if errors:
            raise BadFields(errors)
        return cls(who, mechanism, tuple(numbers))

    def with_upload(self, mechanism: str, rate: float) -> Settings:
        """The same with another mechanism and rate: one point of the chart."""
        numbers = tuple((name, rate if name == "rate" else value) for name, value in self.numbers)
        return Settings(self.who, mechanism, numbers)

    def plan(self) -> Plan:
        """The planner's answer; raises what the planner raises."""
        from skelmix.planning import Cohort, PrivacyTarget, Silos, plan

        of: dict[str, Any] = dict(self.numbers)
        cohort: Cohort | Silos
        if self.who == "silos":
            cohort = Silos(of["silos"], of["records"], of["batch"], dropout_tolerance=of["dropouts"])
        else:
            cohort = Cohort(
                of["cohort"], of["population"], dropout_tolerance=of["dropouts"], contribute=of["coin"]
            )
        return plan(
            PrivacyTarget(of["epsilon"], of["delta"]), dimension=of["dimension"], rate=of["rate"],
            rounds=of["rounds"], cohort=cohort, mechanism=self.mechanism, alignment=of["alignment"],
        )  # fmt: skip

    def command(self) -> str:
        """The same plan on the command line."""
        words = ["skelmix", "plan"]
        for name, value in self.numbers:
            words += [FIELDS[name].option, f"{value!r}"]
        return shlex.join([*words, "--mechanism", self.mechanism])

    def python(self) -> str:
        """The same plan as a program."""
        of = {name: repr(value) for name, value in self.numbers}
        if self.who == "silos":
            who = (
                f"sk.Silos(count={of['silos']}, records={of['records']}, batch={of['batch']}, "
                f"dropout_tolerance={of['dropouts']})"
            )
        else:
            who = (
                f"sk.Cohort(\n        expected={of['cohort']}, population={of['population']}, "
                f"dropout_tolerance={of['dropouts']}, contribute={of['coin']}\n    )"
            )
        return (
            "import skelmix as sk\n\nplan = sk.plan(\n"
            f"    sk.PrivacyTarget(epsilon={of['epsilon']}, delta={of['delta']}),\n"
            f"    dimension={of['dimension']},\n    rate={of['rate']},\n    rounds={of['rounds']},\n"
            f"    cohort={who},\n    mechanism={self.mechanism!r},\n    alignment={of['alignment']},\n)\n"
            "print(plan)\n"
        )


def errors_of(message: str) -> dict[str, str]:
    """A planner's error, beside the field that it names first; under the empty name if it names none.

    The page has no field for bits: the rate decides on them.
    """
    named = re.match(r"(\w+) = ", message)
    argument = "rate" if named and named[1] == "bits" else named and named[1]
    for field in FIELDS.values():
        if argument in (field.argument, field.name):
            return {field.name: message}
    return {"": message}
