"""Entry point of `python -m slurm_cluster`, and of the program slurm-cluster."""

import os

from service.logging import configure_logging
from slurm_cluster.command_line import app


def main() -> None:
    configure_logging(os.environ.get("SLURM_CLUSTER_LOG_LEVEL", "INFO"))
    app(prog_name="slurm-cluster")


if __name__ == "__main__":
    main()
