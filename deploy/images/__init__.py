"""The container images of all Pods, and their builds: `python -m deploy.images`.

python.Dockerfile     the extender and the node agent
slurm.Dockerfile      slurmd, slurmctld, slurmrestd, the login Pod, and sssd
database.Dockerfile   slurmdbd, and MariaDB, with mariadb-start, database-dump and database-restore
scheduler.Dockerfile  kube-scheduler for the tests; users run Kubernetes' own image
debian-packages       installs Debian's packages in an image
debian-files          installs single files of a Debian package

image.py      the list of images
base.py       the root file system for builds without access to a registry
network.py    this machine's network settings for builds
buildah.py    a build with buildah, without a daemon
builder.py    builds each image once, and keeps the image as a file
archive.py    reads the content of such a file
"""
