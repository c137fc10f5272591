"""Schemas of Kubernetes' own kinds, as kubeconform reads them from files."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from tests.deploy.programs import NotAvailable

KINDS = (
    "configmap-v1", "deployment-apps-v1", "horizontalpodautoscaler-autoscaling-v2", "ingress-networking-v1",
    "networkpolicy-networking-v1",
    "pod-v1", "poddisruptionbudget-policy-v1", "role-rbac-v1", "rolebinding-rbac-v1", "secret-v1", "service-v1",
    "serviceaccount-v1", "statefulset-apps-v1",
)  # fmt: skip
DEFINITIONS = "/api/_definitions.json"


def schemas(version: str, target: Path) -> str:
    """Write the schemas of a version of Kubernetes into a folder, each whole in itself; gives kubeconform's template.

    Raises:
        NotAvailable: the package that has them is not installed.
    """
    package = importlib.util.find_spec("kubernetes_validate")
    if package is None or package.origin is None:
        raise NotAvailable("Kubernetes' schemas are not installed: pip install kubernetes-validate")
    source = Path(package.origin).parent / "kubernetes-json-schema" / f"v{version}-local-strict"
    definitions = _within(json.loads((source / "_definitions.json").read_text(encoding="utf-8"))["$defs"])
    for kind in KINDS:
        schema = _within(json.loads((source / f"{kind}.json").read_text(encoding="utf-8")))
        (target / f"{kind}.json").write_text(json.dumps({**schema, "$defs": definitions}), encoding="utf-8")
    return str(target / "{{.ResourceKind}}{{.KindSuffix}}.json")


def _within(schema: Any) -> Any:
    """The schema with references into itself, where it has those into the file of definitions."""
    if isinstance(schema, list):
        return [_within(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: part for name, part in schema.items() if not (name == "$id" and isinstance(part, str))}
    return {
        name: part.removeprefix(DEFINITIONS) if name == "$ref" and isinstance(part, str) else _within(part)
        for name, part in kept.items()
    }
