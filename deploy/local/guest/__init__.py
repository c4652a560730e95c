"""A guest: a virtual machine that is a real Kubernetes Node and a real node of Slurm, on cgroup v2.

QEMU runs it in software, so that it needs neither KVM nor a container engine, and boots in 10 to 20 s.
Its programs are real: the kubelet and containerd, slurmd with task/cgroup, and the node agent of this
checkout.

tree.py      its root file system, of Debian's packages
oci.py       the images of its containers, made without a registry
agent.py     what Python packages the node agent needs
image.py     the disk that all of this is on
disk.py      how a disk is written
store.py     a second disk, of images that containerd has from the start
machine.py   how it is booted, and what of it the host reaches
connection.py what the host does in it: programs, files
program.py   one program of the guest as a component of the cluster
nodes.py     what makes a Node of it: its programs, and what they read
inside/      what runs in it that is ours
"""
