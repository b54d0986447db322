"""Attacks on a plan's own releases that give lower bounds on ε: no lower bound may exceed the promised ε."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.audit.canaries import CanaryAudit, audit_training
    from skelmix.audit.release import ReleaseAudit, audit_release
    from skelmix.audit.silos import audit_record

__all__ = [
    "CanaryAudit",
    "ReleaseAudit",
    "audit_record",
    "audit_release",
    "audit_training",
]

_HOMES = {
    "canaries": ("CanaryAudit", "audit_training"),
    "release": ("ReleaseAudit", "audit_release"),
    "silos": ("audit_record",),
}

__getattr__ = lazily(__name__, _HOMES, needs=("torch", "torch"))
