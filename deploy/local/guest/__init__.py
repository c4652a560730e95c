"""The guest: a virtual machine that is a Kubernetes Node and a node of Slurm, on cgroup v2.

QEMU emulates the CPU in software. So the guest needs neither KVM nor a container engine, and boots
in 10 to 20 s. All programs in the guest are real: the kubelet and containerd, slurmd with
task/cgroup, and the node agent of this checkout.

    tree.py      the root file system, made of Debian's packages
    oci.py       the container images, made without a registry
    agent.py     the Python packages for the node agent
    image.py     the disk with all of these files
    disk.py      writes a disk
    store.py     a second disk, with the images that containerd has from the start
    machine.py   boots the guest, and forwards ports from the host
    connection.py runs programs in the guest and copies files into the guest
    program.py   a program of the guest as a component of the cluster
    nodes.py     the programs and files that make the guest a Node
    inside/      this project's own programs in the guest
"""
