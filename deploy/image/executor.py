"""Starts one of Spark's executors on Kubernetes, in a pod made by the driver: what the pod template calls.

The driver says everything in the environment, with names that are Spark's. The process becomes the executor's JVM. A
user without an entry in the list of users gets one for this process and its children: Hadoop's login needs a name.
"""

from __future__ import annotations

import os
import pwd
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Options of the executor by the variables that have their values."""

JAVA_OPTION = "SPARK_JAVA_OPT_"


def command(environment: Mapping[str, str], java: str, jars: Path) -> list[str]:
    """The JVM's command line.

    Raises:
        KeyError: the environment is not that of an executor; its argument is the variable that is missing.
    """
    numbers = sorted(int(name.removeprefix(JAVA_OPTION)) for name in environment if name.startswith(JAVA_OPTION))
    options = [environment[f"{JAVA_OPTION}{number}"] for number in numbers]
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    more = [environment[name] for name in ("SPARK_CLASSPATH", "SPARK_EXTRA_CLASSPATH") if environment.get(name)]
    class_path = os.pathsep.join([*more, str(jars / "*")])
    arguments = [word for option, variable in ARGUMENTS.items() for word in (option, environment[variable])]
    return [java, *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", class_path, BACKEND, *arguments]


def with_user_name(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a process's user has a name, whatever its number."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        users = Path(tempfile.mkdtemp(prefix="turnout-"), "passwd")
        entry = f"turnout:x:{os.getuid()}:{os.getgid()}:turnout:/tmp:/usr/sbin/nologin\n"
        users.write_text(Path("/etc/passwd").read_text(encoding="utf-8") + entry, encoding="utf-8")
        libraries = " ".join(filter(None, ("libnss_wrapper.so", environment.get("LD_PRELOAD"))))
        return {
            **environment, "LD_PRELOAD": libraries, "NSS_WRAPPER_PASSWD": str(users), "NSS_WRAPPER_GROUP": "/etc/group",
        }  # fmt: skip
    return dict(environment)


def main() -> None:
    """Become the JVM."""
    import pyspark

    from turnout.runtime.java import find_java

    java = str(find_java().home / "bin" / "java")
    try:
        words = command(os.environ, java, Path(pyspark.__file__).parent / "jars")
    except KeyError as missing:
        sys.exit(f"this is no executor's pod: {missing.args[0]} is not set")
    os.execve(java, words, with_user_name(os.environ))  # noqa: S606 - the Java that was looked for


if __name__ == "__main__":
    main()
