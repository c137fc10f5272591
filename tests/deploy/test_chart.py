"""The Helm chart: read by Helm, rendered with several values, and every object held against Kubernetes' schemas."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.kubernetes import schemas
from tests.deploy.programs import HELM, KUBECONFORM, NotAvailable, program
from turnout.server.config import ServerConfig

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "turnout"
VALUES = sorted(path.stem.removesuffix("-values") for path in (CHART / "ci").glob("*-values.yaml"))
ROUTED = [name for name in VALUES if name != "service"]
"""Those with the router, which has settings of its own."""
USERS: dict[str, int | None] = {"openshift": None, "own-user": 20042}
"""Users of the pods, if they are not the image's."""
VERSIONS = ("1.25.0", "1.37.0")
"""The oldest version of Kubernetes that the chart takes, and the newest whose schemas there are."""

Objects = list[dict[str, Any]]

# The first run compiles Helm.
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1_800)]


def run(*command: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), input=stdin, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def helm() -> Path:
    try:
        return program(*HELM)
    except NotAvailable as absent:
        pytest.skip(str(absent))


@pytest.fixture(scope="module")
def conforms(tmp_path_factory) -> Callable[[str, str], subprocess.CompletedProcess[str]]:
    """Hold a rendered chart against the schemas of a version of Kubernetes."""
    try:
        kubeconform = program(*KUBECONFORM)
        locations = {version: schemas(version, tmp_path_factory.mktemp("schemas")) for version in VERSIONS}
    except NotAvailable as absent:
        pytest.skip(str(absent))
    # The monitor is no kind of Kubernetes' own.
    return lambda version, text: run(
        kubeconform,
        "-strict",
        "-summary",
        "-skip",
        "ServiceMonitor",
        "-schema-location",
        locations[version],
        stdin=text,
    )


@pytest.fixture(scope="module")
def render(helm) -> Callable[..., subprocess.CompletedProcess[str]]:
    def rendered(name: str | None, *more: str, version: str = VERSIONS[-1]) -> subprocess.CompletedProcess[str]:
        values = ["--values", str(CHART / "ci" / f"{name}-values.yaml")] if name else []
        return run(
            helm, "template", "switch", CHART, "--namespace", "routing", "--kube-version", version, *values, *more
        )

    return rendered


@pytest.fixture(scope="module")
def objects(render) -> Callable[..., Objects]:
    def of(name: str, *more: str) -> Objects:
        done = render(name, *more)
        assert (done.returncode, done.stderr) == (0, "")
        return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]

    return of


def pods(objects: Objects) -> Iterator[dict[str, Any]]:
    """The pods that objects make, with those that Spark makes of a template."""
    for one in objects:
        if one["kind"] in ("StatefulSet", "Deployment"):
            yield one["spec"]["template"]["spec"]
        elif one["kind"] == "ConfigMap" and "executor.yaml" in one["data"]:
            yield yaml.safe_load(one["data"]["executor.yaml"])["spec"]


def of_kind(objects: Objects, kind: str, name: str = "") -> dict[str, Any]:
    (one,) = [one for one in objects if one["kind"] == kind and one["metadata"]["name"].endswith(name)]
    return one


def settings(objects: Objects) -> dict[str, Any]:
    """Return the settings in turnout.yaml."""
    (text,) = [
        one["data"]["turnout.yaml"] for one in objects if one["kind"] == "ConfigMap" and "turnout.yaml" in one["data"]
    ]
    return yaml.safe_load(text)


@pytest.mark.parametrize("name", VALUES)
def test_helm_reads_the_chart(helm, name) -> None:
    """Without a warning."""
    done = run(helm, "lint", CHART, "--strict", "--quiet", "--values", CHART / "ci" / f"{name}-values.yaml")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", VALUES)
def test_every_object_is_one_of_kubernetes(render, conforms, name, version) -> None:
    """With exactly the fields that its kind has, in the oldest and in the newest version."""
    done = conforms(version, render(name, version=version).stdout)

    assert done.returncode == 0, done.stdout
    assert "Errors: 0" in done.stdout
    assert "Valid: 0" not in done.stdout


def test_a_wrong_object_is_seen(render, conforms) -> None:
    """The validation against the schemas detects an unknown field."""
    text = render("insecure").stdout.replace("serviceName:", "servicename:")

    assert conforms(VERSIONS[-1], text).returncode == 1


@pytest.mark.parametrize("name", VALUES)
def test_every_pod_is_locked_in(objects, name) -> None:
    """Nobody's user, a root that cannot be written, no capabilities, a token only where Spark needs one."""
    for pod in pods(objects(name)):
        container = pod["containers"][0]

        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"].get("runAsUser") == USERS.get(name, 10001)
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}
        needs_token = name in ("spark", "own-user", "standby") and container.get("args", [""])[0] == "serve"
        assert pod["automountServiceAccountToken"] is needs_token


@pytest.mark.parametrize("name", ROUTED)
def test_its_settings_are_settings_of_turnout(objects, tmp_path, name) -> None:
    """turnout.yaml is one that the server takes, certificates and all; checkpoints lie on the volume."""
    document = settings(objects(name))
    for part in ("cert", "key", "clientCa"):
        if part in document.get("tls", {}):
            document["tls"][part] = str(tmp_path / part)
            (tmp_path / part).touch()
    (tmp_path / "turnout.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")

    config = ServerConfig.load(tmp_path / "turnout.yaml", {})

    folder = config.checkpoints if config.ha is None else config.ha.folder
    assert str(folder).startswith("/var/lib/turnout")
    assert config.address.port == 8090


def test_a_server_in_the_clear_is_asked_for(render) -> None:
    """Without TLS, tokens or a word that neither is wanted nothing is rendered."""
    without = render(None)
    without_tokens = render(None, "--set", "server.tls.existingSecret=tls")

    assert "server.tls.existingSecret" in without.stderr
    assert "server.tokens.existingSecret" in without_tokens.stderr
    assert (without.returncode, without_tokens.returncode) == (1, 1)


def test_two_servers_share_a_volume_and_a_lease(render, objects) -> None:
    """Each pod is reached by its own name; the lease is the only object that they may write."""
    refused = render("insecure", "--set", "server.replicas=2")
    assert "server.ha.lease and server.ha.existingClaim" in refused.stderr
    manifests = objects("standby")
    server = of_kind(manifests, "StatefulSet")["spec"]
    container = server["template"]["spec"]["containers"][0]

    assert (server["replicas"], server["podManagementPolicy"]) == (2, "Parallel")
    assert container["args"][-1] == "https://$(POD_NAME).switch-turnout-driver.routing.svc:8090"
    assert container["env"][0]["name"] == "POD_NAME"
    assert settings(manifests)["ha"] == {
        "lease": "kubernetes", "folder": "/var/lib/turnout-shared", "name": "switch-turnout", "seconds": 5,
        "ca": "/etc/turnout/tls/ca.crt",
    }  # fmt: skip
    rules = of_kind(manifests, "Role", "-lease")["rules"]
    assert [(rule["resources"], rule["verbs"]) for rule in rules] == [
        (["leases"], ["create"]),
        (["leases"], ["get", "update"]),
    ]


def test_subscriptions_need_a_shared_store(render) -> None:
    """A service of several pods is not rendered without the address of a store."""
    done = render("insecure", "--set", "subscriptions.enabled=true,subscriptions.insecure=true")

    assert done.returncode == 1
    assert "subscriptions.store.existingSecret" in done.stderr


def test_the_server_is_guarded_as_said(objects) -> None:
    """Probes speak TLS and use a name that the server answers to; the store is served; only the gateway comes in."""
    manifests = objects("guarded")
    pod = of_kind(manifests, "StatefulSet")["spec"]["template"]["spec"]
    probes = [pod["containers"][0][f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]

    assert [(probe["path"], probe["scheme"]) for probe in probes] == [
        ("/live", "HTTPS"), ("/live", "HTTPS"), ("/ready", "HTTPS"),
    ]  # fmt: skip
    assert {probe["httpHeaders"][0]["value"] for probe in probes} == {"localhost"}
    assert "hosts" not in settings(manifests)
    assert settings(manifests)["store"] == "sqlite:////var/lib/turnout/subscriptions.db"
    policy = of_kind(manifests, "NetworkPolicy")["spec"]
    assert policy["ingress"][0]["from"][0]["namespaceSelector"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert of_kind(manifests, "ServiceMonitor")["spec"]["endpoints"][0]["scheme"] == "https"


def test_the_subscriptions_service_is_scaled(objects) -> None:
    """It is scaled by processor time, with a disruption budget; a fixed number applies only without scaling."""
    scaled, fixed = objects("subscriptions"), objects("spark")

    assert "replicas" not in of_kind(scaled, "Deployment")["spec"]
    assert of_kind(scaled, "HorizontalPodAutoscaler")["spec"]["maxReplicas"] == 20
    assert of_kind(scaled, "PodDisruptionBudget", "-subscriptions")["spec"]["maxUnavailable"] == 1
    assert of_kind(fixed, "Deployment")["spec"]["replicas"] == 3
    assert [manifest for manifest in fixed if manifest["kind"] == "HorizontalPodAutoscaler"] == []


def test_spark_gets_executors(objects) -> None:
    """The driver has a name that executors find, ports that the policy lets through, and rights to pods alone."""
    manifests = objects("spark")
    properties = settings(manifests)["spark"]["properties"]
    headless = of_kind(manifests, "Service", "-driver")

    assert settings(manifests)["spark"]["master"] == "k8s://https://kubernetes.default.svc"
    assert properties["spark.driver.host"] == f"{headless['metadata']['name']}.routing.svc"
    assert (headless["spec"]["clusterIP"], headless["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert {port["port"] for port in headless["spec"]["ports"]} == {
        properties["spark.driver.port"], properties["spark.driver.blockManager.port"],
    }  # fmt: skip
    assert (properties["spark.executor.instances"], properties["spark.sql.shuffle.partitions"]) == (4, 8)
    subject = of_kind(manifests, "RoleBinding")["subjects"][0]
    assert (subject["name"], subject["namespace"]) == ("turnout-driver", "routing")


def test_the_service_is_installed_without_the_router(objects) -> None:
    """`server.enabled: false` leaves out all that is the router's: its pod, settings, volumes, rights and policies."""
    manifests = objects("service")
    components = {one["metadata"]["labels"]["app.kubernetes.io/component"] for one in manifests}

    assert {one["kind"] for one in manifests} == {
        "Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount",
        "ServiceMonitor",
    }  # fmt: skip
    assert components - {"subscriptions"} == {"server"}
    assert [
        one["kind"] for one in manifests if one["metadata"]["labels"]["app.kubernetes.io/component"] == "server"
    ] == ["ServiceAccount"]


def test_the_router_is_installed_without_the_service(objects, render) -> None:
    """The router alone is the default; with neither there is nothing to install, and the message names both."""
    neither = render(None, "--set", "server.enabled=false")

    assert [one for one in objects("insecure") if one["kind"] == "Deployment"] == []
    assert neither.returncode == 1
    assert "server.enabled" in neither.stderr
    assert "subscriptions.enabled" in neither.stderr


def test_a_text_does_not_switch_protection_off(render) -> None:
    """``--set-string server.insecure=false`` is a text, which templates take for true: it is refused by the schema, and
    by the chart itself where schemas are skipped."""
    words = ("--set-string", "server.insecure=false")
    by_schema, by_chart = render(None, *words), render(None, *words, "--skip-schema-validation")

    assert (by_schema.returncode, by_chart.returncode) == (1, 1)
    assert "/server/insecure" in by_schema.stderr
    assert "server.insecure: expected true or false" in by_chart.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("server.replicas=two", "/server/replicas"),
        ("podSecurityContex.runAsUser=1", "podSecurityContex"),
        ("server.resources.limit.memory=1Gi", "limit"),
        ("subscriptions.autoscaling.maxReplicas=many", "/subscriptions/autoscaling/maxReplicas"),
        ("spark.properties.driver=1", "driver"),
        ("routes.orders=a", "orders"),
        ("image.digest=latest", "/image/digest"),
    ],
)
def test_a_mistyped_value_is_refused(render, words, named) -> None:
    """An unknown name and a value of another kind end the installation with the place of it."""
    done = render("insecure", "--set", words)

    assert done.returncode == 1
    assert "values don't meet the specifications of the schema" in done.stderr
    assert named in done.stderr


def test_several_servers_need_a_lease(render) -> None:
    """Without one, and without a volume that they share, nothing is rendered."""
    done = render("insecure", "--set", "server.replicas=2")

    assert (done.returncode, "set server.ha.lease and server.ha.existingClaim" in done.stderr) == (1, True)


def test_a_cluster_gives_the_user(objects) -> None:
    """A part that is null is left out, so that OpenShift's restricted-v2 sets user and groups; the others stay."""
    (pod,) = pods(objects("openshift"))

    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_executors_have_the_users_of_the_server(objects) -> None:
    """Pods that Spark makes get the same user and groups, by which they read the shared secret."""
    server, executor = pods(objects("own-user"))

    assert server["securityContext"] == executor["securityContext"]
    assert server["securityContext"]["supplementalGroups"] == [20001]


def test_the_ingress(objects) -> None:
    """Names of the ingress lead to HTTP, and the server accepts them beside its own."""
    manifests = objects("ingress")
    ingress = of_kind(manifests, "Ingress")["spec"]
    paths = [path for rule in ingress["rules"] for path in rule["http"]["paths"]]

    assert [rule["host"] for rule in ingress["rules"]] == ["turnout.example.com", "switch.example.com"]
    assert settings(manifests)["hosts"] == ["turnout.routing.svc", "turnout.example.com", "switch.example.com"]
    assert {path["backend"]["service"]["name"] for path in paths} == {"switch-turnout"}
    assert (ingress["ingressClassName"], ingress["tls"][0]["secretName"]) == ("nginx", "turnout-public")


def test_an_ingress_has_hosts(render) -> None:
    """Without names the rendering ends: such an ingress would lead nowhere."""
    done = render("insecure", "--set", "server.ingress.enabled=true")

    assert done.returncode == 1
    assert "server.ingress.hosts" in done.stderr


def test_pods_have_what_is_given_to_them(objects) -> None:
    """Containers, volumes, labels and spreading are the pod's; labels that selectors look for cannot be replaced."""
    manifests = objects("sidecars", "--set", r"server.podLabels.app\.kubernetes\.io/component=mine")
    server = of_kind(manifests, "StatefulSet")["spec"]["template"]
    service = of_kind(manifests, "Deployment")["spec"]["template"]

    assert [container["name"] for container in server["spec"]["containers"]] == ["turnout", "logs"]
    assert [container["name"] for container in server["spec"]["initContainers"]] == ["wait"]
    assert server["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert server["metadata"]["labels"]["app.kubernetes.io/component"] == "server"
    assert server["spec"]["topologySpreadConstraints"][0]["topologyKey"] == "topology.kubernetes.io/zone"
    assert [container["name"] for container in service["spec"]["containers"]] == ["subscriptions", "proxy"]
    assert "authority" in {volume["name"] for volume in service["spec"]["volumes"]}
    assert service["spec"]["containers"][0]["envFrom"] == [{"secretRef": {"name": "subscriptions"}}]
    assert service["spec"]["priorityClassName"] == "routing"


def test_a_faulty_pod_is_replaced(objects) -> None:
    """A new version does not wait until the pod of a faulty one is ready."""
    assert of_kind(objects("insecure"), "StatefulSet")["spec"]["podManagementPolicy"] == "Parallel"


@pytest.mark.parametrize(
    ("name", "words", "named"),
    [
        ("guarded", "serviceMonitor.bearerToken.existingSecret=", "serviceMonitor.bearerToken.existingSecret"),
        ("monitor", "serviceMonitor.tlsConfig.cert=null", "serviceMonitor.tlsConfig.cert"),
        ("ingress", "serviceMonitor.enabled=true,serviceMonitor.bearerToken.existingSecret=a", "server.config.hosts"),
    ],
)
def test_a_monitor_that_would_be_refused(render, name, words, named) -> None:
    """Prometheus without token, certificate or a name that the server accepts would be refused at every scrape."""
    done = render(name, "--set", words)

    assert done.returncode == 1
    assert named in done.stderr


def test_the_monitor_shows_its_token_and_certificate(objects) -> None:
    """The token is of a secret; the certificate, too."""
    (token,) = of_kind(objects("guarded"), "ServiceMonitor")["spec"]["endpoints"]
    (certificate,) = of_kind(objects("monitor"), "ServiceMonitor")["spec"]["endpoints"]

    assert token["authorization"]["credentials"] == {"name": "turnout-scraper", "key": "token"}
    assert certificate["tlsConfig"]["keySecret"] == {"name": "prometheus-tls", "key": "tls.key"}


@pytest.mark.parametrize("existing", ["", "ours"])
def test_executors_authenticate(objects, existing) -> None:
    """Driver and executors read one secret from a file, and encrypt; the secret is the chart's or a named one."""
    manifests = objects("spark", "--set", f"spark.authentication.existingSecret={existing}")
    properties = settings(manifests)["spark"]["properties"]
    server, executor = [pod for pod in pods(manifests) if pod["containers"][0]["name"] in ("turnout", "executor")]
    secrets = [one for one in manifests if one["kind"] == "Secret"]

    assert (properties["spark.authenticate"], properties["spark.network.crypto.enabled"]) == ("true", "true")
    assert properties["spark.authenticate.secret.file"] == "/etc/turnout/spark/secret"
    for pod in (server, executor):
        (volume,) = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "spark-secret"]
        assert volume["secretName"] == (existing or "switch-turnout-spark")
        assert volume["items"] == [{"key": "secret", "path": "secret"}]
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert mounts["spark-secret"] == "/etc/turnout/spark"
    assert len(secrets) == (not existing)
    assert all(len(base64.b64decode(one["data"]["secret"])) >= 32 for one in secrets)
