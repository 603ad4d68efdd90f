"""Calls the Dask operator's own code, in an environment that has it: `python operator_at_work.py WHAT ...`, JSON out.

objects      what it makes of the DaskCluster on stdin
desired URL  how many workers the autoscaler wants of the scheduler whose HTTP server is there
retire URL N the names of N workers that it has retired
"""

import asyncio
import json
import logging
import sys

from dask_kubernetes.operator.controller import controller

NAME, NAMESPACE = "bigkpca", "bigkpca"


def objects():
    spec = json.load(sys.stdin)["spec"]
    labels = {}
    worker = (f"{NAME}-default", NAMESPACE, NAME, "0123456789", spec["worker"]["spec"])
    return {
        "scheduler": controller.build_scheduler_deployment_spec(NAME, spec["scheduler"]["spec"], {}, labels),
        "service": controller.build_scheduler_service_spec(NAME, spec["scheduler"]["service"], {}, labels),
        "worker": controller.build_worker_deployment_spec(*worker, {}, labels),
    }


def at(url):
    async def address(*_, **__):
        return url

    controller.get_scheduler_address = address


def main():
    what, *rest = sys.argv[1:]
    if what == "objects":
        return objects()
    at(rest[0])
    if what == "desired":
        return asyncio.run(controller.get_desired_workers(f"{NAME}-scheduler", NAMESPACE))
    log = logging.getLogger(__name__)
    return asyncio.run(controller.retire_workers(int(rest[1]), f"{NAME}-scheduler", f"{NAME}-default", NAMESPACE, log))


if __name__ == "__main__":
    print(json.dumps(main()))
