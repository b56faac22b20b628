"""The files for containers: what they name exists, and they agree with each other and with the package.

They are not run here, where no container engine is: what can be checked without one is.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml  # type: ignore[import-untyped]

from lakehouse.settings import Settings
from lakehouse.spark.fixed_settings import check_settings

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "docs" / "deploy"
JARS = Path(pyspark.__file__).parent / "jars"
SPARK_HOME = "/opt/lakehouse/lib/python3.11/site-packages/pyspark"
IMAGE = "lakehouse:local"
UID = 10001


def documents(name: str) -> list[Any]:
    """The documents of a YAML file."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def instructions() -> list[list[str]]:
    """The Dockerfile, an instruction each, in words."""
    text = (DEPLOY / "Dockerfile").read_text()
    lines = re.sub(r"\\\n\s*", "", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    return [shlex.split(line) for line in lines.splitlines() if line]


def classes(jar: str) -> set[str]:
    """The classes of one of Spark's jars."""
    (path,) = JARS.glob(f"{jar}_*.jar")
    return {name.removesuffix(".class").replace("/", ".") for name in zipfile.ZipFile(path).namelist()}


def settings_of(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What the lakehouse makes of a container's variables, of which none may be unknown."""
    ours = {name: value for name, value in environment.items() if name.startswith("LAKEHOUSE_")}
    assert ours
    assert {name.removeprefix("LAKEHOUSE_").lower() for name in ours} <= set(Settings.model_fields)
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    found = Settings(_env_file=None)
    check_settings(found.spark_config)
    return found


def test_the_image_is_made_of_what_is_there() -> None:
    """Without it, the first `docker build` after a file was moved would fail, or would take what nobody has locked."""
    copied = [words[1:-1] for words in instructions() if words[0] == "COPY" and "--from=build" not in words]
    sources = [each for words in copied for each in words if not each.startswith("--")]
    kept = set((DEPLOY / "Dockerfile.dockerignore").read_text().split())
    for each in sources:
        assert (ROOT / each).exists(), each
        assert f"!{each}" in kept, f"{each} is not sent to the builder"
    runs = [" ".join(words) for words in instructions() if words[0] == "RUN"]
    for install in re.findall(r"pip install [^&]*", "".join(runs)):
        assert "--require-hashes" in install or install.strip().endswith("--no-build-isolation ."), install
    given = dict(each.split("=", 1) for words in instructions() if words[0] == "ENV" for each in words[1:])
    assert given["SPARK_HOME"] == SPARK_HOME
    assert {name.removeprefix("LAKEHOUSE_").lower() for name in given if name.startswith("LAKEHOUSE_")} <= set(
        Settings.model_fields
    )
    assert [words[1] for words in instructions() if words[0] == "USER"] == [str(UID)]


def test_the_images_lock_is_that_of_the_developers() -> None:
    """Without it, what runs in a container would not be what the tests were run with."""

    def pins(path: Path) -> dict[str, str]:
        return dict(re.findall(r"^([\w.-]+)==(\S+)", path.read_text(), re.MULTILINE))

    ours, image = pins(ROOT / "requirements.lock"), pins(DEPLOY / "requirements.lock")
    assert {name for name in ours.keys() & image.keys() if ours[name] != image[name]} == set()
    project = (ROOT / "pyproject.toml").read_text()
    for name, pinned in re.findall(r'^  "([\w-]+)(?:\[\w+\])?==([\w.]+)"', project, re.MULTILINE):
        if name != "uv":
            assert image[name] == pinned
    assert "pytest" not in image
    assert "://" not in (DEPLOY / "requirements.lock").read_text()


@pytest.mark.slow
def test_compose_runs_what_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a renamed module, class or setting would be found by the first who starts it."""
    (compose,) = documents("compose.yaml")
    core = classes("spark-core")
    for name, service in compose["services"].items():
        assert service["image"] == IMAGE
        assert all(each.partition(":")[0] in compose["volumes"] for each in service["volumes"])
        assert set(service["secrets"]) <= set(compose["secrets"])
        assert set(service.get("depends_on", ())) <= set(compose["services"])
        program, *arguments = service["command"]
        if program == f"{SPARK_HOME}/bin/spark-class":
            assert (JARS.parent / "bin" / "spark-class").is_file()
            assert arguments[0] in core, name
        else:
            assert find_spec(arguments[arguments.index("--module-name") + 1]) is not None
            commands = [each for each in arguments[:1] if not each.startswith("--")]
            command = [str(Path(sys.executable).with_name(program)), *commands, "--help"]
            known = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert all(each in known for each in arguments if each.startswith("--")), name
        # Whatever is published, is for this machine alone.
        assert all(each.startswith("127.0.0.1:") for each in service.get("ports", ()))
    found = settings_of(compose["services"]["daemon"]["environment"], monkeypatch)
    host, port = found.spark_url.removeprefix("spark://").split(":")
    master = compose["services"]["spark-master"]["command"]
    assert (host, port) == (master[master.index("--host") + 1], master[master.index("--port") + 1])
    assert compose["services"]["spark-worker"]["command"][-1] == found.spark_url
    build = compose["services"]["webserver"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"


def test_the_values_of_the_chart_fit_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, executors would miss the volume, the user, the image or the right to be started."""
    (values,) = documents("values.yaml")
    rest = {(each["kind"], each["metadata"]["name"]): each for each in documents("kubernetes.yaml")}
    assert version("dagster") in (DEPLOY / "values.yaml").read_text().splitlines()[0]
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    for each in (values["dagsterWebserver"], values["dagsterDaemon"], deployment):
        assert f"{each['image']['repository']}:{each['image']['tag']}" == IMAGE
    assert find_spec(deployment["dagsterApiGrpcArgs"][1]) is not None
    assert deployment["includeConfigInLaunchedRuns"] == {"enabled": True}, "runs would have no settings"
    found = settings_of({each["name"]: each["value"] for each in deployment["env"]}, monkeypatch)
    assert found.spark_url.startswith("k8s://")
    claim, folder = found.spark_config, str(found.root)
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.lakehouse"
    assert claim["spark.kubernetes.container.image"] == IMAGE
    assert ("PersistentVolumeClaim", claim[f"{volume}.options.claimName"]) in rest
    mounts = {each["mountPath"]: each["name"] for each in deployment["volumeMounts"]}
    assert claim[f"{volume}.mount.path"] == folder, "executors must see it under the driver's path"
    volumes = {each["name"]: each for each in deployment["volumes"]}
    assert volumes[mounts[folder]]["persistentVolumeClaim"]["claimName"] == claim[f"{volume}.options.claimName"]
    template = Path(claim["spark.kubernetes.executor.podTemplateFile"])
    held = rest["ConfigMap", volumes[mounts[str(template.parent)]]["configMap"]["name"]]
    pod = yaml.safe_load(held["data"][template.name])
    run = values["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]["podSpecConfig"]
    assert pod["spec"]["securityContext"] == run["securityContext"] == deployment["podSecurityContext"]
    assert run["securityContext"]["runAsUser"] == UID, "what executors write is for its owner alone"
    account = run["serviceAccountName"]
    assert ("ServiceAccount", account) in rest
    bound = rest["RoleBinding", account]
    assert bound["subjects"][0]["name"] == account
    assert ("Role", bound["roleRef"]["name"]) in rest
    assert bound["subjects"][0]["namespace"] == claim["spark.kubernetes.namespace"]


def test_an_executors_pod_starts_spark(tmp_path: Path) -> None:
    """Without it, an option of Spark's with a blank in it would end every executor, or the class be one that is gone."""
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"; umask\n')
    java.chmod(0o700)
    told = {
        "SPARK_JAVA_OPT_0": "-Done=1", "SPARK_JAVA_OPT_1": "-Dtwo=with a blank", "SPARK_EXECUTOR_MEMORY": "1g",
        "SPARK_HOME": "/spark", "SPARK_DRIVER_URL": "spark://driver", "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "2", "SPARK_APPLICATION_ID": "app", "SPARK_EXECUTOR_POD_IP": "10.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "pod",
    }  # fmt: skip
    environment = {**told, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def started(*words: str) -> list[str]:
        command = ["sh", str(DEPLOY / "entrypoint.sh"), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()

    found = started("executor")
    assert found[:4] == ["-Done=1", "-Dtwo=with a blank", "-Xms1g", "-Xmx1g"]
    backend = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    assert backend in found
    assert backend in classes("spark-kubernetes")
    assert found[-1].endswith("077"), "what it writes is for its owner alone"
    assert dict(zip(found[found.index(backend) + 1 :: 2], found[found.index(backend) + 2 :: 2], strict=False)) == {
        "--driver-url": "spark://driver", "--executor-id": "1", "--cores": "2", "--app-id": "app",
        "--hostname": "10.0.0.1", "--resourceProfileId": "0", "--podName": "pod",
    }  # fmt: skip
    assert started("java", "a b") == ["a b", found[-1]], "anything else is run as it is"


def test_nobody_takes_the_files_for_proven() -> None:
    """Without it, who finds them would think that they were run."""
    for name in ("Dockerfile", "compose.yaml", "values.yaml", "kubernetes.yaml"):
        assert "ot run here." in "".join((DEPLOY / name).read_text().splitlines()[:8]), name
    assert json.dumps(documents("kubernetes.yaml")).count("password") == 0
