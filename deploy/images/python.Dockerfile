# The images of the project's programs (docs/reference/images.md). The targets are `extender`, `node-agent` and
# `slurm-cluster`.

ARG BASE=docker.io/library/debian:trixie-slim

FROM ${BASE} AS tools
ARG SNAPSHOT=
ENV PIP_CONFIG_FILE=/run/secrets/pip.conf PYTHONHASHSEED=0
COPY deploy/images/debian-packages deploy/images/python-program /usr/local/bin/
RUN --mount=type=secret,id=apt.conf debian-packages install ca-certificates python3-venv
WORKDIR /build
COPY requirements.lock deploy/requirements.py ./
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt \
    python3 -m venv tools && python3 requirements.py wheel <requirements.lock >wheel.txt && \
    tools/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement wheel.txt
# The packages that all three images have.
RUN --mount=type=secret,id=apt.conf \
    debian-packages unpack /image base-files libpython3-stdlib python3-minimal

FROM tools AS wheel
COPY LICENSE NOTICE README.md pyproject.toml ./
COPY extender extender
COPY kubernetes_client kubernetes_client
COPY node_agent node_agent
COPY service service
COPY slurm_client slurm_client
COPY slurm_cluster slurm_cluster
COPY wellknown wellknown
ARG VERSION=
RUN [ -z "$VERSION" ] || sed -i "s/^version = .*/version = \"$VERSION\"/" pyproject.toml && \
    tools/bin/pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir dist .

FROM tools AS extender-files
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt python-program packages extender
COPY --from=wheel /build/dist dist
ARG SOURCE_DATE_EPOCH=0
RUN python-program into /image && rm /image/opt/slurm-extender/bin/node-agent /image/opt/slurm-extender/bin/slurm-cluster && \
    echo 'slurm-extender:x:65532:65532::/nonexistent:/usr/sbin/nologin' >>/image/etc/passwd && \
    echo 'slurm-extender:x:65532:' >>/image/etc/group && \
    debian-packages finish /image

FROM scratch AS extender
COPY --from=extender-files /image /
ARG VERSION=
LABEL org.opencontainers.image.title=slurm-extender org.opencontainers.image.version=$VERSION \
    org.opencontainers.image.licenses=Apache-2.0
ENV PATH=/opt/slurm-extender/bin:/usr/bin PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["slurm-extender"]
CMD ["serve"]

FROM tools AS node-agent-files
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt python-program packages node-agent
COPY --from=wheel /build/dist dist
ARG SOURCE_DATE_EPOCH=0
RUN python-program into /image && rm /image/opt/slurm-extender/bin/slurm-* && \
    debian-packages finish /image

# The node agent runs as root, because it loads programs into the kernel and writes the cgroups of Pods.
FROM scratch AS node-agent
COPY --from=node-agent-files /image /
ARG VERSION=
LABEL org.opencontainers.image.title=node-agent org.opencontainers.image.version=$VERSION \
    org.opencontainers.image.licenses=Apache-2.0
ENV PATH=/opt/slurm-extender/bin:/usr/bin PYTHONUNBUFFERED=1
USER 0:0
ENTRYPOINT ["node-agent"]
CMD ["run"]

# This image also has Slurm's programs, from the base's release of Debian. slurm-cluster tries configurations with this
# slurmctld.
FROM tools AS slurm-cluster-files
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt python-program packages slurm-cluster
RUN --mount=type=secret,id=apt.conf \
    debian-packages unpack /image bash coreutils dash hostname slurm-client slurm-wlm-basic-plugins \
        slurm-wlm-jwt-plugin slurmctld
COPY --from=wheel /build/dist dist
# The hook has the same path as in slurmctld's image, because slurm.conf may name this path.
COPY deploy/slurm/slurm-extender-hook /image/usr/libexec/
ARG SOURCE_DATE_EPOCH=0
RUN python-program into /image && rm /image/opt/slurm-extender/bin/node-agent /image/opt/slurm-extender/bin/slurm-extender* && \
    echo 'slurm:x:64030:64030::/nonexistent:/usr/sbin/nologin' >>/image/etc/passwd && \
    echo 'slurm:x:64030:' >>/image/etc/group && \
    mkdir -p /image/etc/slurm /image/var/spool/slurmctld && debian-packages finish /image

FROM scratch AS slurm-cluster
COPY --from=slurm-cluster-files /image /
ARG VERSION=
LABEL org.opencontainers.image.title=slurm-cluster org.opencontainers.image.version=$VERSION \
    org.opencontainers.image.licenses=Apache-2.0
ENV PATH=/opt/slurm-extender/bin:/usr/sbin:/usr/bin PYTHONUNBUFFERED=1
USER 64030:64030
ENTRYPOINT ["slurm-cluster"]
