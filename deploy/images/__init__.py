"""The container images of everything that runs in Pods, and what makes them: `python -m deploy.images`.

python.Dockerfile     the extender and the node agent
slurm.Dockerfile      slurmd, slurmctld, slurmrestd, where people log in, and sssd
database.Dockerfile   slurmdbd, and MariaDB, with mariadb-start, database-dump and database-restore
scheduler.Dockerfile  kube-scheduler, for the tests: elsewhere Kubernetes' own image is used
debian-packages       what the images have Debian's packages by
debian-files          the same for some files of a package

image.py      the images that there are
base.py       the root file system that the builds begin with, where no registry can be reached
network.py    what builds have to know of this machine's network
buildah.py    one build, by buildah: it needs no daemon
builder.py    images as files, built once
archive.py    what is in such a file
"""
