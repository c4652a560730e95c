"""`python -m slurm_cluster`, and the program slurm-cluster."""

from slurm_cluster.command_line import app


def main() -> None:
    """The program's entry."""
    app(prog_name="slurm-cluster")


if __name__ == "__main__":
    main()
